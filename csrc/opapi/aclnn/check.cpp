#include "opapi/aclnn/check.h"

#include <fmt/ranges.h>

#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/TypeProperties.h>

#include "device/bytes.h"
#include "device/dry.h"
#include "device/machine.h"
#include "opapi/aclnn/format.h"

namespace vnpu::opapi {
namespace {

// What CANN's own check of the kind says comes first, as far as it is fixed (opbase:
// aclnn_kernels/common/op_error_check.h, the OP_CHECK_ macros), so that a search for it finds this too; ours follows in
// brackets.
[[noreturn]] void refuse(FaultKind kind, const std::string &theirs, const std::string &ours) {
    fail(kind, "{} [{}]", theirs, ours);
}

[[noreturn]] void invalid(const std::string &theirs, const std::string &ours) {
    refuse(FaultKind::InvalidArgument, theirs, ours);
}

[[noreturn]] void null_found(const char *type, const char *parameter) {
    refuse(FaultKind::NullArgument,
           fmt::format("Expected a value of type [{}] for argument [{}] but instead found nullptr.", type, parameter),
           fmt::format("parameter {} is null", parameter));
}

void not_null(const Operand &tensor) {
    if (!tensor.defined()) null_found("aclTensor", tensor.parameter());
}

std::string text(at::IntArrayRef sizes) { return fmt::format("[{}]", fmt::join(sizes.begin(), sizes.end(), ", ")); }

const char *name_of(at::ScalarType dtype) {
    switch (dtype) {
        case at::kFloat:
            return "float32";
        case at::kHalf:
            return "float16";
        case at::kDouble:
            return "float64";
        case at::kLong:
            return "int64";
        case at::kInt:
            return "int32";
        case at::kShort:
            return "int16";
        case at::kChar:
            return "int8";
        case at::kByte:
            return "uint8";
        case at::kUInt16:
            return "uint16";
        case at::kUInt32:
            return "uint32";
        case at::kUInt64:
            return "uint64";
        case at::kBFloat16:
            return "bfloat16";
        case at::kBool:
            return "bool";
        default:
            return c10::toString(dtype);
    }
}

// As CANN writes them (opbase: data_type_utils.cpp).
const char *cann_name_of(at::ScalarType dtype) {
    switch (dtype) {
        case at::kFloat:
            return "DT_FLOAT";
        case at::kHalf:
            return "DT_FLOAT16";
        case at::kDouble:
            return "DT_DOUBLE";
        case at::kLong:
            return "DT_INT64";
        case at::kInt:
            return "DT_INT32";
        case at::kShort:
            return "DT_INT16";
        case at::kChar:
            return "DT_INT8";
        case at::kByte:
            return "DT_UINT8";
        case at::kUInt16:
            return "DT_UINT16";
        case at::kUInt32:
            return "DT_UINT32";
        case at::kUInt64:
            return "DT_UINT64";
        case at::kBFloat16:
            return "DT_BFLOAT16";
        case at::kBool:
            return "DT_BOOL";
        case at::kComplexHalf:
            return "DT_COMPLEX32";
        case at::kComplexFloat:
            return "DT_COMPLEX64";
        case at::kComplexDouble:
            return "DT_COMPLEX128";
        default:
            return c10::toString(dtype);
    }
}

[[noreturn]] void wrong_shape(const Operand &tensor, at::IntArrayRef expected, const std::string &why) {
    invalid(fmt::format("Expected tensor for {} to have same size as {}, but got {}.", tensor.parameter(),
                        text(expected), text(tensor.sizes())),
            fmt::format("parameter {} has shape {}, expected {}{}", tensor.parameter(), text(tensor.sizes()),
                        text(expected), why));
}

}  // namespace

std::string describe(const at::Tensor &tensor) {
    return tensor.defined() ? name_of(tensor.scalar_type()) + text(tensor.sizes()) : "null";
}

void shape(const Operand &tensor, at::IntArrayRef expected) {
    not_null(tensor);
    if (tensor.sizes() != expected) wrong_shape(tensor, expected, "");
}

void same_shape(const Operand &out, const Operand &in) {
    not_null(out);
    not_null(in);
    if (out.sizes() != in.sizes())
        invalid(fmt::format("Expected tensor for {} to have same size as tensor for {}, but {} does not equal {}.",
                            out.parameter(), in.parameter(), text(out.sizes()), text(in.sizes())),
                fmt::format("parameter {} has shape {}, expected {}, the shape of {}", out.parameter(),
                            text(out.sizes()), text(in.sizes()), in.parameter()));
}

void broadcasts(const Operand &out, std::initializer_list<const Operand *> inputs) {
    not_null(out);
    at::DimVector sizes;
    bool first = true;
    for (const Operand *in : inputs) {
        if (!in->defined()) continue;
        if (first || sizes == in->sizes()) {
            sizes.assign(in->sizes().begin(), in->sizes().end());
            first = false;
            continue;
        }
        try {
            sizes = at::infer_size_dimvector(sizes, in->sizes());
        } catch (const c10::Error &) {
            invalid(fmt::format("The size of tensor {} {} must match the size {}.", in->parameter(), text(in->sizes()),
                                text(sizes)),
                    fmt::format("parameter {} has shape {}, which does not broadcast with {}", in->parameter(),
                                text(in->sizes()), text(sizes)));
        }
    }
    if (out.sizes() != at::IntArrayRef(sizes)) wrong_shape(out, sizes, ", the broadcast shape of the inputs");
}

void expands(const Operand &out, const Operand &in) {
    not_null(out);
    not_null(in);
    if (out.sizes() != in.sizes() && !at::is_expandable_to(in.sizes(), out.sizes()))
        invalid(fmt::format("The size of tensor {} {} must match the size of tensor {} {}.", in.parameter(),
                            text(in.sizes()), out.parameter(), text(out.sizes())),
                fmt::format("parameter {} has shape {}, which does not broadcast to {} of {}", in.parameter(),
                            text(in.sizes()), text(out.sizes()), out.parameter()));
}

void reduces(const Operand &out, const Operand &in, at::IntArrayRef dims, bool keepdim) {
    not_null(out);
    not_null(in);
    std::vector<bool> reduced(static_cast<size_t>(in.dim()), dims.empty());
    for (const int64_t dim : dims) {
        dimension(dim, in);
        if (in.dim() == 0) continue;
        const auto place = static_cast<size_t>(at::maybe_wrap_dim(dim, in.dim()));
        if (reduced[place])
            fail(FaultKind::InvalidArgument, "parameter dim is {}, which names dimension {} of {} twice", text(dims),
                 place, in.parameter());
        reduced[place] = true;
    }
    at::DimVector sizes;
    for (size_t i = 0; i < reduced.size(); ++i) {
        if (!reduced[i]) sizes.push_back(in.size(static_cast<int64_t>(i)));
        if (reduced[i] && keepdim) sizes.push_back(1);
    }
    if (out.sizes() != at::IntArrayRef(sizes))
        wrong_shape(out, sizes,
                    fmt::format(", {} of shape {} reduced over {}", in.parameter(), text(in.sizes()), text(dims)));
}

void rank(const Operand &tensor, std::initializer_list<int64_t> allowed) {
    not_null(tensor);
    for (const int64_t rank : allowed)
        if (tensor.dim() == rank) return;
    std::string theirs;
    if (allowed.size() == 1)
        theirs = fmt::format("Expected {} dimension input, but got {} with sizes {}.", *allowed.begin(),
                             tensor.parameter(), text(tensor.sizes()));
    else if (const int64_t most = std::max(allowed); tensor.dim() > most)
        theirs = fmt::format("The {} tensor cannot be larger than {} dimensions.", tensor.parameter(), most);
    else
        theirs = fmt::format("The {} tensor must have at least {} dimensions.", tensor.parameter(), std::min(allowed));
    invalid(theirs, fmt::format("parameter {} has {} dimensions, allowed are {}", tensor.parameter(), tensor.dim(),
                                text({allowed.begin(), allowed.size()})));
}

void matrices(const Operand &tensor) {
    not_null(tensor);
    if (tensor.dim() < 2)
        invalid(
            fmt::format("The {} tensor must have at least 2 dimensions.", tensor.parameter()),
            fmt::format("parameter {} has {} dimensions, allowed are 2 and more", tensor.parameter(), tensor.dim()));
}

void too_many_dimensions(const Operand &tensor, int64_t most) {
    if (!Machine::instance().settings().hardware_checks) return;
    invalid(fmt::format("The {} tensor cannot be larger than {} dimensions.", tensor.parameter(), most),
            fmt::format("parameter {} has {} dimensions", tensor.parameter(), tensor.dim()));
}

size_t generation() {
    static const auto index = static_cast<size_t>(Machine::instance().settings().chip->generation);
    return index;
}

void examine(const Named &parameter, at::ScalarType found, DTypes allowed) {
    const Settings &settings = Machine::instance().settings();
    const bool any = !settings.hardware_checks;
    if (allowed.has(found) && (found != at::kBFloat16 || settings.chip->bf16 || any)) return;
    // Where the cores compute, the CPU computes in any dtype. Indices, masks and the like stay what they are.
    const bool tolerable = (allowed.has(at::kFloat) || allowed.has(at::kHalf) || allowed.none()) && kAll.has(found);
    if (tolerable && any) return;
    std::string names, cann_names;
    for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
        const auto dtype = static_cast<at::ScalarType>(i);
        if (!allowed.has(dtype) || (dtype == at::kBFloat16 && !settings.chip->bf16)) continue;
        names += (names.empty() ? "" : ", ") + std::string(name_of(dtype));
        cann_names += cann_name_of(dtype) + std::string(",");  // CANN's lists end with one
    }
    invalid(fmt::format("Tensor {} not implemented for {}, should be in dtype support list [{}].",
                        parameter.parameter(), cann_name_of(found), cann_names),
            fmt::format("parameter {} has dtype {}, allowed are {} on {}{}", parameter.parameter(), name_of(found),
                        names.empty() ? "none" : names, settings.chip->name,
                        tolerable ? "; with VNPU_CHECKS=any the virtual NPU computes in it all the same" : ""));
}

