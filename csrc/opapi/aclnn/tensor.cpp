#include "opapi/aclnn/tensor.h"

#include <ATen/ScalarOps.h>

#include <algorithm>

#include "device/fault.h"

namespace vnpu::opapi {

at::ScalarType aten_dtype(aclDataType dtype) {
    switch (static_cast<int>(dtype) & 0xffffffff) {
        case ACL_FLOAT:
            return at::kFloat;
        case ACL_FLOAT16:
            return at::kHalf;
        case ACL_INT8:
            return at::kChar;
        case ACL_INT32:
            return at::kInt;
        case ACL_UINT8:
            return at::kByte;
        case ACL_INT16:
            return at::kShort;
        case ACL_UINT16:
            return at::kUInt16;
        case ACL_UINT32:
            return at::kUInt32;
        case ACL_INT64:
            return at::kLong;
        case ACL_UINT64:
            return at::kUInt64;
        case ACL_DOUBLE:
            return at::kDouble;
        case ACL_BOOL:
            return at::kBool;
        case ACL_COMPLEX32:
            return at::kComplexHalf;
        case ACL_COMPLEX64:
            return at::kComplexFloat;
        case ACL_COMPLEX128:
            return at::kComplexDouble;
        case ACL_BF16:
            return at::kBFloat16;
        case ACL_FLOAT8_E5M2:
            return at::kFloat8_e5m2;
        case ACL_FLOAT8_E4M3FN:
            return at::kFloat8_e4m3fn;
        case ACL_FLOAT8_E8M0:
            return at::kFloat8_e8m0fnu;
        default:
            break;
    }
    fail(FaultKind::InvalidArgument, "The virtual NPU does not offer aclDataType {}.", static_cast<int>(dtype));
}

void throw_fault(const Fault &fault, const char *name) {
    fail(fault.kind(), "parameter {} could not be described: {}", name, fault.what());
}

void Operand::set_data_dependent() {
    if (source_ == nullptr) return;  // the null check names it
    result_ = source_->result = std::make_shared<ResultShape>();
    result_->sizes = sizes().vec();
}

void Operand::set_found(int64_t dimension, int64_t count) {
    if (result_ == nullptr || dim() == 0) return;
    const auto along = static_cast<size_t>(dimension < 0 ? dimension + dim() : dimension);
    result_->sizes.at(along) = std::min(result_->sizes.at(along), count);
}

void Operand::publish(const at::Tensor &result) {
    // The buffer is as large as the result can get; its own shape says nothing about the result's.
    at::Tensor filled = as_strided(result.sizes(), result.contiguous().strides());
    filled.copy_(result);
    result_->sizes = result.sizes().vec();
}

at::Tensor Operand::filled() const {
    if (result_ == nullptr) return *this;
    return as_strided(result_->sizes, c10::contiguous_strides(result_->sizes));
}

Operands::Operands(const aclTensorList *source, const char *name) : Named(name), null_(source == nullptr) {
    if (source == nullptr) return;
    reserve(source->tensors.size());
    for (const aclTensor *tensor : source->tensors) emplace_back(tensor, name);
}

ScalarArgument::ScalarArgument(const aclScalar *source, const char *name) : Named(name) {
    if (source == nullptr) return;
    if (source->fault != nullptr) throw_fault(*source->fault, name);
    emplace(source->value);
    dtype_ = source->dtype;
}

const at::Scalar &ScalarArgument::get() const {
    if (!has_value()) fail(FaultKind::NullArgument, "parameter {} is null", parameter());
    return **this;
}

at::Scalar ScalarArgument::as(at::ScalarType dtype) const {
    const at::Scalar &value = get();
    const bool fits =
        value.isComplex() ? c10::isComplexType(dtype)
        : value.isFloatingPoint() && (dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16)
            ? dtype == at::kDouble || !(std::abs(value.toDouble()) > 3.38e38)
            : dtype == at::kLong && value.isIntegral(true);
    return fits ? value : at::scalar_to_tensor(value).to(dtype).item();
}

at::Tensor ScalarArgument::number() const {
    return has_value() ? at::native::wrapped_scalar_tensor(**this) : at::Tensor();
}

std::vector<at::Scalar> own(const aclScalarList *list, const char *name) {
    if (list == nullptr) fail(FaultKind::NullArgument, "parameter {} is null", name);
    std::vector<at::Scalar> scalars;
    scalars.reserve(list->scalars.size());
    for (const aclScalar *scalar : list->scalars) {
        if (scalar == nullptr) fail(FaultKind::NullArgument, "parameter {} holds a null scalar", name);
        if (scalar->fault != nullptr) throw_fault(*scalar->fault, name);
        scalars.push_back(scalar->value);
    }
    return scalars;
}

}  // namespace vnpu::opapi
