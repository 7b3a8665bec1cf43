// Numbers among the arguments, where ATen's kernels would stop at one that their dtype cannot hold.
#pragma once

#include <ATen/OpMathType.h>

#include <limits>

#include "device/fault.h"
#include "opapi/aclnn/check.h"

namespace vnpu::opapi {

// `number` as a kernel takes it that computes on `tensor`: past the range of the dtype it computes in it becomes an
// infinity or wraps, as the hardware's cast does.
inline at::Scalar computed(const ScalarArgument &number, const at::Tensor &tensor) {
    const at::Scalar &value = number.get();
    const bool every_dtype_holds_it = value.isBoolean() || (value.isUnsigned() && value.toUInt64() < 128);
    const bool stays =
        value.isComplex() || (value.isIntegral(true) && !at::isIntegralType(tensor.scalar_type(), false));
    return every_dtype_holds_it || stays ? value : number.as(at::toOpMathType(tensor.scalar_type()));
}

// As sums and powers take a number: float16 beside float16, where ATen's other kernels compute in float32.
inline at::Scalar fitted(const ScalarArgument &number, const at::Tensor &out) {
    constexpr double kLargestHalf = 65504;
    const at::Scalar &value = number.get();
    const bool past = out.scalar_type() == at::kHalf && !value.isComplex() && std::abs(value.toDouble()) > kLargestHalf;
    return past ? number.as(at::kHalf) : computed(number, out);
}

// Refuses a finite number that float32 cannot hold.
inline void in_float_range(double number, const char *parameter) {
    if (std::isfinite(number) && std::abs(number) > std::numeric_limits<float>::max())
        fail(FaultKind::InvalidArgument, "parameter {} is {}, allowed are numbers that float32 holds", parameter,
             number);
}

}  // namespace vnpu::opapi
