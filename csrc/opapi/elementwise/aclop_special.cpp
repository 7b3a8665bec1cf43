// The gamma functions and their kin of the old API, as MindSpore asks for them: computed in double and rounded once.
#include <ATen/ExpandUtils.h>
#include <ATen/native/Math.h>

#include <cmath>
#include <limits>

#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kWide{at::kFloat, at::kDouble};

at::Tensor wide(const at::Tensor &x) { return x.to(at::kDouble); }

// One operand, whose sizes and dtype the output has.
void check_one(LegacyArguments &call, DTypes dtypes) {
    allowed(call.in[0], dtypes, "x");
    alike(call.out[0], call.in[0], "the output");
}

// Two, of one dtype, that broadcast to the output.
void check_two(LegacyArguments &call) {
    for (const size_t i : {0, 1}) {
        allowed(call.in[i], kWide, "an input");
        if (call.in[i].scalar_type() != call.out[0].scalar_type() ||
            !at::is_expandable_to(call.in[i].sizes(), call.out[0].sizes()))
            fail(FaultKind::InvalidArgument, "an input is {}, which does not become {}", describe(call.in[i]),
                 describe(call.out[0]));
    }
}

// An integer has no dtype to be rounded to: its value is a float.
void check_lgamma(LegacyArguments &call) {
    allowed(call.in[0], kFloats | at::kInt, "x");
    const bool real = call.in[0].scalar_type() != at::kInt;
    allowed(call.out[0], real ? call.in[0].scalar_type() : at::kFloat, "the output");
    sizes(call.out[0], call.in[0].sizes(), "the output");
}

// in: the order, x.
void check_polygamma(LegacyArguments &call) {
    allowed(call.in[0], {at::kInt, at::kLong}, "the order");
    holds(call.in[0], 1, "the order");
    allowed(call.in[1], kFloats, "x");
    alike(call.out[0], call.in[1], "the output");
}

at::Tensor polygamma(const at::Tensor &order, const at::Tensor &x) {
    const int64_t n = ints(order).front();
    if (n < 0) fail(FaultKind::InvalidArgument, "the order is {}, expected 0 or more", n);
    return at::polygamma(n, wide(x));
}

int64_t dimension(const aclopAttr &attributes) {
    const auto p = attribute<int64_t>(attributes, "p", 0);
    if (p < 1) fail(FaultKind::InvalidArgument, "attribute p is {}, expected 1 or more", p);
    return p;
}

// log of the p-variate gamma function and its slope: sums over the p gamma functions (a - j / 2).
at::Tensor log_of_matrices(const at::Tensor &x, int64_t p) {
    if (x.le(static_cast<double>(p - 1) / 2).any().item<bool>())
        fail(FaultKind::InvalidArgument, "x has an element that is not more than ({} - 1) / 2", p);
    return at::mvlgamma(wide(x), p);
}

at::Tensor slope_of_matrices(const at::Tensor &given, const at::Tensor &x, int64_t p) {
    at::Tensor sum = at::zeros(x.sizes(), at::kDouble);
    for (int64_t j = 0; j < p; ++j) sum += at::digamma(wide(x) - static_cast<double>(j) / 2);
    return wide(given) * sum;
}

// A number and its derivative by a.
struct Dual {
    double value, slope;
};
Dual operator+(Dual x, Dual y) { return {x.value + y.value, x.slope + y.slope}; }
Dual operator*(Dual x, Dual y) { return {x.value * y.value, x.slope * y.value + x.value * y.slope}; }
Dual inverse(Dual x) { return {1 / x.value, -x.slope / (x.value * x.value)}; }

