// Two values in, one out: arithmetic with broadcasting and torch's type promotion. A scalar takes part in the promotion
// as a Python number does.
#include <ATen/native/BinaryOps.h>

#include "device/fault.h"
#include "opapi/aclnn/number.h"
#include "opapi/aclnn/op.h"
#include "opapi/elementwise/operands.h"

#define BINARY(NAME, DTYPES, ...) OP(NAME, binary(out, self, other, DTYPES), __VA_ARGS__)
// ... with a factor for the second
#define SUM(NAME, OUT, CHECK, ...) OP(NAME, CHECK; factor(alpha, OUT), __VA_ARGS__)
#define BINARY_SCALAR(NAME, DTYPES, ...) OP(NAME, with_number(out, self, other, DTYPES), __VA_ARGS__)
#define BINARY_INPLACE(NAME, DTYPES, ...) OP(NAME, binary(selfRef, selfRef, other, DTYPES), __VA_ARGS__)
#define BINARY_SCALAR_INPLACE(NAME, DTYPES, ...) OP(NAME, with_number(selfRef, selfRef, other, DTYPES), __VA_ARGS__)

namespace vnpu::opapi {
namespace {

constexpr DTypes kNumbers = kReals | kComplex;  // what torch subtracts: no booleans
constexpr DTypes kPower = kAll;
constexpr DTypes kLogarithms = kFloats | kIntsAndBool;

// torch subtracts no booleans: ~ and ^ are meant.
void no_truth(const ScalarArgument &number) {
    if (number.get().isBoolean())
        fail(FaultKind::InvalidArgument, "parameter {} is a boolean, which cannot be subtracted", number.parameter());
}

// What the second operand is multiplied by is no wider than the result.
void factor(const ScalarArgument &alpha, const Operand &out) {
    const at::Scalar &value = alpha.get();
    const bool fits = value.isBoolean()         ? out.scalar_type() == at::kBool
                      : value.isComplex()       ? out.is_complex()
                      : value.isFloatingPoint() ? out.is_floating_point() || out.is_complex()
                                                : true;
    if (!fits)
        fail(FaultKind::InvalidArgument, "parameter alpha is {}, which {} of {} cannot be multiplied by", show(alpha),
             describe(out), out.parameter());
}

void exponent_of(const Operand &base, const ScalarArgument &exponent) {
    if (!base.is_floating_point() && !base.is_complex() && exponent.get().isIntegral(true) &&
        exponent.get().toLong() < 0)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, negative, and {} holds integers", exponent.parameter(),
             exponent.get().toLong(), base.parameter());
}

// Neither CANN (ops-math: aclnn_pow_tensor_tensor.cpp) nor ATen raises a truth value to another.
void no_truths(const Operand &base, const Operand &exponent) {
    if (base.scalar_type() == at::kBool && exponent.scalar_type() == at::kBool)
        fail(FaultKind::InvalidArgument, "Self and exponent dtype are bool is not supported: parameters {} and {} are",
             base.parameter(), exponent.parameter());
}

void shifts(const Operand &out, const Operand &in, const Operand &bits) { binary(out, in, bits, kInts); }

}  // namespace
}  // namespace vnpu::opapi

SUM(aclnnAdd, out, binary(out, self, other, kAll), at::add_out(out, self, other, fitted(alpha, out)))
SUM(aclnnAdds, out, with_number(out, self, other, kAll), at::add_out(out, self, other.number(), fitted(alpha, out)))
SUM(aclnnAddV3, out, with_number(out, other, self, kNative | at::kInt | at::kChar),
    at::add_out(out, self.number(), other, fitted(alpha, out)))
SUM(aclnnInplaceAdd, selfRef, binary(selfRef, selfRef, other, kAll),
    at::add_out(selfRef, selfRef, other, fitted(alpha, selfRef)))
SUM(aclnnInplaceAdds, selfRef, with_number(selfRef, selfRef, other, kAll),
    at::add_out(selfRef, selfRef, other.number(), fitted(alpha, selfRef)))
SUM(aclnnAddRelu, out, binary(out, self, other, kNative | kInts),
    at::add_out(out, self, other, fitted(alpha, out)).clamp_min_(0))
SUM(aclnnInplaceAddRelu, selfRef, binary(selfRef, selfRef, other, kNative | kInts),
    at::add_out(selfRef, selfRef, other, fitted(alpha, selfRef)).clamp_min_(0))

SUM(aclnnSub, out, binary(out, self, other, kNumbers), at::sub_out(out, self, other, fitted(alpha, out)))
SUM(aclnnSubs, out, (with_number(out, self, other, kNumbers), no_truth(other)),
    at::sub_out(out, self, other.number(), fitted(alpha, out)))
SUM(aclnnInplaceSub, selfRef, binary(selfRef, selfRef, other, kNumbers),
    at::sub_out(selfRef, selfRef, other, fitted(alpha, selfRef)))
SUM(aclnnInplaceSubs, selfRef, (with_number(selfRef, selfRef, other, kNumbers), no_truth(other)),
    at::sub_out(selfRef, selfRef, other.number(), fitted(alpha, selfRef)))
SUM(aclnnRsub, out, binary(out, self, other, kNumbers), at::sub_out(out, other, self, fitted(alpha, out)))
SUM(aclnnRsubs, out, (with_number(out, self, other, kNumbers), no_truth(other)),
    at::sub_out(out, other.number(), self, fitted(alpha, out)))

