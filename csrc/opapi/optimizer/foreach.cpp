// One operator over lists of tensors: what torch's foreach optimizers, gradient clipping and EMA call. The i-th output
// is made from the i-th input of each list. Dtypes are those that CANN's documentation of aclnnForeach* allows.
//
// Most with a scalar come in two forms. The one that torch_npu calls takes it from host memory (V2), the older one from
// a tensor of the device, which is read when the kernel runs: the functions below that take either hide the difference.
#include <ATen/Dispatch.h>

#include <algorithm>
#include <limits>

#include "device/fault.h"
#include "opapi/aclnn/number.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"
#include "opapi/elementwise/weighed.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kWithInt = kNative | at::kInt;
constexpr DTypes kSmallInts{at::kShort, at::kChar, at::kByte};
constexpr DTypes kCopied = kReals | at::kBool | at::kUInt16 | at::kUInt32;

// One dtype of `allowed` throughout the list, as CANN asks.
void check_uniform(const Operands &list, DTypes allowed) {
    for (const Operand &tensor : list) dtype(tensor, allowed);
    same_dtypes(list);
}

void check_same_shapes(const Operands &out, const Operands &in) {
    same_length(in, out);
    for (size_t i = 0; i < out.size(); ++i) same_shape(in[i], out[i]);
}

// Every list has `out`'s shapes and its one dtype.
template <class... Lists>
void check_alike(DTypes allowed, const Operands &out, const Lists &...lists) {
    check_uniform(out, allowed);
    (check_same_shapes(out, lists), ...);
    (check_uniform(lists, allowed), ...);
    const auto matches = [&](const Operands &list) {
        if (!out.empty()) same_dtype(list.front(), out.front());
    };
    (matches(lists), ...);
}

// A scalar beside lists: no fraction among integers.
void check_beside(const at::Scalar &scalar, const char *parameter, const Operands &list) {
    const bool integers = !list.empty() && c10::isIntegralType(list.front().scalar_type(), true);
    if (scalar.isComplex() || (integers && scalar.isFloatingPoint()))
        fail(FaultKind::InvalidArgument, "parameter {} is {}, allowed beside {} of {} is {}", parameter,
             show(std::vector{scalar}), list.empty() ? "no tensors" : describe(list.front()), list.parameter(),
             integers ? "an integer" : "a real number");
}
void check_beside(const ScalarArgument &scalar, const Operands &list) {
    require(scalar);
    check_beside(scalar.get(), scalar.parameter(), list);
}
void check_beside(const std::vector<at::Scalar> &scalars, const Operands &list) {
    if (scalars.size() != list.size())
        fail(FaultKind::InvalidArgument, "parameter scalars has {} values, expected {}, as many as {}", scalars.size(),
             list.size(), list.parameter());
    for (const at::Scalar &scalar : scalars) check_beside(scalar, "scalars", list);
}
// CANN asks for the list's dtype, or float32 beside float16 and bfloat16.
void check_beside(const Operand &scalar, const Operands &list) {
    one_element(scalar);
    if (list.empty()) return;
    const DTypes own = list.front().scalar_type();
    dtype(scalar, list.front().is_floating_point() ? own | kNative | at::kInt : own | at::kInt);
}
void check_each_beside(const Operand &scalars, const Operands &list) {
    rank(scalars, {1});
    if (scalars.numel() != static_cast<int64_t>(list.size()))
        fail(FaultKind::InvalidArgument, "parameter {} has {} values, expected {}, as many as {}", scalars.parameter(),
             scalars.numel(), list.size(), list.parameter());
    dtype(scalars, kWithInt);
}

// ... by which tensors are multiplied: torch allows a boolean among booleans alone.
void check_weigh(const ScalarArgument &scalar, const Operands &list) {
    check_beside(scalar, list);
    if (scalar.get().isBoolean())
        fail(FaultKind::InvalidArgument, "parameter {} is {}, allowed is a number", scalar.parameter(), show(scalar));
}
void check_weigh(const Operand &scalar, const Operands &list) { check_beside(scalar, list); }

