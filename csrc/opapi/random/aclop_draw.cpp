// Draws of the old API from more distributions than the normal and the uniform one, as MindSpore asks for them; most
// are kernels of its own, which take the clock or the machine's entropy as their seed. Here the seeds of the call hold,
// and calls are numbered.
#include <ATen/ExpandUtils.h>

#include <cmath>
#include <numbers>

#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"
#include "opapi/random/aclop_numbered.h"
#include "opapi/random/draw.h"

namespace vnpu::opapi {
namespace {

// Of the sizes of `like`, in double, [0, 1).
at::Tensor uniforms(at::IntArrayRef sizes, const aclopAttr &attributes) {
    const auto [seed, offset] = counted(attributes);
    at::Tensor made = at::empty(sizes, at::kDouble);
    draw_uniform(made, 0, 1, seed, offset);
    return made;
}

// Density exp(-|x|) / 2.
at::Tensor laplace(const at::Tensor &u) {
    constexpr double kLeast = 0x1p-54;
    const at::Tensor low = (2 * u).clamp_min(kLeast).log(), high = -(2 * (1 - u)).log();
    return at::where(u < 0.5, low, high);
}

// The standard normal one between -2 and 2: by its inverse, as the share of it within z of 0 is erf(z / sqrt 2).
at::Tensor truncated_normal(const at::Tensor &u) {
    const double whole = std::erf(std::numbers::sqrt2);
    return std::numbers::sqrt2 * at::erfinv((2 * u - 1) * whole);
}

// The size is an attribute.
void check_cauchy(LegacyArguments &call) {
    allowed(call.out[0], {at::kHalf, at::kFloat}, "the output");
    sizes(call.out[0], attribute<std::vector<int64_t>>(call.attributes, "size", {}), "the output");
    if (const double sigma = attribute<float>(call.attributes, "sigma", 1); !(sigma > 0))
        fail(FaultKind::InvalidArgument, "attribute sigma is {}, expected more than 0", sigma);
    number_call(call);
}

at::Tensor cauchy(const at::Tensor &u, const aclopAttr &attributes) {
    return attribute<float>(attributes, "median", 0) +
           attribute<float>(attributes, "sigma", 1) * ((u - 0.5) * std::numbers::pi).tan();
}

at::Tensor log_normal(at::IntArrayRef sizes, const aclopAttr &attributes) {
    const auto [seed, offset] = counted(attributes);
    at::Tensor made = at::empty(sizes, at::kDouble);
    draw_normal(made, attribute<float>(attributes, "mean", 1), attribute<float>(attributes, "std", 2), seed, offset);
    return made.exp();
}

// An endless stream of numbers of one element, for what has to try until it fits.
class Numbers {
  public:
    Numbers(const Philox &philox, int64_t element) : philox_(philox), block_(static_cast<uint64_t>(element) << 24) {}

    // (0, 1).
    double unit() {
        if (half_ == 2) {
            now_ = philox_(block_++);
            half_ = 0;
        }
        return (static_cast<double>(Philox::wide(now_, half_++) >> 12) + 0.5) * 0x1p-52;
    }
    double normal() {  // Box and Muller
        const double radius = std::sqrt(-2 * std::log(unit()));
        return radius * std::cos(2 * std::numbers::pi * unit());
    }

