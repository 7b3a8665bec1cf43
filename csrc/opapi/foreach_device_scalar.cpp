// The older forms of the foreach operators, whose scalar is a tensor in device memory: read when the kernel runs.
#include "opapi/foreach.h"

namespace vnpu::opapi {
namespace {

using namespace foreach;

// A scalar's dtype: CANN asks for x's, or float32 beside float16 and bfloat16.
void scalar_of(const Operand &scalar, const Operands &list) {
    one_element(scalar);
    if (!list.empty()) dtype(scalar, DTypes(list.front().scalar_type()) | kNative | at::kInt);
}

void scalars_of(const Operand &scalars, const Operands &list) {
    rank(scalars, {1});
    if (scalars.numel() != static_cast<int64_t>(list.size()))
        fail(FaultKind::InvalidArgument, "parameter {} has {} values, expected {}, as many as {}", scalars.parameter(),
             scalars.numel(), list.size(), list.parameter());
    dtype(scalars, kNative | at::kInt);
}

// A value of device memory as the 0-dim operand that a number is: it does not change the dtype.
at::Tensor number(const at::Tensor &scalar) { return wrapped(scalar.item()); }

std::vector<at::Tensor> numbers(const at::Tensor &scalars) {
    std::vector<at::Tensor> tensors;
    for (const at::Tensor &scalar : scalars.unbind()) tensors.push_back(number(scalar));
    return tensors;
}

}  // namespace
}  // namespace vnpu::opapi

// The kernel sees `result`, `a`, `s`.
#define FOREACH_NUMBER(NAME, DTYPES, ...) \
    OP(NAME, alike(DTYPES, out, x);       \
       scalar_of(scalar, out),            \
       each([s = number(scalar)](at::Tensor &result, const at::Tensor &a) { __VA_ARGS__; }, out, x))

FOREACH_NUMBER(aclnnForeachAddScalar, kWithInt, at::add_out(result, a, s))
FOREACH_NUMBER(aclnnForeachSubScalar, kWithInt, at::sub_out(result, a, s))
FOREACH_NUMBER(aclnnForeachMulScalar, kWithInt, at::mul_out(result, a, s))
FOREACH_NUMBER(aclnnForeachDivScalar, kNative, at::div_out(result, a, s))
FOREACH_NUMBER(aclnnForeachMaximumScalar, kWithInt, at::maximum_out(result, a, s))
FOREACH_NUMBER(aclnnForeachMinimumScalar, kWithInt, at::minimum_out(result, a, s))
FOREACH_NUMBER(aclnnForeachPowScalar, kWithInt, at::pow_out(result, a, s))

// The kernel sees `result`, `a`, `b` and the factor `s` of b.
#define FOREACH_SCALED(NAME, ...)                                                                                   \
    OP(NAME, alike(kWithInt, out, x1, x2);                                                                          \
       scalar_of(alpha, out),                                                                                       \
       each([s = alpha.item()](at::Tensor &result, const at::Tensor &a, const at::Tensor &b) { __VA_ARGS__; }, out, \
            x1, x2))

FOREACH_SCALED(aclnnForeachAddList, at::add_out(result, a, b, s))
FOREACH_SCALED(aclnnForeachSubList, at::sub_out(result, a, b, s))

// The kernel sees `result`, `a`, `b`, `c` and the factor `s` of the quotient or product.
#define FOREACH_THREE(NAME, DTYPES, ...)                                                                              \
    OP(NAME, alike(DTYPES, out, x1, x2, x3);                                                                          \
       scalar_of(scalar, out), each([s = scalar.item()](at::Tensor &result, const at::Tensor &a, const at::Tensor &b, \
                                                        const at::Tensor &c) { __VA_ARGS__; },                        \
                                    out, x1, x2, x3))
#define FOREACH_THREE_LIST(NAME, DTYPES, ...)                                                         \
    OP(NAME, alike(DTYPES, out, x1, x2, x3);                                                          \
       scalars_of(scalars, out), each(                                                                \
                                     [](at::Tensor &result, const at::Tensor &a, const at::Tensor &b, \
                                        const at::Tensor &c, const at::Tensor &each_scalar) {         \
                                         const at::Scalar s = each_scalar.item();                     \
                                         __VA_ARGS__;                                                 \
                                     },                                                               \
                                     out, x1, x2, x3, numbers(scalars)))

FOREACH_THREE(aclnnForeachAddcmulScalar, kWithInt, at::addcmul_out(result, a, b, c, s))
FOREACH_THREE(aclnnForeachAddcdivScalar, kNative, at::addcdiv_out(result, a, b, c, s))
FOREACH_THREE_LIST(aclnnForeachAddcmulScalarList, kWithInt, at::addcmul_out(result, a, b, c, s))
FOREACH_THREE_LIST(aclnnForeachAddcdivScalarList, kNative, at::addcdiv_out(result, a, b, c, s))

OP(aclnnForeachRoundOffNumber, alike(kNative, out, x); one_element(roundMode);
   dtype(roundMode, {at::kChar}), const int64_t mode = roundMode.item().toLong();
   TORCH_CHECK(mode != kNearestOdd, "parameter roundMode is 6 (nearest odd), which the virtual NPU does not offer");
   each([&](at::Tensor &result, const at::Tensor &a) { round_off(result, a, mode); }, out, x))