void dtype(const Operand &tensor, DTypes allowed) {
    not_null(tensor);
    offered(allowed, tensor);
}

void promotes(const Operand &out, std::initializer_list<const at::Tensor *> inputs) {
    not_null(out);
    at::native::ResultTypeState state{};
    bool equal = true;
    for (const at::Tensor *in : inputs) {
        if (!in->defined()) continue;
        equal = equal && in->scalar_type() == out.scalar_type();
        state = at::native::update_result_type_state(*in, state);
    }
    if (equal) return;
    const at::ScalarType promoted = at::native::result_type(state);
    if (!at::canCast(promoted, out.scalar_type()))
        invalid(fmt::format("Result type {} can't be cast to the desired output type {}.", cann_name_of(promoted),
                            cann_name_of(out.scalar_type())),
                fmt::format("parameter {} has dtype {}, which cannot hold the result's {}", out.parameter(),
                            name_of(out.scalar_type()), name_of(promoted)));
}

void promotes(const Operand &out, const Operand &tensor, const ScalarArgument &number) {
    require(number);
    if (!number.has_value()) return promotes(out, {&tensor});
    const at::Scalar &value = number.get();
    const bool keeps_dtype = tensor.is_complex() || (!value.isComplex() && tensor.is_floating_point()) ||
                             value.isBoolean() ||
                             (value.isIntegral(true) && c10::isIntegralType(tensor.scalar_type(), false));
    if (keeps_dtype && tensor.scalar_type() == out.scalar_type()) return;  // the common case, without an allocation
    const at::Tensor wrapped = number.number();
    promotes(out, {&tensor, &wrapped});
}