at::Scalar value(const ScalarArgument &scalar) { return scalar.get(); }
at::Scalar value(const at::Tensor &scalar) { return scalar.item(); }
// ... as kernels take it that compute on the list.
at::Scalar value(const ScalarArgument &scalar, const Operands &list) {
    return list.empty() ? scalar.get() : computed(scalar, list.front());
}
// ... as sums take it.
at::Scalar summed(const ScalarArgument &scalar, const Operands &list) {
    if (list.empty()) return scalar.get();
    return narrow(list.front()) ? scalar.as(at::kFloat) : fitted(scalar, list.front());
}
at::Scalar summed(const at::Tensor &scalar, const Operands &) { return scalar.item(); }
at::Scalar value(const at::Tensor &scalar, const Operands &) { return scalar.item(); }

// A scalar as a 0-dim tensor: ATen's binary out variants take tensors, and a 0-dim one does not change the dtype.
at::Tensor number(const at::Scalar &scalar) {
    at::Tensor tensor =
        at::scalar_tensor(scalar, at::TensorOptions().dtype(scalar.isFloatingPoint() ? at::kDouble : at::kLong));
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return tensor;
}
std::vector<at::Tensor> numbers(const std::vector<at::Scalar> &scalars) {
    std::vector<at::Tensor> tensors;
    for (const at::Scalar &scalar : scalars) tensors.push_back(number(scalar));
    return tensors;
}

std::vector<at::Scalar> values(const at::Tensor &scalars) {
    std::vector<at::Scalar> read;
    for (const at::Tensor &scalar : scalars.unbind()) read.push_back(scalar.item());
    return read;
}

// function(out[i], lists[i]...) for every i. ATen's out variants take the output first.
template <class Function, class... Lists>
void each(Function function, Operands &out, const Lists &...lists) {
    for (size_t i = 0; i < out.size(); ++i) function(out[i], lists[i]...);
}

// function(result, value) of integers: in float, for those of 8 bits in half, rounded and saturated as by the cores'
// cast (ops-nn: foreach_implict_output.h).
template <class Function>
void by_floats(at::Tensor &result, const at::Tensor &value, Function function) {
    if (!at::isIntegralType(value.scalar_type(), false)) {
        function(result, value);
        return;
    }
    at::Tensor wide = value.to(value.element_size() == 1 ? at::kHalf : at::kFloat);
    function(wide, wide);
    const auto [low, high] = AT_DISPATCH_INTEGRAL_TYPES(result.scalar_type(), "by_floats", [] {
        return std::pair<int64_t, int64_t>(std::numeric_limits<scalar_t>::min(), std::numeric_limits<scalar_t>::max());
    });
    result.copy_(wide.to(at::kDouble).round_().nan_to_num_(0).clamp_(low, high));
}

// Narrow floats are multiplied and added in fp32, and rounded once (ops-nn: foreach_add_list, foreach_sub_list).
void sum(at::Tensor &result, const at::Tensor &a, const at::Tensor &b, const at::Scalar &alpha, bool minus = false) {
    rounded(result, [&](at::Tensor &to) {
        minus ? at::sub_out(to, widened(a), widened(b), alpha) : at::add_out(to, widened(a), widened(b), alpha);
    });
}

// Integers to a negative power, at which ATen stops.
void power(at::Tensor &result, const at::Tensor &base, const at::Tensor &exponent) {
    const bool whole = at::isIntegralType(base.scalar_type(), false);
    if (whole && exponent.item().toLong() < 0)
        by_floats(result, base, [&](at::Tensor &to, const at::Tensor &from) { at::pow_out(to, from, exponent); });
    else
        at::pow_out(result, base, exponent);
}

