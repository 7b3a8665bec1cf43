// Two values in, one out: arithmetic with broadcasting and torch's type promotion. A scalar takes part in the promotion
// as a Python number does.
#include <ATen/native/BinaryOps.h>

#include "device/fault.h"
#include "opapi/aclnn/number.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"
#include "opapi/aclnn/unsigned.h"
#include "opapi/elementwise/operands.h"

#define BINARY(NAME, DTYPES, ...) OP(NAME, check_binary(out, self, other, DTYPES), __VA_ARGS__)
// ... with a factor for the second
#define SUM(NAME, OUT, CHECK, ...) OP(NAME, CHECK; check_factor(alpha, OUT), __VA_ARGS__)
#define BINARY_SCALAR(NAME, DTYPES, ...) OP(NAME, check_with_number(out, self, other, DTYPES), __VA_ARGS__)
#define BINARY_INPLACE(NAME, DTYPES, ...) OP(NAME, check_binary(selfRef, selfRef, other, DTYPES), __VA_ARGS__)
#define BINARY_SCALAR_INPLACE(NAME, DTYPES, ...) \
    OP(NAME, check_with_number(selfRef, selfRef, other, DTYPES), __VA_ARGS__)

namespace vnpu::opapi {
namespace {

constexpr DTypes kNumbers = kReals | kComplex;  // what torch subtracts: no booleans
constexpr DTypes kShifted = kInts | kUnsigned;
constexpr DTypes kPower = kAll;
constexpr DTypes kLogarithms = kFloats | kIntsAndBool;

// torch subtracts no booleans: ~ and ^ are meant.
void check_no_truth(const ScalarArgument &number) {
    if (number.get().isBoolean())
        fail(FaultKind::InvalidArgument, "parameter {} is a boolean, which cannot be subtracted", number.parameter());
}

// out = self + alpha * other. With an alpha other than one, CANN's kernels compute narrow floats in fp32 (ops-math:
// aclnn_add.cpp, aclnn_sub.cpp, axpy_apt.cpp); ATen's round the product as well.
void sum(at::Tensor &out, const at::Tensor &self, const at::Tensor &other, const ScalarArgument &alpha,
         bool minus = false) {
    const auto compute = [&](at::Tensor &to, const at::Tensor &a, const at::Tensor &b, const at::Scalar &factor) {
        minus ? at::sub_out(to, a, b, factor) : at::add_out(to, a, b, factor);
    };
    if (!narrow(out) || alpha.get().equal(1)) return compute(out, self, other, fitted(alpha, out));
    rounded(out, [&](at::Tensor &to) { compute(to, widened(self), widened(other), computed(alpha, to)); });
}

// out = self - alpha * other. ATen subtracts no booleans; of two CANN gives the distance (ops-math: sub_dag.h).
void subtract(at::Tensor &out, const at::Tensor &self, const at::Tensor &other, const ScalarArgument &alpha) {
    const bool from_truth = self.scalar_type() == at::kBool, truth = other.scalar_type() == at::kBool;
    if (from_truth && truth)
        alpha.get().toBool() ? at::logical_xor_out(out, self, other) : out.copy_(self);
    else
        sum(out, from_truth ? self.to(other.scalar_type()) : self, truth ? other.to(self.scalar_type()) : other, alpha,
            true);
}

void sum_relu(at::Tensor &out, const at::Tensor &self, const at::Tensor &other, const ScalarArgument &alpha) {
    sum(out, self, other, alpha);
    out.clamp_min_(0);
}

// A number beside float16 is one (ops-math: aclnn_mul.cpp); beside bfloat16 it is a float32, as for ATen.
at::Tensor multiplier(const ScalarArgument &number, const at::Tensor &self) {
    if (self.scalar_type() != at::kHalf || number.get().isComplex()) return number.number();
    return at::native::wrapped_scalar_tensor(number.as(at::kHalf));
}

// In place also of integers, which the angles are cut to.
void angle(at::Tensor &out, const at::Tensor &y, const at::Tensor &x) {
    if (at::isIntegralType(out.scalar_type(), true))
        out.copy_(at::atan2(y, x));
    else
        at::atan2_out(out, y, x);
}

// What the second operand is multiplied by is no wider than the result.
void check_factor(const ScalarArgument &alpha, const Operand &out) {
    const at::Scalar &value = alpha.get();
    const bool fits = value.isBoolean()         ? out.scalar_type() == at::kBool
                      : value.isComplex()       ? out.is_complex()
                      : value.isFloatingPoint() ? out.is_floating_point() || out.is_complex()
                                                : true;
    if (!fits)
        fail(FaultKind::InvalidArgument, "parameter alpha is {}, which {} of {} cannot be multiplied by", show(alpha),
             describe(out), out.parameter());
}

void check_exponent(const Operand &base, const ScalarArgument &exponent) {
    if (!base.is_floating_point() && !base.is_complex() && exponent.get().isIntegral(true) &&
        exponent.get().toLong() < 0)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, negative, and {} holds integers", exponent.parameter(),
             exponent.get().toLong(), base.parameter());
}

// The exponent of whole numbers is cast to their dtype; where that makes it negative, ones keep their magnitude and all
// others are 0 (ops-math: aclnn_pow.cpp, pow_aicpu.cpp).
void power(at::Tensor &out, const at::Tensor &base, const ScalarArgument &exponent) {
    const bool whole = at::isIntegralType(base.scalar_type(), false) && exponent.get().isIntegral(true);
    const at::Scalar fitting = whole ? computed(exponent, base) : fitted(exponent, out);
    if (whole && fitting.toLong() < 0)
        at::pow_out(out, base, at::scalar_tensor(fitting, base.scalar_type()));
    else
        at::pow_out(out, base, fitting);
}

// Neither CANN (ops-math: aclnn_pow.cpp, aclnn_pow_tensor_tensor.cpp) nor ATen raises a truth value to another.
void check_no_truths(at::ScalarType self, at::ScalarType exponent) {
    if (self == at::kBool && exponent == at::kBool)
        fail(FaultKind::InvalidArgument,
             "Self and exponent dtype are bool is not supported: parameters self and exponent are");
}

void shift_left(at::Tensor &out, const at::Tensor &in, const at::Tensor &bits) {
    at::Tensor to = moved(out);
    at::bitwise_left_shift_out(to, moved(in), moved(bits));
}

// ATen repeats the sign, which an unsigned number does not have: the first place is shifted apart and the sign cleared.
void shift_right(at::Tensor &out, const at::Tensor &in, const at::Tensor &bits) {
    if (!kUnsigned.has(in.scalar_type())) {
        at::bitwise_right_shift_out(out, in, bits);
        return;
    }
    const at::Tensor from = moved(in), places = moved(bits);
    const int64_t largest = std::numeric_limits<int64_t>::max() >> (64 - 8 * in.element_size());
    const at::Tensor halved = from.bitwise_right_shift(1).bitwise_and_(largest);
    moved(out).copy_(at::where(places == 0, from, halved.bitwise_right_shift(places - 1)));
}

// ... of ATen's logarithms, which are of floats.
at::Tensor logarithmic(const at::Tensor &tensor) {
    return kUnsigned.has(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
}

void check_log_add(const Operand &out, const Operand &self, const Operand &other) {
    for (const Operand *in : {&self, &other}) dtype(*in, kLogarithms | kUnsigned);
    broadcasts(out, {&self, &other});
    dtype(out, kNative);
    for (const Operand *in : {&self, &other})
        if (!kUnsigned.has(in->scalar_type())) promotes(out, {in});
}

}  // namespace
}  // namespace vnpu::opapi