  private:
    const Philox &philox_;
    uint64_t block_;
    Philox::Block now_{};
    int half_ = 2;
};

// Marsaglia and Tsang, "A simple method for generating gamma variables", ACM TOMS 26 (2000). Of scale 1.
double gamma_number(double shape, Numbers &from) {
    if (!(shape > 0)) return std::nan("");
    if (shape < 1) {
        const double grown = gamma_number(shape + 1, from);
        return grown * std::pow(from.unit(), 1 / shape);
    }
    const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    for (;;) {
        const double x = from.normal(), t = 1 + c * x;
        if (t <= 0) continue;
        const double v = t * t * t;
        if (std::log(from.unit()) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
    }
}

// Below 10 by how many exponential intervals fit in, else Hoermann's PTRS ("The transformed rejection method for
// generating Poisson random variables", 1993).
double poisson_number(double rate, Numbers &from) {
    if (!(rate >= 0)) return std::nan("");
    if (rate < 10) {
        double product = from.unit(), count = 0;
        for (const double limit = std::exp(-rate); product > limit; ++count) product *= from.unit();
        return count;
    }
    const double b = 0.931 + 2.53 * std::sqrt(rate), a = -0.059 + 0.02483 * b;
    const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), v_r = 0.9277 - 3.6224 / (b - 2);
    for (;;) {
        const double u = from.unit() - 0.5, v = from.unit(), us = 0.5 - std::abs(u);
        const double k = std::floor((2 * a / us + b) * u + rate + 0.43);
        if (us >= 0.07 && v <= v_r) return k;
        if (k < 0 || (us < 0.013 && v > us)) continue;
        if (std::log(v * inverse_alpha / (a / (us * us) + b)) <= k * std::log(rate) - rate - std::lgamma(k + 1))
            return k;
    }
}

// A number for each element of `by`, which has the parameter.
template <class Number>
at::Tensor each(const at::Tensor &by, const aclopAttr &attributes, Number number) {
    const auto [seed, offset] = counted(attributes);
    const Philox philox(seed, offset);
    const at::Tensor from = by.to(at::kDouble).contiguous();
    at::Tensor made = at::empty(from.sizes(), at::kDouble);
    const double *parameter = from.const_data_ptr<double>();
    double *to = made.mutable_data_ptr<double>();
    for (int64_t i = 0; i < made.numel(); ++i) {
        Numbers numbers(philox, i);
        to[i] = number(parameter[i], numbers);
    }
    return made;
}

// in: the shape, alpha, beta, which is the scale (gamma.cc).
void check_gamma(LegacyArguments &call) {
    allowed(call.out[0], at::kFloat, "the output");
    for (const size_t i : {1, 2}) {
        allowed(call.in[i], at::kFloat, "alpha or beta");
        if (!at::is_expandable_to(call.in[i].sizes(), call.out[0].sizes()))
            fail(FaultKind::InvalidArgument, "alpha or beta is {}, which does not become {}", describe(call.in[i]),
                 describe(call.out[0]));
    }
    number_call(call);
}

// in: the shape of the draws of each rate, the rates.
void check_poisson(LegacyArguments &call) {
    allowed(call.in[1], kFloats | at::kInt | at::kLong, "rate");
    allowed(call.out[0], kFloats | at::kInt | at::kLong, "the output");
    int64_t count = call.in[1].numel();
    for (const int64_t size : ints(call.in[0])) count *= size;
    holds(call.out[0], count, "the output");
    number_call(call);
}

void poisson(LegacyArguments &call) {
    const int64_t rates = call.in[1].numel();
    const int64_t draws = rates == 0 ? 0 : call.out[0].numel() / rates;
    put(call.out[0], each(call.in[1].reshape({1, rates}).expand({draws, rates}), call.attributes, poisson_number));
}

// in: the shape, the means, of which each element of the output has one; both seeds again.
void check_counts(LegacyArguments &call) {
    allowed(call.in[1], at::kFloat, "mean");
    allowed(call.out[0], at::kInt, "the output");
    if (!at::is_expandable_to(call.in[1].sizes(), call.out[0].sizes()))
        fail(FaultKind::InvalidArgument, "mean is {}, which does not become {}", describe(call.in[1]),
             describe(call.out[0]));
    number_call(call);
}

// in: the shape, the least number, the one behind the largest.
void check_integers(LegacyArguments &call) {
    check_drawn(call, {at::kInt, at::kLong});
    for (const size_t i : {1, 2}) {
        allowed(call.in[i], call.out[0].scalar_type(), "an end");
        holds(call.in[i], 1, "an end");
    }
    number_call(call);
}

void integers(LegacyArguments &call) {
    const int64_t low = ints(call.in[1]).front(), high = ints(call.in[2]).front();
    if (low >= high) fail(FaultKind::InvalidArgument, "numbers are drawn from {} to {}", low, high);
    const auto [seed, offset] = counted(call.attributes);
    const Philox philox(seed, offset);
    const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
    at::Tensor made = at::empty(call.out[0].sizes(), at::kLong);
    int64_t *to = made.mutable_data_ptr<int64_t>();
    for (int64_t i = 0; i < made.numel(); ++i)
        to[i] =
            static_cast<int64_t>(static_cast<uint64_t>(low) + Philox::wide(philox(static_cast<uint64_t>(i)), 0) % span);
    call.out[0].copy_(made);
}

// in: the number that are permuted, a seed, an offset. A seed of -1 with the offset 0 stands for any.
void check_permute(LegacyArguments &call) {
    allowed(call.out[0], kFloats | kInts, "the output");
    sizes(call.out[0], {ints(call.in[0]).front()}, "the output");
    number_call(call);
}

void permute(LegacyArguments &call) {
    const uint64_t seed = word(call.in[1]), offset = word(call.in[2]);
    const bool any = seed == ~uint64_t{0} && offset == 0;
    draw_permutation(call.out[0], call.out[0].numel(), seed, any ? counted(call.attributes).second : offset);
}

// The same with room for more, which is filled.
int64_t permuted(LegacyArguments &call) {
    const int64_t count = ints(call.in[0]).front();
    if (count < 0 || count > call.out[0].numel() ||
        call.out[0].numel() != attribute<int64_t>(call.attributes, "max_length", 1))
        fail(FaultKind::InvalidArgument, "n is {}, max_length {} and the output {}", count,
             attribute<int64_t>(call.attributes, "max_length", 1), describe(call.out[0]));
    return count;
}

void permute_with_room(LegacyArguments &call) {
    const int64_t count = permuted(call);
    const auto [seed, offset] = counted(call.attributes);
    call.out[0].fill_(attribute<int64_t>(call.attributes, "pad", 1));
    at::Tensor part = call.out[0].view({-1}).narrow(0, 0, count);
    draw_permutation(part, count, seed, offset);
}

void shuffle(LegacyArguments &call) {
    if (call.in[0].dim() == 0 || call.in[0].size(0) == 0) {
        call.out[0].copy_(call.in[0]);
        return;
    }
    const auto [seed, offset] = counted(call.attributes);
    at::Tensor order = at::empty({call.in[0].size(0)}, at::kLong);
    draw_permutation(order, order.numel(), seed, offset);
    call.out[0].copy_(call.in[0].index_select(0, order));
}

}  // namespace
}  // namespace vnpu::opapi

