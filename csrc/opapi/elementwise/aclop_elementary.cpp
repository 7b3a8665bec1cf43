// Elementary functions of the old API that MindSpore calls by their type, with their gradients: in fp32 and rounded
// once. Prefixed with Cust: kernels that MindSpore brings for the chip's CPU.
#include <ATen/ExpandUtils.h>

#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kNumbers = kFloats | kComplex;

void check_floats(LegacyArguments &call, size_t inputs, DTypes dtypes = kNumbers) {
    allowed(call.in[0], dtypes, "x");
    for (size_t i = 1; i < inputs; ++i) alike(call.in[i], call.in[0], "an input");
    alike(call.out[0], call.in[0], "the output");
}

// Two that broadcast to the output.
void check_pair(LegacyArguments &call, DTypes dtypes) {
    for (size_t i = 0; i < 2; ++i) {
        allowed(call.in[i], dtypes, "an input");
        if (call.in[i].scalar_type() != call.in[0].scalar_type() ||
            !at::is_expandable_to(call.in[i].sizes(), call.out[0].sizes()))
            fail(FaultKind::InvalidArgument, "the inputs are {} and {}, which do not broadcast to {}",
                 describe(call.in[0]), describe(call.in[i]), describe(call.out[0]));
    }
    if (c10::multiply_integers(at::infer_size(call.in[0].sizes(), call.in[1].sizes())) != call.out[0].numel())
        fail(FaultKind::InvalidArgument, "the output is {} for {} and {}", describe(call.out[0]), describe(call.in[0]),
             describe(call.in[1]));
}

void check_one_dtype(LegacyArguments &call, DTypes dtypes) {
    check_pair(call, dtypes);
    allowed(call.out[0], call.in[0].scalar_type(), "the output");
}

at::Tensor where_not_zero(const at::Tensor &x, const at::Tensor &value) {
    return at::where(x.eq(0), at::zeros({}, value.options()), value);
}

// What x is brought to [eps, 1 - eps] by; not at all where it is negative.
std::optional<double> eps(const aclopAttr &attributes) {
    const double given = attribute<float>(attributes, "eps", -1.F);
    return given < 0 ? std::nullopt : std::optional(given);
}

}  // namespace
}  // namespace vnpu::opapi

#define FUNCTION(NAME, FUNCTION) LEGACY(NAME, check_floats(arguments, 1), out[0].copy_(FUNCTION(widened(in[0]))))
#define GRADIENT(NAME, ...)                                                                            \
    LEGACY(NAME, check_floats(arguments, 2), const at::Tensor x = widened(in[0]), dy = widened(in[1]); \
           out[0].copy_(__VA_ARGS__))

FUNCTION(Acos, at::acos)
FUNCTION(Acosh, at::acosh)
FUNCTION(Asin, at::asin)
FUNCTION(Asinh, at::asinh)
FUNCTION(Atan, at::atan)
FUNCTION(Inv, at::reciprocal)
// The first input is the function's argument, or, of Acosh, Asinh, Inv, Reciprocal and Rsqrt, its result.
GRADIENT(AcosGrad, -dy / (1 - x * x).sqrt())
GRADIENT(AsinGrad, dy / (1 - x * x).sqrt())
GRADIENT(AtanGrad, dy / (1 + x * x))
GRADIENT(AcoshGrad, dy / x.sinh())
GRADIENT(AsinhGrad, dy / x.cosh())
GRADIENT(InvGrad, -dy * x * x)
GRADIENT(ReciprocalGrad, -dy * x * x)
GRADIENT(RsqrtGrad, -0.5 * dy * x * x * x)

LEGACY(CustLogit, check_floats(arguments, 1, kFloats), out[0].copy_(at::logit(widened(in[0]), eps(attributes))))
LEGACY(CustLogitGrad, check_floats(arguments, 2, kFloats),
       out[0].copy_(at::logit_backward(widened(in[0]), widened(in[1]), eps(attributes))))
LEGACY(CustEps, check_floats(arguments, 1, {at::kHalf, at::kFloat, at::kDouble}),
       out[0].fill_(in[0].scalar_type() == at::kHalf    ? 0x1p-10
                    : in[0].scalar_type() == at::kFloat ? 0x1p-23
                                                        : 0x1p-52))

#define PAIR(NAME, DTYPES, ...) \
    LEGACY(NAME, check_one_dtype(arguments, DTYPES), const at::Tensor x = in[0], y = in[1]; out[0].copy_(__VA_ARGS__))

PAIR(BitwiseAnd, kIntsAndBool | kUnsigned, at::bitwise_and(x, y))
PAIR(BitwiseOr, kIntsAndBool | kUnsigned, at::bitwise_or(x, y))
PAIR(BitwiseXor, kIntsAndBool | kUnsigned, at::bitwise_xor(x, y))
PAIR(LeftShift, kInts, at::bitwise_left_shift(x, y))
PAIR(RightShift, kInts, at::bitwise_right_shift(x, y))
PAIR(TruncateDiv, kReals, at::div(widened(x), widened(y), "trunc"))
PAIR(TruncateMod, kReals, at::fmod(widened(x), widened(y)))
PAIR(Xdivy, kNumbers, where_not_zero(x, widened(x) / widened(y)))
PAIR(Xlogy, kNumbers, where_not_zero(x, widened(x) * widened(y).log()))
PAIR(NextAfter, DTypes(at::kFloat) | at::kDouble, at::nextafter(x, y))
PAIR(CustHypot, kFloats, at::hypot(widened(x), widened(y)))
PAIR(CustHeaviside, kReals, at::heaviside(x, y))
PAIR(SquaredDifference, kReals | kComplex, (widened(x) - widened(y)).square())
PAIR(CustGcd, kInts, at::gcd(x, y))
PAIR(CustLcm, kInts, at::lcm(x, y))
LEGACY(ApproximateEqual, check_pair(arguments, kReals);
       allowed(out[0], at::kBool, "the output"),
       out[0].copy_((widened(in[0]) - widened(in[1])).abs().lt(attribute<float>(attributes, "tolerance", 1e-5F))))