namespace {
void promotable(const Named &self, at::ScalarType a, const Named &other, at::ScalarType b) {
    if (a == b || !(kUnsigned.has(a) || kUnsigned.has(b))) return;
    invalid(fmt::format("Self dtype {} and other dtype {} can not promote dtype.", cann_name_of(a), cann_name_of(b)),
            fmt::format("parameters {} and {} have dtypes {} and {}, without a common one", self.parameter(),
                        other.parameter(), name_of(a), name_of(b)));
}
}  // namespace

void promotable(const Operand &self, const Operand &other) {
    if (self.defined() && other.defined()) promotable(self, self.scalar_type(), other, other.scalar_type());
}

void promotable(const Operand &self, const ScalarArgument &other) {
    if (self.defined() && other.has_value()) promotable(self, self.scalar_type(), other, other.dtype());
}

void same_dtype(const Operand &a, const Operand &b) {
    not_null(a);
    not_null(b);
    if (a.scalar_type() != b.scalar_type())
        invalid(fmt::format("Expected both tensors to have same dtype, but found {} {} and {} {}.", a.parameter(),
                            cann_name_of(a.scalar_type()), b.parameter(), cann_name_of(b.scalar_type())),
                fmt::format("parameter {} has dtype {}, expected {}, the dtype of {}", a.parameter(),
                            name_of(a.scalar_type()), name_of(b.scalar_type()), b.parameter()));
}