SUM(aclnnAdd, out, check_binary(out, self, other, kAll), sum(out, self, other, alpha))
SUM(aclnnAdds, out, check_with_number(out, self, other, kAll), sum(out, self, other.number(), alpha))
SUM(aclnnAddV3, out, check_with_number(out, other, self, kNative | at::kInt | at::kChar),
    sum(out, self.number(), other, alpha))
SUM(aclnnInplaceAdd, selfRef, check_binary(selfRef, selfRef, other, kAll), sum(selfRef, selfRef, other, alpha))
SUM(aclnnInplaceAdds, selfRef, check_with_number(selfRef, selfRef, other, kAll),
    sum(selfRef, selfRef, other.number(), alpha))
SUM(aclnnAddRelu, out, check_binary(out, self, other, kNative | kInts), sum_relu(out, self, other, alpha))
SUM(aclnnInplaceAddRelu, selfRef, check_binary(selfRef, selfRef, other, kNative | kInts),
    sum_relu(selfRef, selfRef, other, alpha))

SUM(aclnnSub, out, check_binary(out, self, other, kAll), subtract(out, self, other, alpha))
SUM(aclnnSubs, out, check_with_number(out, self, other, kAll), subtract(out, self, other.number(), alpha))
SUM(aclnnInplaceSub, selfRef, check_binary(selfRef, selfRef, other, kAll), subtract(selfRef, selfRef, other, alpha))
SUM(aclnnInplaceSubs, selfRef, check_with_number(selfRef, selfRef, other, kAll),
    subtract(selfRef, selfRef, other.number(), alpha))
SUM(aclnnRsub, out, check_binary(out, self, other, kNumbers), sum(out, other, self, alpha, true))
SUM(aclnnRsubs, out, check_with_number(out, self, other, kNumbers);
    check_no_truth(other), sum(out, other.number(), self, alpha, true))

