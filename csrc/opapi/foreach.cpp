// One operator over lists of tensors: what torch's foreach optimizers, gradient clipping and EMA call. The i-th output
// is made from the i-th input of each list. Dtypes are those that CANN's documentation of aclnnForeach* allows.
//
// torch_npu calls the V2 forms, whose scalar is in host memory; foreach_device_scalar.cpp has the older ones.
#include "opapi/foreach.h"

namespace vnpu::opapi {
namespace {

using namespace foreach;

void known_round_mode(const ScalarArgument &mode) {
    if (mode.to<int64_t>() == kNearestOdd)
        fail(FaultKind::InvalidArgument,
             "parameter roundMode is 6 (nearest odd), which the virtual NPU does not offer");
}

}  // namespace
}  // namespace vnpu::opapi

#define FOREACH_UNARY(NAME, DTYPES, FUNCTION) \
    OP(NAME, alike(DTYPES, out, x),           \
       each([](at::Tensor &result, const at::Tensor &value) { FUNCTION(result, value); }, out, x))

FOREACH_UNARY(aclnnForeachAbs, kNative, at::abs_out)
FOREACH_UNARY(aclnnForeachAcos, kNative, at::acos_out)
FOREACH_UNARY(aclnnForeachAsin, kNative, at::asin_out)
FOREACH_UNARY(aclnnForeachAtan, kNative, at::atan_out)
FOREACH_UNARY(aclnnForeachCos, kNative, at::cos_out)
FOREACH_UNARY(aclnnForeachCosh, kNative, at::cosh_out)
FOREACH_UNARY(aclnnForeachErf, kNative, at::erf_out)
FOREACH_UNARY(aclnnForeachErfc, kNative, at::erfc_out)
FOREACH_UNARY(aclnnForeachExp, kNative, at::exp_out)
FOREACH_UNARY(aclnnForeachExpm1, kNative, at::expm1_out)
FOREACH_UNARY(aclnnForeachLog, kNative, at::log_out)
FOREACH_UNARY(aclnnForeachLog10, kNative, at::log10_out)
FOREACH_UNARY(aclnnForeachLog1p, kNative, at::log1p_out)
FOREACH_UNARY(aclnnForeachLog2, kNative, at::log2_out)
FOREACH_UNARY(aclnnForeachNeg, kWithInt | kSmallInts, at::neg_out)
FOREACH_UNARY(aclnnForeachReciprocal, kNative, at::reciprocal_out)
FOREACH_UNARY(aclnnForeachSigmoid, kNative, at::sigmoid_out)
FOREACH_UNARY(aclnnForeachSign, kWithInt | at::kLong | at::kChar, at::sign_out)
FOREACH_UNARY(aclnnForeachSin, kNative, at::sin_out)
FOREACH_UNARY(aclnnForeachSinh, kNative, at::sinh_out)
FOREACH_UNARY(aclnnForeachSqrt, kNative, at::sqrt_out)
FOREACH_UNARY(aclnnForeachTan, kNative, at::tan_out)
FOREACH_UNARY(aclnnForeachTanh, kNative, at::tanh_out)

// The lists of two operands; the kernel sees `result`, `a`, `b`.
#define FOREACH_LIST(NAME, DTYPES, ...)  \
    OP(NAME, alike(DTYPES, out, x1, x2), \
       each([&](at::Tensor &result, const at::Tensor &a, const at::Tensor &b) { __VA_ARGS__; }, out, x1, x2))

FOREACH_LIST(aclnnForeachAddListV2, kWithInt | kSmallInts, at::add_out(result, a, b, alpha))
FOREACH_LIST(aclnnForeachSubListV2, kWithInt | kSmallInts, at::sub_out(result, a, b, alpha))
FOREACH_LIST(aclnnForeachMulList, kWithInt | kSmallInts, at::mul_out(result, a, b))
FOREACH_LIST(aclnnForeachDivList, kNative, at::div_out(result, a, b))
FOREACH_LIST(aclnnForeachMaximumList, kWithInt, at::maximum_out(result, a, b))
FOREACH_LIST(aclnnForeachMinimumList, kWithInt, at::minimum_out(result, a, b))
FOREACH_LIST(aclnnForeachPowList, kWithInt, at::pow_out(result, a, b))
FOREACH_LIST(aclnnForeachLerpScalar, kNative, at::lerp_out(result, a, b, weight.get()))

