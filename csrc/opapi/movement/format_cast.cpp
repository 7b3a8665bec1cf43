// From base to private formats and back. What aclnn does not cast (1-D and 2-D tensors to NC1HWC0, dtypes that the
// cube unit does not read) torch_npu casts with the legacy operator Identity, when the size is answered with an error.
#include <algorithm>

#include "ascendcl/argument.h"
#include "device/fault.h"
#include "opapi/aclnn/format.h"
#include "opapi/aclnn/op.h"

namespace vnpu::opapi {
namespace {

struct Cast {
    aclFormat base, stored;
};
constexpr Cast kCasts[] = {
    {ACL_FORMAT_ND, ACL_FORMAT_FRACTAL_NZ},   {ACL_FORMAT_NCL, ACL_FORMAT_FRACTAL_NZ},
    {ACL_FORMAT_NCHW, ACL_FORMAT_FRACTAL_NZ}, {ACL_FORMAT_NCDHW, ACL_FORMAT_FRACTAL_NZ},
    {ACL_FORMAT_NCDHW, ACL_FORMAT_NDC1HWC0},  {ACL_FORMAT_NCDHW, ACL_FRACTAL_Z_3D},
    {ACL_FORMAT_NCHW, ACL_FORMAT_NC1HWC0},    {ACL_FORMAT_NCHW, ACL_FORMAT_FRACTAL_Z},
};
constexpr DTypes kCastable{at::kChar, at::kByte, at::kFloat, at::kHalf, at::kBFloat16, at::kInt, at::kUInt32};

bool has(aclFormat base, aclFormat stored) {
    return std::ranges::any_of(kCasts, [&](const Cast &cast) { return cast.base == base && cast.stored == stored; });
}

void check_cast(Operand &src, Operand &dst) {
    for (Operand *tensor : {&src, &dst}) {
        tensor->allow_layout();
        require(*tensor);
        dtype(*tensor, kCastable);
        if (tensor->layout() && !tensor->is_contiguous())
            fail(FaultKind::InvalidArgument, "parameter {} is a strided view of a tensor in format {}",
                 tensor->parameter(), name_of(tensor->layout()));
    }
    same_shape(dst, src);
    same_dtype(dst, src);
    const aclFormat from = src.source()->format, to = dst.source()->format;
    const bool back = has(to, from) || (from == ACL_FORMAT_FRACTAL_NZ && !dst.layout());
    if (!has(from, to) && !back)
        fail(FaultKind::InvalidArgument, "parameters srcTensor and dstTensor: format {} cannot be cast to {}",
             static_cast<int>(from), static_cast<int>(to));
}

void cast(const Operand &src, const Operand &dst) {
    const at::Tensor rows = unpacked(src);
    if (dst.layout())
        pack(stored(dst, dst.layout()), dst.layout(), rows);
    else
        dst.copy_(rows);
}

// What a cast to `format` makes of the tensor: its storage and its format. The block holds 32 bytes of
// the aclDataType `wanted`; -1 is the source's.
std::pair<std::vector<int64_t>, aclFormat> plan_cast(const aclTensor &source, aclFormat format, int wanted) {
    if (source.fault != nullptr) throw_fault(*source.fault, "srcTensor");
    if (!kCastable.has(source.view.scalar_type()) || source.view.numel() == 0)
        fail(FaultKind::InvalidArgument, "srcTensor is {}, which is not cast", describe(source.view));
    if (!source.layout) {
        const at::ScalarType dtype =
            wanted == -1 ? source.view.scalar_type() : aten_dtype(static_cast<aclDataType>(wanted));
        const auto block = static_cast<int64_t>(32 / c10::elementSize(dtype));
        const bool matrices = format != ACL_FORMAT_FRACTAL_NZ || source.format == ACL_FORMAT_ND ||
                              source.format == ACL_FORMAT_NCL || dtype == source.view.scalar_type();
        if (has(source.format, format) && matrices)
            return {storage_shape(layout_of(format, {block}), source.view.sizes()), format};
    } else if (source.format == ACL_FORMAT_FRACTAL_NZ
                   ? format == ACL_FORMAT_ND
                   : has(format, source.format) && source.view.dim() == (format == ACL_FORMAT_NCDHW ? 5 : 4)) {
        // A 1-D or 2-D tensor in NC1HWC0 goes back as it came: with Identity (ops-math: aclnn_npu_format_cast.cpp).
        return {source.view.sizes().vec(), format};
    }
    fail(FaultKind::InvalidArgument, "srcTensor has format {}, which cannot be cast to {}",
         static_cast<int>(source.format), static_cast<int>(format));
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnNpuFormatCast, check_cast(srcTensor, dstTensor), cast(srcTensor, dstTensor))

// One call, no phases. The caller deletes the array of dimensions (delete[]).
#define DIRECT(NAME) OP_EXPORT aclnnStatus NAME(PARAMS_##NAME)
DIRECT(aclnnNpuFormatCastCalculateSizeAndFormat) {
    using namespace vnpu::opapi;
    return VNPU_OPERATOR_API(srcTensor, dstFormat, additionalDtype) {
        const auto [storage, format] =
            plan_cast(vnpu::acl::required(srcTensor, "srcTensor"), static_cast<aclFormat>(dstFormat), additionalDtype);
        int64_t *&shape = vnpu::acl::required(dstShape, "dstShape");
        vnpu::acl::required(dstShapeSize, "dstShapeSize") = storage.size();
        vnpu::acl::required(actualFormat, "actualFormat") = static_cast<int>(format);
        shape = new int64_t[storage.size()];
        std::ranges::copy(storage, shape);
    };
}