BINARY(aclnnMul, kAll, at::mul_out(out, self, other))
BINARY_SCALAR(aclnnMuls, kAll, at::mul_out(out, self, multiplier(other, self)))
BINARY_INPLACE(aclnnInplaceMul, kAll, at::mul_out(selfRef, selfRef, other))
BINARY_SCALAR_INPLACE(aclnnInplaceMuls, kAll, at::mul_out(selfRef, selfRef, multiplier(other, selfRef)))

OP(aclnnPowTensorTensor, dtype(self, kAll); dtype(exponent, kAll);
   check_no_truths(self.scalar_type(), exponent.scalar_type()); broadcasts(out, {&self, &exponent});
   promotes(out, {&self, &exponent}), at::pow_out(out, self, exponent))
OP(aclnnPowTensorScalar, check_with_number(out, self, exponent, kAll);
   check_exponent(self, exponent), power(out, self, exponent))
OP(aclnnPowScalarTensor, check_with_number(out, exponent, self, kAll);
   check_no_truths(self.dtype(), exponent.scalar_type()), at::pow_out(out, self.get(), exponent))
OP(aclnnInplacePowTensorTensor, dtype(self, kAll); dtype(exponent, kAll);
   check_no_truths(self.scalar_type(), exponent.scalar_type()); broadcasts(self, {&self, &exponent});
   promotes(self, {&self, &exponent}), at::pow_out(self, self, exponent))
OP(aclnnInplacePowTensorScalar, check_with_number(self, self, exponent, kAll);
   check_exponent(self, exponent), power(self, self, exponent))

BINARY(aclnnMaximum, kReals | at::kBool, at::maximum_out(out, self, other))
BINARY(aclnnMinimum, kReals | at::kBool, at::minimum_out(out, self, other))
OP(aclnnAtan2, check_binary(out, self, other, kReals | at::kBool), angle(out, self, other))
OP(aclnnInplaceAtan2, check_binary(selfRef, selfRef, other, kReals | at::kBool), angle(selfRef, selfRef, other))
OP(aclnnLogAddExp, check_log_add(out, self, other), at::logaddexp_out(out, logarithmic(self), logarithmic(other)))
OP(aclnnLogAddExp2, check_log_add(out, self, other), at::logaddexp2_out(out, logarithmic(self), logarithmic(other)))
OP(aclnnXLogYTensor, check_binary(out, self, other, kLogarithms); check_to_float(out), at::xlogy_out(out, self, other))
OP(aclnnXLogYScalarOther, check_with_number(out, self, other, kLogarithms);
   check_to_float(out), at::xlogy_out(out, self, other.get()))
OP(aclnnXLogYScalarSelf, check_with_number(out, other, self, kLogarithms);
   check_to_float(out), at::xlogy_out(out, self.get(), other))
OP(aclnnInplaceXLogYScalarOther, check_with_number(selfRef, selfRef, other, kLogarithms);
   check_to_float(selfRef), at::xlogy_out(selfRef, selfRef, other.get()))
BINARY(aclnnGcd, kInts, at::gcd_out(out, self, other))

OP(aclnnLeftShift, check_binary(out, self, shiftBits, kShifted), shift_left(out, self, shiftBits))
OP(aclnnRightShift, check_binary(out, input, shiftBits, kShifted), shift_right(out, input, shiftBits))
OP(aclnnLeftShifts, check_with_number(out, self, shiftBits, kShifted), shift_left(out, self, shiftBits.number()))

OP(aclnnComplex, dtype(real, {at::kHalf, at::kFloat, at::kDouble}); same_dtype(imag, real);
   broadcasts(out, {&real, &imag});
   dtype(out, c10::toComplexType(real.scalar_type())), at::complex_out(out, real, imag))
OP(aclnnPolar, dtype(input, at::kFloat); same_dtype(angle, input); broadcasts(out, {&input, &angle});
   dtype(out, at::kComplexFloat), at::polar_out(out, input, angle))

// The gradients of two functions whose backward CANN has in one step.
OP(aclnnSigmoidBackward, dtype(gradOutput, kFloats | kComplex); dtype(output, kFloats | kComplex);
   broadcasts(gradInput, {&gradOutput, &output});
   promotes(gradInput, {&gradOutput, &output}), at::sigmoid_backward_out(gradInput, gradOutput, output))
OP(aclnnTanhBackward, dtype(gradOutput, kFloats); dtype(output, kFloats); broadcasts(gradInput, {&gradOutput, &output});
   promotes(gradInput, {&gradOutput, &output}), at::tanh_backward_out(gradInput, gradOutput, output))