void equal_dtypes(const Operand &a, const Operand &b) {
    if (a.defined() && b.defined()) same_dtype(a, b);
}

void equal_dtypes(const Operands &list, const Operand &one) {
    for (const Operand &tensor : list) equal_dtypes(tensor, one);
}

void equal_dtypes(const Operand &one, const Operands &list) {
    for (const Operand &tensor : list) equal_dtypes(one, tensor);
}

void equal_dtypes(const Operands &a, const Operands &b) {
    for (const Operand &tensor : a) equal_dtypes(tensor, b);
}

void same_length(const Operands &a, const Operands &b) {
    if (a.size() != b.size())
        invalid(
            fmt::format("The {} tensorlist and {} tensorlist must have the same number of tensors, but got {} and {}.",
                        a.parameter(), b.parameter(), a.size(), b.size()),
            fmt::format("parameter {} has {} tensors, expected {}, as many as {}", a.parameter(), a.size(), b.size(),
                        b.parameter()));
}

void same_dtypes(const Operands &list) {
    for (const Operand &tensor : list) same_dtype(tensor, list.front());
}

void one_element(const Operand &tensor) {
    not_null(tensor);
    if (tensor.numel() != 1)
        fail(FaultKind::InvalidArgument, "parameter {} has shape {}, expected one element", tensor.parameter(),
             text(tensor.sizes()));
}

void dimension(int64_t dim, const Operand &tensor) {
    not_null(tensor);
    const int64_t rank = std::max<int64_t>(tensor.dim(), 1);
    if (dim < -rank || dim >= rank)
        // The most frequent of several wordings (ops-math, ops-nn: aclnn_*.cpp).
        invalid(fmt::format("Provided dim {} must be in the range of [{}, {}].", dim, -rank, rank - 1),
                fmt::format("parameter dim is {}, allowed for {} with {} dimensions is [{}, {}]", dim,
                            tensor.parameter(), tensor.dim(), -rank, rank - 1));
}

void require(const Operand &operand) {
    if (!operand.defined() && !operand.may_be_null()) not_null(operand);
    if (operand.layout() && !operand.may_have_layout())
        fail(FaultKind::InvalidArgument, "parameter {} has the private format {}, allowed is ND: cast it back",
             operand.parameter(), name_of(operand.layout()));
    live(operand, kAnyDevice);
}

void require(const Operands &list) {
    if (list.null() && !list.may_be_null()) null_found("aclTensorList", list.parameter());
    live(list, kAnyDevice);
}

uint64_t whole(at::IntArrayRef sizes, uint64_t itemsize) {
    uint64_t all = itemsize;
    for (const int64_t size : sizes) {
        if (size < 0) fail(FaultKind::InvalidArgument, "dimensions {} have a negative one", text(sizes));
        all = bytes::product(static_cast<uint64_t>(size), all, "a tensor");
    }
    return all;
}

void live(const Operand &operand, int device) {
    if (!operand.defined()) return;
    const c10::StorageImpl &storage = *operand.storage().unsafeGetStorageImpl();
    if (storage.nbytes() == 0 || storage.data() == nullptr) return;  // without memory: unbacked.h
    // A kernel that has replaced its argument by one of its own reads that.
    const AddressSpace &space = Machine::instance().space();
    if (!space.contains(space.unalias(storage.data()))) return;
    still_live(storage.data(), storage.nbytes(), operand.parameter(), device);
}

void live(const Operands &list, int device) {
    for (const Operand &operand : list) live(operand, device);
}

void require(const ScalarArgument &scalar) {
    if (!scalar.has_value() && !scalar.may_be_null()) null_found("aclScalar", scalar.parameter());
}

void found_along(std::initializer_list<FoundAlong> outputs) {
    if (!dry::on() || outputs.size() == 0) return;
    const FoundAlong &first = *outputs.begin();
    if (first.output->dim() == 0) return;
    const int64_t found = dry::found(first.output->size(first.dimension));
    for (const FoundAlong &each : outputs) each.output->set_found(each.dimension, found);
}

}  // namespace vnpu::opapi