// in: the output's shape.
LEGACY(CustStandardLaplace, check_drawn(arguments, at::kFloat);
       number_call(arguments), put(out[0], laplace(uniforms(out[0].sizes(), attributes))))
LEGACY(TruncatedNormal, check_drawn(arguments, kFloats);
       number_call(arguments), put(out[0], truncated_normal(uniforms(out[0].sizes(), attributes))))
LEGACY(CustCauchy, check_cauchy(arguments), out[0].copy_(cauchy(uniforms(out[0].sizes(), attributes), attributes)))
// in: a tensor of the output's sizes.
LEGACY(CustLogNormalReverse, allowed(in[0], {at::kHalf, at::kFloat}, "x"); alike(out[0], in[0], "the output");
       number_call(arguments), out[0].copy_(log_normal(out[0].sizes(), attributes)))
LEGACY(CustGamma, check_gamma(arguments),
       out[0].copy_(each(in[1].expand(out[0].sizes()), attributes, gamma_number) * in[2].to(at::kDouble)))
LEGACY(CustRandomPoisson, check_poisson(arguments), poisson(arguments))
LEGACY(CustPoisson, check_counts(arguments),
       out[0].copy_(each(in[1].expand(out[0].sizes()), attributes, poisson_number)))
LEGACY(RandomUniformInt, check_integers(arguments), integers(arguments))
LEGACY(StatelessRandperm, check_permute(arguments), permute(arguments))
LEGACY(CustRandperm, allowed(out[0], kInts, "the output"); permuted(arguments);
       number_call(arguments), permute_with_room(arguments))
LEGACY(CustRandomShuffle, alike(out[0], in[0], "the output"); number_call(arguments), shuffle(arguments))
