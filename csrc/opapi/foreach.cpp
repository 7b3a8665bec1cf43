// One operator over lists of tensors: what torch's foreach optimizers, gradient clipping and EMA call. The i-th output
// is made from the i-th input of each list. Dtypes are those that CANN's documentation of aclnnForeach* allows.
//
// torch_npu calls the V2 forms (the scalar in host memory); the older forms, whose scalar is a device tensor, are gaps
// that it never reaches.
#include <algorithm>

#include "device/fault.h"
#include "opapi/op.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kWithInt = kNative | at::kInt;
constexpr DTypes kSmallInts{at::kShort, at::kChar, at::kByte};
constexpr DTypes kCopied = kReals | at::kBool | at::kUInt16 | at::kUInt32;

// One dtype of `allowed` throughout the list, as CANN asks.
void uniform(const Operands &list, DTypes allowed) {
    for (const Operand &tensor : list) dtype(tensor, allowed);
    same_dtypes(list);
}

void same_shapes(const Operands &out, const Operands &in) {
    same_length(in, out);
    for (size_t i = 0; i < out.size(); ++i) same_shape(in[i], out[i]);
}

// Every list has `out`'s shapes and its one dtype.
template <class... Lists>
void alike(DTypes allowed, const Operands &out, const Lists &...lists) {
    uniform(out, allowed);
    (same_shapes(out, lists), ...);
    (uniform(lists, allowed), ...);
    const auto matches = [&](const Operands &list) {
        if (!out.empty()) same_dtype(list.front(), out.front());
    };
    (matches(lists), ...);
}

void as_many(const std::vector<at::Scalar> &scalars, const Operands &list) {
    if (scalars.size() != list.size())
        fail(FaultKind::InvalidArgument, "parameter scalars has {} values, expected {}, as many as {}", scalars.size(),
             list.size(), list.parameter());
}

// function(out[i], lists[i]...) for every i. ATen's out variants take the output first.
template <class Function, class... Lists>
void each(Function function, Operands &out, const Lists &...lists) {
    for (size_t i = 0; i < out.size(); ++i) function(out[i], lists[i]...);
}

// A scalar as a 0-dim tensor: ATen's binary out variants take tensors, and a 0-dim one does not change the dtype.
at::Tensor wrapped(const at::Scalar &scalar) {
    at::Tensor tensor =
        at::scalar_tensor(scalar, at::TensorOptions().dtype(scalar.isFloatingPoint() ? at::kDouble : at::kLong));
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return tensor;
}

std::vector<at::Tensor> wrapped(const std::vector<at::Scalar> &scalars) {
    std::vector<at::Tensor> tensors;
    for (const at::Scalar &scalar : scalars) tensors.push_back(wrapped(scalar));
    return tensors;
}

// CANN's roundMode; 7 is torch_npu's way to ask for the fraction. An unlisted one rounds to even.
enum RoundMode { kFloor = 2, kCeil = 3, kHalfAway = 4, kTruncate = 5, kNearestOdd = 6, kFraction = 7 };

void known_round_mode(const ScalarArgument &mode) {
    if (mode.to<int64_t>() == kNearestOdd)
        fail(FaultKind::InvalidArgument,
             "parameter roundMode is 6 (nearest odd), which the virtual NPU does not offer");
}

void round_off(at::Tensor &out, const at::Tensor &x, int64_t mode) {
    if (at::isIntegralType(x.scalar_type(), false)) {
        mode == kFraction ? out.zero_() : out.copy_(x);
    } else if (mode == kHalfAway) {
        out.copy_(at::copysign(at::floor(at::abs(x) + 0.5), x));
    } else {
        const auto function = mode == kFloor      ? at::floor_out
                              : mode == kCeil     ? at::ceil_out
                              : mode == kTruncate ? at::trunc_out
                              : mode == kFraction ? at::frac_out
                                                  : static_cast<decltype(&at::floor_out)>(at::round_out);
        function(out, x);
    }
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