// One scalar for all tensors; the kernel sees `result`, `a`, `s`.
#define FOREACH_SCALAR(NAME, DTYPES, ...) \
    OP(NAME, alike(DTYPES, out, x),       \
       each([s = wrapped(scalar)](at::Tensor &result, const at::Tensor &a) { __VA_ARGS__; }, out, x))

FOREACH_SCALAR(aclnnForeachAddScalarV2, kWithInt | kSmallInts, at::add_out(result, a, s))
FOREACH_SCALAR(aclnnForeachSubScalarV2, kWithInt, at::sub_out(result, a, s))
FOREACH_SCALAR(aclnnForeachMulScalarV2, kWithInt, at::mul_out(result, a, s))
FOREACH_SCALAR(aclnnForeachDivScalarV2, kNative, at::div_out(result, a, s))
FOREACH_SCALAR(aclnnForeachMaximumScalarV2, kWithInt, at::maximum_out(result, a, s))
FOREACH_SCALAR(aclnnForeachMinimumScalarV2, kWithInt, at::minimum_out(result, a, s))
FOREACH_SCALAR(aclnnForeachPowScalarV2, kNative, at::pow_out(result, a, s))
FOREACH_SCALAR(aclnnForeachPowScalarAndTensor, kWithInt, at::pow_out(result, s, a))

// A scalar for each tensor; the kernel sees `result`, `a`, `s`.
#define FOREACH_SCALAR_LIST(NAME, DTYPES, ...)                                                                        \
    OP(NAME, as_many(scalars, out);                                                                                   \
       alike(DTYPES, out, x), each([](at::Tensor &result, const at::Tensor &a, const at::Tensor &s) { __VA_ARGS__; }, \
                                   out, x, wrapped(scalars)))

FOREACH_SCALAR_LIST(aclnnForeachAddScalarList, kWithInt, at::add_out(result, a, s))
FOREACH_SCALAR_LIST(aclnnForeachSubScalarList, kWithInt, at::sub_out(result, a, s))
FOREACH_SCALAR_LIST(aclnnForeachMulScalarList, kWithInt, at::mul_out(result, a, s))
FOREACH_SCALAR_LIST(aclnnForeachDivScalarList, kNative, at::div_out(result, a, s))
FOREACH_SCALAR_LIST(aclnnForeachMaximumScalarList, kWithInt, at::maximum_out(result, a, s))
FOREACH_SCALAR_LIST(aclnnForeachMinimumScalarList, kWithInt, at::minimum_out(result, a, s))
FOREACH_SCALAR_LIST(aclnnForeachPowScalarList, kWithInt, at::pow_out(result, a, s))

// Three lists; the kernel sees `result`, `a`, `b`, `c`.
#define FOREACH_TERNARY(NAME, DTYPES, THIRD, ...)                                                                    \
    OP(NAME, alike(DTYPES, out, x1, x2, THIRD),                                                                      \
       each([&](at::Tensor &result, const at::Tensor &a, const at::Tensor &b, const at::Tensor &c) { __VA_ARGS__; }, \
            out, x1, x2, THIRD))

FOREACH_TERNARY(aclnnForeachAddcmulScalarV2, kWithInt, x3, at::addcmul_out(result, a, b, c, scalar))
FOREACH_TERNARY(aclnnForeachAddcdivScalarV2, kNative, x3, at::addcdiv_out(result, a, b, c, scalar))
FOREACH_TERNARY(aclnnForeachLerpList, kNative, weight, at::lerp_out(result, a, b, c))

OP(aclnnForeachRoundOffNumberV2, alike(kNative | at::kShort, out, x);
   known_round_mode(roundMode),
   each([&](at::Tensor &result, const at::Tensor &a) { round_off(result, a, roundMode.to<int64_t>()); }, out, x))

// Converts where the lists' dtypes differ (CANN 9.1).
OP(aclnnForeachCopy, uniform(out, kCopied); uniform(x, kCopied);
   same_shapes(out, x), each([](at::Tensor &result, const at::Tensor &a) { result.copy_(a); }, out, x))

OP(aclnnForeachNorm, uniform(x, kNative); uniform(out, kNative); same_length(out, x);
   for (const Operand &norm : out) shape(norm, {}),
   each([&](at::Tensor &result, const at::Tensor &a) { at::linalg_vector_norm_out(result, a, scalar); }, out, x))

OP(aclnnForeachZeroInplace, uniform(x, kWithInt | at::kShort), for (Operand &tensor : x) tensor.zero_())