BINARY(aclnnMul, kAll, at::mul_out(out, self, other))
BINARY_SCALAR(aclnnMuls, kAll, at::mul_out(out, self, other.number()))
BINARY_INPLACE(aclnnInplaceMul, kAll, at::mul_out(selfRef, selfRef, other))
BINARY_SCALAR_INPLACE(aclnnInplaceMuls, kAll, at::mul_out(selfRef, selfRef, other.number()))

OP(aclnnDiv, (binary(out, self, other, kAll), to_float(out)), at::div_out(out, self, other))
OP(aclnnDivs, (with_number(out, self, other, kAll), to_float(out)), at::div_out(out, self, other.number()))
OP(aclnnInplaceDiv, (binary(selfRef, selfRef, other, kAll), to_float(selfRef)), at::div_out(selfRef, selfRef, other))
OP(aclnnInplaceDivs, (with_number(selfRef, selfRef, other, kAll), to_float(selfRef)),
   at::div_out(selfRef, selfRef, other.number()))
OP(aclnnPowTensorTensor,
   (dtype(self, kAll), dtype(exponent, kAll), no_truths(self, exponent), broadcasts(out, {&self, &exponent}),
    promotes(out, {&self, &exponent})),
   at::pow_out(out, self, exponent))
OP(aclnnPowTensorScalar, (with_number(out, self, exponent, kAll), exponent_of(self, exponent)),
   at::pow_out(out, self, fitted(exponent, out)))
OP(aclnnPowScalarTensor, with_number(out, exponent, self, kReals | kComplex), at::pow_out(out, self.get(), exponent))
OP(aclnnInplacePowTensorTensor,
   (dtype(self, kAll), dtype(exponent, kAll), no_truths(self, exponent), broadcasts(self, {&self, &exponent}),
    promotes(self, {&self, &exponent})),
   at::pow_out(self, self, exponent))
OP(aclnnInplacePowTensorScalar, (with_number(self, self, exponent, kAll), exponent_of(self, exponent)),
   at::pow_out(self, self, fitted(exponent, self)))

BINARY(aclnnMaximum, kReals | at::kBool, at::maximum_out(out, self, other))
BINARY(aclnnMinimum, kReals | at::kBool, at::minimum_out(out, self, other))
OP(aclnnAtan2, (binary(out, self, other, kReals | at::kBool), to_float(out)), at::atan2_out(out, self, other))
OP(aclnnInplaceAtan2, (binary(selfRef, selfRef, other, kReals | at::kBool), to_float(selfRef)),
   at::atan2_out(selfRef, selfRef, other))
OP(aclnnLogAddExp, (binary(out, self, other, kLogarithms), dtype(out, kNative)), at::logaddexp_out(out, self, other))
OP(aclnnLogAddExp2, (binary(out, self, other, kLogarithms), dtype(out, kNative)), at::logaddexp2_out(out, self, other))
OP(aclnnXLogYTensor, (binary(out, self, other, kLogarithms), to_float(out)), at::xlogy_out(out, self, other))
OP(aclnnXLogYScalarOther, (with_number(out, self, other, kLogarithms), to_float(out)),
   at::xlogy_out(out, self, other.get()))
OP(aclnnXLogYScalarSelf, (with_number(out, other, self, kLogarithms), to_float(out)),
   at::xlogy_out(out, self.get(), other))
OP(aclnnInplaceXLogYScalarOther, (with_number(selfRef, selfRef, other, kLogarithms), to_float(selfRef)),
   at::xlogy_out(selfRef, selfRef, other.get()))
BINARY(aclnnGcd, kInts, at::gcd_out(out, self, other))

OP(aclnnLeftShift, shifts(out, self, shiftBits), at::bitwise_left_shift_out(out, self, shiftBits))
OP(aclnnRightShift, shifts(out, input, shiftBits), at::bitwise_right_shift_out(out, input, shiftBits))
OP(aclnnLeftShifts, with_number(out, self, shiftBits, kInts), at::bitwise_left_shift_out(out, self, shiftBits.number()))

OP(aclnnComplex,
   (dtype(real, {at::kHalf, at::kFloat, at::kDouble}), same_dtype(imag, real), broadcasts(out, {&real, &imag}),
    dtype(out, c10::toComplexType(real.scalar_type()))),
   at::complex_out(out, real, imag))
OP(aclnnPolar,
   (dtype(input, at::kFloat), same_dtype(angle, input), broadcasts(out, {&input, &angle}),
    dtype(out, at::kComplexFloat)),
   at::polar_out(out, input, angle))

// The gradients of two functions whose backward CANN has in one step.
OP(aclnnSigmoidBackward,
   (dtype(gradOutput, kFloats | kComplex), dtype(output, kFloats | kComplex),
    broadcasts(gradInput, {&gradOutput, &output}), promotes(gradInput, {&gradOutput, &output})),
   at::sigmoid_backward_out(gradInput, gradOutput, output))
OP(aclnnTanhBackward,
   (dtype(gradOutput, kFloats), dtype(output, kFloats), broadcasts(gradInput, {&gradOutput, &output}),
    promotes(gradInput, {&gradOutput, &output})),
   at::tanh_backward_out(gradInput, gradOutput, output))