// CANN's roundMode; 7 is torch_npu's way to ask for the fraction. An unlisted one rounds to even.
enum RoundMode { kFloor = 2, kCeil = 3, kHalfAway = 4, kTruncate = 5, kNearestOdd = 6, kFraction = 7 };

void check_known_round_mode(const ScalarArgument &mode) {
    if (mode.to<int64_t>() == kNearestOdd)
        fail(FaultKind::InvalidArgument,
             "parameter roundMode is 6 (nearest odd), which the virtual NPU does not offer");
}
void check_known_round_mode(const Operand &mode) {  // its value is known when the kernel runs
    one_element(mode);
    dtype(mode, at::kChar);
}

void round_off(Operands &out, const Operands &x, int64_t mode) {
    TORCH_CHECK(mode != kNearestOdd, "parameter roundMode is 6 (nearest odd), which the virtual NPU does not offer");
    const auto function = mode == kFloor      ? at::floor_out
                          : mode == kCeil     ? at::ceil_out
                          : mode == kTruncate ? at::trunc_out
                          : mode == kFraction ? at::frac_out
                                              : static_cast<decltype(&at::floor_out)>(at::round_out);
    for (size_t i = 0; i < out.size(); ++i) {
        if (at::isIntegralType(x[i].scalar_type(), false))
            mode == kFraction ? out[i].zero_() : out[i].copy_(x[i]);
        else if (mode == kHalfAway)
            out[i].copy_(at::copysign(at::floor(at::abs(x[i]) + 0.5), x[i]));
        else
            function(out[i], x[i]);
    }
}

}  // namespace
}  // namespace vnpu::opapi

#define FOREACH_UNARY(NAME, DTYPES, FUNCTION) \
    OP(NAME, check_alike(DTYPES, out, x),     \
       each([](at::Tensor &result, const at::Tensor &value) { FUNCTION(result, value); }, out, x))
#define FOREACH_BY_FLOATS(NAME, DTYPES, FUNCTION)                                                            \
    OP(NAME, check_alike(DTYPES, out, x),                                                                    \
       each(                                                                                                 \
           [](at::Tensor &result, const at::Tensor &value) {                                                 \
               by_floats(result, value, [](at::Tensor &to, const at::Tensor &from) { FUNCTION(to, from); }); \
           },                                                                                                \
           out, x))

FOREACH_UNARY(aclnnForeachAbs, kNative, at::abs_out)
FOREACH_UNARY(aclnnForeachAcos, kNative, at::acos_out)
FOREACH_UNARY(aclnnForeachAsin, kNative, at::asin_out)
FOREACH_UNARY(aclnnForeachAtan, kNative, at::atan_out)
FOREACH_UNARY(aclnnForeachCos, kNative, at::cos_out)
FOREACH_UNARY(aclnnForeachCosh, kNative, at::cosh_out)
FOREACH_UNARY(aclnnForeachErf, kNative, at::erf_out)
FOREACH_UNARY(aclnnForeachErfc, kNative, at::erfc_out)
FOREACH_BY_FLOATS(aclnnForeachExp, kNative | kSmallInts, at::exp_out)
FOREACH_BY_FLOATS(aclnnForeachExpm1, kNative | kSmallInts, at::expm1_out)
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

// Two lists; the kernel sees `result`, `a`, `b`.
#define FOREACH_LIST(NAME, DTYPES, ...)        \
    OP(NAME, check_alike(DTYPES, out, x1, x2), \
       each([&](at::Tensor &result, const at::Tensor &a, const at::Tensor &b) { __VA_ARGS__; }, out, x1, x2))

FOREACH_LIST(aclnnForeachMulList, kWithInt | kSmallInts, at::mul_out(result, a, b))
FOREACH_LIST(aclnnForeachDivList, kNative, at::div_out(result, a, b))
FOREACH_LIST(aclnnForeachMaximumList, kWithInt, at::maximum_out(result, a, b))
FOREACH_LIST(aclnnForeachMinimumList, kWithInt, at::minimum_out(result, a, b))
FOREACH_LIST(aclnnForeachPowList, kWithInt, at::pow_out(result, a, b))

