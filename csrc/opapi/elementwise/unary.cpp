// One value in, one value out. The dtypes are those that CANN documents for the Ascend 910B.
#include "opapi/aclnn/op.h"

// The result has the operand's dtype, or one it can be cast to.
#define UNARY(NAME, IN, DTYPES, FUNCTION) \
    OP(NAME, check_same(IN, out, DTYPES), kept(out, IN, [&](at::Tensor &result) { FUNCTION(result, IN); }))
// Integers give a float32.
#define UNARY_FLOAT(NAME, IN, DTYPES, FUNCTION) OP(NAME, check_to_float(IN, out, DTYPES), FUNCTION(out, IN))
#define UNARY_INPLACE(NAME, REF, DTYPES, FUNCTION) OP(NAME, dtype(REF, DTYPES), FUNCTION(REF, REF))

namespace vnpu::opapi {
namespace {

void check_same(const Operand &in, const Operand &out, DTypes dtypes) {
    dtype(in, dtypes);
    same_shape(out, in);
    promotes(out, {&in});
}

// Integers, which ATen does not round to tens or hundreds. The cores round int32 to the nearest, to the even one
// between two (ops-math: round_dag.h); the AI CPU, which has int64, divides and multiplies as integers do, towards 0
// (ops-math: round_aicpu.cpp).
void round_integers(at::Tensor &out, const at::Tensor &self, int64_t decimals) {
    if (decimals >= 0) return void(out.copy_(self));
    const bool wide = self.scalar_type() == at::kLong;
    if (decimals < (wide ? -18 : -9)) return void(out.zero_());
    int64_t step = 1;
    for (int64_t i = decimals; i < 0; ++i) step *= 10;
    if (wide) return void(out.copy_(self.div(step, "trunc").mul_(step)));
    out.copy_(self.to(at::kDouble).div_(step).round_().mul_(step).clamp_(INT32_MIN, INT32_MAX));
}

void round_at(at::Tensor &out, const at::Tensor &self, int64_t decimals) {
    if (!self.is_floating_point()) return round_integers(out, self, decimals);
    at::round_out(out, self, decimals);
}

void check_to_float(const Operand &in, const Operand &out, DTypes dtypes) {
    check_same(in, out, dtypes);
    dtype(out, kFloats | kComplex);
}

void check_to_bool(const Operand &in, const Operand &out, DTypes dtypes) {
    dtype(in, dtypes);
    same_shape(out, in);
    dtype(out, at::kBool);
}

void check_to_real(const Operand &self, const Operand &out) {
    dtype(self, kAll);
    same_shape(out, self);
    if (!self.is_complex()) return promotes(out, {&self});
    dtype(out, {c10::toRealValueType(self.scalar_type())});
}

void check_to_angle(const Operand &x, const Operand &out) {
    dtype(x, kNative | kIntsAndBool | at::kComplexFloat);
    same_shape(out, x);
    dtype(out, {x.is_complex() || !x.is_floating_point() ? at::kFloat : x.scalar_type()});
}

// compute(result) keeps the operand's dtype, and ATen's kernels that do write no other.
template <class Compute>
void kept(at::Tensor &out, const at::Tensor &in, Compute compute) {
    if (out.scalar_type() == in.scalar_type()) return compute(out);
    at::Tensor result = at::empty_like(in);
    compute(result);
    out.copy_(result);
}

at::Tensor &absolute(at::Tensor &out, const at::Tensor &self) {
    if (self.is_complex()) return at::abs_out(out, self);
    if (self.scalar_type() == at::kBool) return out.copy_(self);  // ATen has none
    kept(out, self, [&](at::Tensor &result) { at::abs_out(result, self); });
    return out;
}

at::Tensor &fraction(at::Tensor &out, const at::Tensor &in) {
    return in.is_floating_point() ? at::frac_out(out, in) : out.zero_();  // ATen has no integers here
}

// Every integer is finite. Else one temporary, where ATen's composition of |self| != inf and self == self has three.
at::Tensor &finite(at::Tensor &out, const at::Tensor &self) {
    return self.is_floating_point() ? at::eq_out(out, self - self, 0) : out.fill_(true);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnAbs, check_to_real(self, out), absolute(out, self))
OP(aclnnAngleV2, check_to_angle(x, out), at::angle_out(out, x))
OP(aclnnSign, check_same(self, result, kFloats | kComplex | at::kInt | at::kLong | at::kBool),
   kept(result, self, [&](at::Tensor &to) { at::sgn_out(to, self); }))
OP(aclnnSignbit, dtype(self, kReals | kUnsigned | at::kBool); same_shape(out, self), out.copy_(at::signbit(self)))
// CANN's documentation of the three lists the integers and bool for every chip, its code fills in the answer.
OP(aclnnIsPosInf, check_to_bool(self, out, kReals | at::kBool), at::isposinf_out(out, self))
OP(aclnnIsNegInf, check_to_bool(self, out, kReals | at::kBool), at::isneginf_out(out, self))
OP(aclnnIsFinite, check_to_bool(self, out, kReals | at::kBool), finite(out, self))

UNARY(aclnnNeg, self, kFloats | kComplex | at::kChar | at::kInt | at::kLong, at::neg_out)
UNARY(aclnnBitwiseNot, self, kIntsAndBool, at::bitwise_not_out)
UNARY(aclnnCeil, self, kFloats, at::ceil_out)
UNARY(aclnnFloor, self, kReals | kUnsigned, at::floor_out)
UNARY(aclnnRound, self, kFloats | at::kInt | at::kLong, at::round_out)
UNARY(aclnnTrunc, self, kNative, at::trunc_out)
UNARY(aclnnFrac, input, kNative | kInts, fraction)
UNARY_FLOAT(aclnnSigmoid, self, kAll, at::sigmoid_out)

UNARY_FLOAT(aclnnAcos, input, kReals | at::kBool, at::acos_out)
UNARY_FLOAT(aclnnAcosh, self, kReals | kComplex | at::kBool, at::acosh_out)
UNARY_FLOAT(aclnnAsin, self, kReals | at::kBool, at::asin_out)
UNARY_FLOAT(aclnnAsinh, input, kReals | kComplex | at::kBool, at::asinh_out)
UNARY_FLOAT(aclnnAtan, input, kReals | at::kBool, at::atan_out)
UNARY_FLOAT(aclnnAtanh, input, kReals | kComplex | at::kBool, at::atanh_out)
UNARY_FLOAT(aclnnCos, input, kAll, at::cos_out)
UNARY_FLOAT(aclnnCosh, self, kAll, at::cosh_out)
UNARY_FLOAT(aclnnErf, self, kFloats | at::kBool | at::kLong, at::erf_out)
UNARY_FLOAT(aclnnErfc, self, kFloats | at::kBool | at::kLong, at::erfc_out)
UNARY_FLOAT(aclnnErfinv, self, kNative | kIntsAndBool, at::erfinv_out)
UNARY_FLOAT(aclnnExp, self, kFloats | kComplex | at::kBool | at::kLong, at::exp_out)
UNARY_FLOAT(aclnnExp2, self, kReals | at::kBool, at::exp2_out)
UNARY_FLOAT(aclnnExpm1, self, kNative | at::kBool | at::kLong, at::expm1_out)
UNARY_FLOAT(aclnnLog, self, kAll, at::log_out)
UNARY_FLOAT(aclnnLog10, self, kAll, at::log10_out)
UNARY_FLOAT(aclnnLog1p, self, kReals | at::kBool, at::log1p_out)
UNARY_FLOAT(aclnnLog2, self, kAll, at::log2_out)
UNARY_FLOAT(aclnnReciprocal, self, kAll, at::reciprocal_out)
UNARY_FLOAT(aclnnRsqrt, self, kAll, at::rsqrt_out)
UNARY_FLOAT(aclnnSin, self, kAll, at::sin_out)
UNARY_FLOAT(aclnnSinc, self, kReals | at::kBool, at::sinc_out)
UNARY_FLOAT(aclnnSinh, self, kAll, at::sinh_out)
UNARY_FLOAT(aclnnSqrt, self, kAll, at::sqrt_out)
UNARY_FLOAT(aclnnTan, self, kAll, at::tan_out)
UNARY_FLOAT(aclnnTanh, self, kNative | kIntsAndBool, at::tanh_out)

UNARY_INPLACE(aclnnInplaceAcos, inputRef, kFloats, at::acos_out)
UNARY_INPLACE(aclnnInplaceAcosh, selfRef, kFloats | kComplex, at::acosh_out)
UNARY_INPLACE(aclnnInplaceAsin, selfRef, kFloats, at::asin_out)
UNARY_INPLACE(aclnnInplaceAsinh, inputRef, kFloats | kComplex, at::asinh_out)
UNARY_INPLACE(aclnnInplaceAtan, inputRef, kFloats, at::atan_out)
UNARY_INPLACE(aclnnInplaceAtanh, inputRef, kFloats | kComplex, at::atanh_out)
UNARY_INPLACE(aclnnInplaceCeil, selfRef, kFloats, at::ceil_out)
UNARY_INPLACE(aclnnInplaceCos, inputRef, kFloats | kComplex, at::cos_out)
UNARY_INPLACE(aclnnInplaceCosh, selfRef, kFloats | kComplex, at::cosh_out)
UNARY_INPLACE(aclnnInplaceErf, selfRef, kFloats, at::erf_out)
UNARY_INPLACE(aclnnInplaceErfc, selfRef, kFloats, at::erfc_out)
UNARY_INPLACE(aclnnInplaceErfinv, selfRef, kNative, at::erfinv_out)
UNARY_INPLACE(aclnnInplaceExp, selfRef, kFloats | kComplex, at::exp_out)
UNARY_INPLACE(aclnnInplaceExp2, selfRef, kFloats, at::exp2_out)
UNARY_INPLACE(aclnnInplaceExpm1, selfRef, kNative, at::expm1_out)
UNARY_INPLACE(aclnnInplaceFloor, selfRef, kReals | kUnsigned, at::floor_out)
UNARY_INPLACE(aclnnInplaceFrac, inputRef, kNative | kInts, fraction)
UNARY_INPLACE(aclnnInplaceLog, selfRef, kFloats | kComplex, at::log_out)
UNARY_INPLACE(aclnnInplaceLog10, selfRef, kFloats | kComplex, at::log10_out)
UNARY_INPLACE(aclnnInplaceLog1p, selfRef, kFloats, at::log1p_out)
UNARY_INPLACE(aclnnInplaceLog2, selfRef, kFloats | kComplex, at::log2_out)
UNARY_INPLACE(aclnnInplaceReciprocal, selfRef, kFloats | kComplex, at::reciprocal_out)
UNARY_INPLACE(aclnnInplaceRsqrt, selfRef, kFloats | kComplex, at::rsqrt_out)
UNARY_INPLACE(aclnnInplaceSigmoid, selfRef, kFloats | kComplex, at::sigmoid_out)
UNARY_INPLACE(aclnnInplaceSin, selfRef, kFloats | kComplex, at::sin_out)
UNARY_INPLACE(aclnnInplaceSinc, selfRef, kFloats, at::sinc_out)
UNARY_INPLACE(aclnnInplaceSinh, selfRef, kFloats | kComplex, at::sinh_out)
UNARY_INPLACE(aclnnInplaceSqrt, self, kFloats | kComplex, at::sqrt_out)
UNARY_INPLACE(aclnnInplaceTan, selfRef, kFloats | kComplex, at::tan_out)
UNARY_INPLACE(aclnnInplaceTanh, selfRef, kNative, at::tanh_out)

OP(aclnnRoundDecimals, check_same(self, out, kFloats | at::kInt | at::kLong),
   kept(out, self, [&](at::Tensor &result) { round_at(result, self, decimals); }))
OP(aclnnInplaceRoundDecimals, dtype(selfRef, kFloats | at::kInt | at::kLong), round_at(selfRef, selfRef, decimals))
OP(aclnnNanToNum, check_same(self, out, kNative | kIntsAndBool),
   kept(out, self, [&](at::Tensor &result) { at::nan_to_num_out(result, self, nan, posinf, neginf); }))
OP(aclnnInplaceNanToNum, dtype(selfRef, kNative | kIntsAndBool),
   at::nan_to_num_out(selfRef, selfRef, nan, posinf, neginf))
// CANN: a negative eps means none.
OP(aclnnLogit, check_same(input, out, kNative), kept(out, input, [&](at::Tensor &result) {
       at::logit_out(result, input, eps < 0 ? std::nullopt : std::optional<double>(eps));
   }))
