#include "opapi/legacy.h"

#include <unordered_map>

#include "device/machine.h"

namespace vnpu::opapi {
namespace {

std::unordered_map<std::string_view, LegacyKernel> &kernels() {
    static std::unordered_map<std::string_view, LegacyKernel> all;
    return all;
}

bool base(aclFormat format) {
    return format == ACL_FORMAT_ND || format == ACL_FORMAT_NCHW || format == ACL_FORMAT_NHWC ||
           format == ACL_FORMAT_NCDHW || format == ACL_FORMAT_NDHWC || format == ACL_FORMAT_UNDEFINED;
}

at::Tensor view(const aclTensorDesc &desc, const aclDataBuffer &buffer) {
    if (desc.dtype == ACL_DT_UNDEFINED) return {};  // an optional input that was left out
    if (!base(desc.storage_format))
        fail(FaultKind::Unsupported,
             "The virtual NPU does not have the private format {} yet; torch.npu.config.allow_internal_format = False "
             "avoids it.",
             static_cast<int>(desc.storage_format));
    const at::TensorOptions options = at::TensorOptions().dtype(own(desc.dtype));
    if (!desc.constant.empty())
        return at::from_blob(const_cast<std::byte *>(desc.constant.data()), desc.dims, options).clone();
    int64_t elements = 1;
    for (const int64_t size : desc.dims) elements *= size;
    if (elements == 0) return at::empty(desc.dims, options);
    const size_t bytes = static_cast<size_t>(elements) * options.dtype().itemsize();
    if (buffer.data == nullptr || buffer.size < bytes)
        fail(FaultKind::InvalidArgument, "a buffer has {} bytes at {}, its descriptor needs {}", buffer.size,
             buffer.data, bytes);
    if (desc.placement != ACL_MEMTYPE_DEVICE) return at::from_blob(buffer.data, desc.dims, options).clone();
    AddressSpace &space = Machine::instance().space();
    if (!space.contains(buffer.data))
        fail(FaultKind::InvalidAddress, "{} is not device memory: an operator of the virtual NPU cannot use it.",
             buffer.data);
    return at::from_blob(space.alias(buffer.data), desc.dims, options);
}

bool execute(const acl::LegacyCall &call) {
    const auto found = kernels().find(call.type);
    if (found == kernels().end()) return false;
    LegacyArguments arguments;
    for (size_t i = 0; i < call.inputs.size(); ++i) arguments.in.push_back(view(*call.input_descs[i], *call.inputs[i]));
    for (size_t i = 0; i < call.outputs.size(); ++i)
        arguments.out.push_back(view(*call.output_descs[i], *call.outputs[i]));
    arguments.attributes = call.attributes;
    found->second(Phase::Check, arguments);
    call.stream.submit(make_task(found->first.data(), [kernel = found->second, own = std::move(arguments)]() mutable {
        const KernelScope scope;
        kernel(Phase::Run, own);
    }));
    return true;
}

const bool registered = (acl::set_legacy_executor(execute), true);

}  // namespace

LegacyOperator::LegacyOperator(std::string_view type, LegacyKernel kernel) { kernels().emplace(type, kernel); }

at::Tensor &LegacyTensors::operator[](size_t index) {
    if (index >= size()) fail(FaultKind::InvalidArgument, "{} {} is missing: {} were given", role_, index, size());
    return at(index);
}

std::vector<int64_t> ints(const at::Tensor &tensor) {
    if (!tensor.defined()) fail(FaultKind::NullArgument, "an input with integers is missing");
    const at::Tensor wide = tensor.to(at::kLong).contiguous();
    return {wide.const_data_ptr<int64_t>(), wide.const_data_ptr<int64_t>() + wide.numel()};
}

}  // namespace vnpu::opapi