// Two lists and a scalar: `result`, `a`, `b`, `s`.
#define FOREACH_WEIGHED(NAME, DTYPES, SCALAR, ...)                                                                    \
    OP(NAME, check_alike(DTYPES, out, x1, x2);                                                                        \
       check_weigh(SCALAR, out),                                                                                      \
       each([s = summed(SCALAR, out)](at::Tensor &result, const at::Tensor &a, const at::Tensor &b) { __VA_ARGS__; }, \
            out, x1, x2))

FOREACH_WEIGHED(aclnnForeachAddList, kWithInt, alpha, sum(result, a, b, s))
FOREACH_WEIGHED(aclnnForeachAddListV2, kWithInt | kSmallInts, alpha, sum(result, a, b, s))
FOREACH_WEIGHED(aclnnForeachSubList, kWithInt | kSmallInts, alpha, sum(result, a, b, s, true))
FOREACH_WEIGHED(aclnnForeachSubListV2, kWithInt | kSmallInts, alpha, sum(result, a, b, s, true))
FOREACH_WEIGHED(aclnnForeachLerpScalar, kNative, weight, at::lerp_out(result, a, b, s))

// One scalar for all tensors: `result`, `a`, `s`.
#define FOREACH_SCALAR(NAME, DTYPES, ...) \
    OP(NAME, check_alike(DTYPES, out, x); \
       check_beside(scalar, out),         \
       each([s = number(value(scalar))](at::Tensor &result, const at::Tensor &a) { __VA_ARGS__; }, out, x))

FOREACH_SCALAR(aclnnForeachAddScalar, kWithInt | kSmallInts, at::add_out(result, a, s))
FOREACH_SCALAR(aclnnForeachAddScalarV2, kWithInt | kSmallInts, at::add_out(result, a, s))
FOREACH_SCALAR(aclnnForeachSubScalar, kWithInt, at::sub_out(result, a, s))
FOREACH_SCALAR(aclnnForeachSubScalarV2, kWithInt, at::sub_out(result, a, s))
FOREACH_SCALAR(aclnnForeachMulScalar, kWithInt, at::mul_out(result, a, s))
FOREACH_SCALAR(aclnnForeachMulScalarV2, kWithInt, at::mul_out(result, a, s))
FOREACH_SCALAR(aclnnForeachDivScalar, kNative, at::div_out(result, a, s))
FOREACH_SCALAR(aclnnForeachDivScalarV2, kNative, at::div_out(result, a, s))
FOREACH_SCALAR(aclnnForeachMaximumScalar, kWithInt, at::maximum_out(result, a, s))
FOREACH_SCALAR(aclnnForeachMaximumScalarV2, kWithInt, at::maximum_out(result, a, s))
FOREACH_SCALAR(aclnnForeachMinimumScalar, kWithInt, at::minimum_out(result, a, s))
FOREACH_SCALAR(aclnnForeachMinimumScalarV2, kWithInt, at::minimum_out(result, a, s))
FOREACH_SCALAR(aclnnForeachPowScalar, kWithInt, power(result, a, s))
FOREACH_SCALAR(aclnnForeachPowScalarV2, kWithInt, power(result, a, s))
FOREACH_SCALAR(aclnnForeachPowScalarAndTensor, kWithInt, at::pow_out(result, s, a))

// A scalar for each tensor: `result`, `a`, `s`.
#define FOREACH_SCALAR_LIST(NAME, DTYPES, ...)                                                                         \
    OP(NAME, check_alike(DTYPES, out, x); check_beside(scalars, out), each([](at::Tensor &result, const at::Tensor &a, \
                                                                              const at::Tensor &s) { __VA_ARGS__; },   \
                                                                           out, x, numbers(scalars)))