// The derivative by a of the regularized lower incomplete gamma function P(a, x). Numerical Recipes, 6.2: for x < a + 1
// the series x^a e^-x sum x^n / Gamma(a + n + 1), else 1 minus the continued fraction of Q by Lentz's method, both with
// their derivatives.
double igamma_by_a(double a, double x) {
    if (!(a > 0) || !(x >= 0)) return std::numeric_limits<double>::quiet_NaN();
    if (x == 0 || std::isinf(x)) return 0;
    constexpr int kSteps = 10000;
    constexpr double kEnough = 1e-17, kTiny = 1e-300;
    const double log_x = std::log(x);
    if (x < a + 1) {
        // Terms relative to the first, x^a e^-x / Gamma(a + 1).
        Dual term{1, 0}, sum{1, 0};
        for (int n = 1; n < kSteps; ++n) {
            term = term * Dual{x, 0} * inverse({a + n, 1});
            sum = sum + term;
            if (term.value < kEnough * sum.value && std::abs(term.slope) <= kEnough * std::abs(sum.slope)) break;
        }
        const double front = std::exp(a * log_x - x - std::lgamma(a + 1));
        return front * (sum.slope + sum.value * (log_x - calc_digamma(a + 1)));
    }
    Dual b{x + 1 - a, -1}, c{1 / kTiny, 0}, d = inverse(b), h = d;
    for (int i = 1; i < kSteps; ++i) {
        const Dual an = Dual{-static_cast<double>(i), 0} * Dual{i - a, -1};
        b = b + Dual{2, 0};
        d = inverse(an * d + b);
        c = b + an * inverse(c);
        const Dual step = d * c;
        h = h * step;
        if (std::abs(step.value - 1) < 1e-16 && std::abs(step.slope) < 1e-16) break;
    }
    const double front = std::exp(a * log_x - x - std::lgamma(a));
    return -front * (h.slope + h.value * (log_x - calc_digamma(a)));
}

at::Tensor igamma_slope(const at::Tensor &a, const at::Tensor &x, at::IntArrayRef sizes) {
    const at::Tensor by = wide(a).expand(sizes).contiguous(), at = wide(x).expand(sizes).contiguous();
    at::Tensor made = at::empty(sizes, at::kDouble);
    const double *p = by.const_data_ptr<double>(), *q = at.const_data_ptr<double>();
    double *to = made.mutable_data_ptr<double>();
    for (int64_t i = 0; i < made.numel(); ++i) to[i] = igamma_by_a(p[i], q[i]);
    return made;
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(CustLgamma, check_lgamma(arguments), out[0].copy_(at::lgamma(wide(in[0]))))
LEGACY(CustPolygamma, check_polygamma(arguments), out[0].copy_(polygamma(in[0], in[1])))
LEGACY(CustMvlgamma, check_one(arguments, kWide);
       dimension(attributes), out[0].copy_(log_of_matrices(in[0], dimension(attributes))))
// in: the gradient, x.
LEGACY(CustMvlgammaGrad, check_one(arguments, kWide); alike(in[1], in[0], "x");
       dimension(attributes), out[0].copy_(slope_of_matrices(in[0], in[1], dimension(attributes))))
LEGACY(CustIgamma, check_two(arguments), out[0].copy_(at::igamma(wide(in[0]), wide(in[1]))))
LEGACY(Igammac, check_two(arguments), out[0].copy_(at::igammac(wide(in[0]), wide(in[1]))))
LEGACY(IgammaGradA, check_two(arguments), out[0].copy_(igamma_slope(in[0], in[1], out[0].sizes())))
// in: the exponent, where the sum begins.
LEGACY(Zeta, check_two(arguments), out[0].copy_(at::special_zeta(wide(in[0]), wide(in[1]))))
LEGACY(CustBesselI0, check_one(arguments, kFloats), out[0].copy_(at::i0(wide(in[0]))))
LEGACY(BesselI0e, check_one(arguments, kFloats), out[0].copy_(at::special_i0e(wide(in[0]))))
LEGACY(BesselI1e, check_one(arguments, kFloats), out[0].copy_(at::special_i1e(wide(in[0]))))