FOREACH_SCALAR_LIST(aclnnForeachAddScalarList, kWithInt, at::add_out(result, a, s))
FOREACH_SCALAR_LIST(aclnnForeachSubScalarList, kWithInt, at::sub_out(result, a, s))
FOREACH_SCALAR_LIST(aclnnForeachMulScalarList, kWithInt, at::mul_out(result, a, s))
FOREACH_SCALAR_LIST(aclnnForeachDivScalarList, kNative, at::div_out(result, a, s))
FOREACH_SCALAR_LIST(aclnnForeachMaximumScalarList, kWithInt, at::maximum_out(result, a, s))
FOREACH_SCALAR_LIST(aclnnForeachMinimumScalarList, kWithInt, at::minimum_out(result, a, s))
FOREACH_SCALAR_LIST(aclnnForeachPowScalarList, kWithInt, at::pow_out(result, a, s))

// Three lists and a scalar: `result`, `a`, `b`, `c`, `s`.
#define FOREACH_THREE(NAME, DTYPES, FUNCTION)                                                      \
    OP(NAME, check_alike(DTYPES, out, x1, x2, x3);                                                 \
       check_beside(scalar, out),                                                                  \
       each([s = value(scalar, out)](at::Tensor &result, const at::Tensor &a, const at::Tensor &b, \
                                     const at::Tensor &c) { FUNCTION(result, a, b, c, s); },       \
            out, x1, x2, x3))
#define FOREACH_THREE_LIST(NAME, DTYPES, FUNCTION)                                                \
    OP(NAME, check_alike(DTYPES, out, x1, x2, x3);                                                \
       check_each_beside(scalars, out),                                                           \
       each([](at::Tensor &result, const at::Tensor &a, const at::Tensor &b, const at::Tensor &c, \
               const at::Scalar &s) { FUNCTION(result, a, b, c, s); },                            \
            out, x1, x2, x3, values(scalars)))

FOREACH_THREE(aclnnForeachAddcmulScalar, kWithInt, at::addcmul_out)
FOREACH_THREE(aclnnForeachAddcmulScalarV2, kWithInt, at::addcmul_out)
FOREACH_THREE(aclnnForeachAddcdivScalar, kNative, at::addcdiv_out)
FOREACH_THREE(aclnnForeachAddcdivScalarV2, kNative, at::addcdiv_out)
FOREACH_THREE_LIST(aclnnForeachAddcmulScalarList, kWithInt, at::addcmul_out)
FOREACH_THREE_LIST(aclnnForeachAddcdivScalarList, kNative, quotient_added)

OP(aclnnForeachLerpList, check_alike(kNative, out, x1, x2, weight),
   each([](at::Tensor &result, const at::Tensor &a, const at::Tensor &b,
           const at::Tensor &c) { at::lerp_out(result, a, b, c); },
        out, x1, x2, weight))

OP(aclnnForeachRoundOffNumber, check_alike(kNative | at::kShort, out, x);
   check_known_round_mode(roundMode), round_off(out, x, value(roundMode).toLong()))
OP(aclnnForeachRoundOffNumberV2, check_alike(kWithInt | at::kShort, out, x);
   check_known_round_mode(roundMode), round_off(out, x, value(roundMode).toLong()))

// Converts where the lists' dtypes differ (CANN 9.1).
OP(aclnnForeachCopy, check_uniform(out, kCopied); check_uniform(x, kCopied);
   check_same_shapes(out, x), each([](at::Tensor &result, const at::Tensor &a) { result.copy_(a); }, out, x))

OP(aclnnForeachNorm, check_uniform(x, kNative); check_uniform(out, kNative); same_length(out, x);
   for (const Operand &norm : out) shape(norm, {}),
   each([&](at::Tensor &result, const at::Tensor &a) { at::linalg_vector_norm_out(result, a, scalar); }, out, x))

OP(aclnnForeachZeroInplace, check_uniform(x, kWithInt | at::kShort), for (Operand &tensor : x) tensor.zero_())
