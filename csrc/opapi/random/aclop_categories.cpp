// Draws of categories by their weights, and of candidates for a sampled loss, from the old API as MindSpore asks for
// them. Seeds and numbered calls as in aclop_draw.cpp.
#include <cmath>
#include <limits>
#include <unordered_set>

#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"
#include "opapi/random/aclop_numbered.h"
#include "opapi/random/draw.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kWeights{at::kHalf, at::kFloat, at::kDouble};

// in: what is drawn by, how many of each row.
void check_categories(LegacyArguments &call, bool one_row) {
    const at::Tensor &x = call.in[0];
    allowed(x, kWeights, "the weights");
    if ((x.dim() != 2 && !(one_row && x.dim() == 1)) || x.size(-1) < 1)
        fail(FaultKind::InvalidArgument, "the weights are {}, expected rows of one or more", describe(x));
    holds(call.in[1], 1, "num_samples");
    const int64_t count = ints(call.in[1]).front();
    if (count < 0) fail(FaultKind::InvalidArgument, "num_samples is {}, expected 0 or more", count);
    allowed(call.out[0], {at::kShort, at::kInt, at::kLong}, "the output");
    holds(call.out[0], (x.dim() == 2 ? x.size(0) : 1) * count, "the output");
    number_call(call);
}

// With replacement, each row by its own sums; what is not finite has no weight.
void draw(LegacyArguments &call, const at::Tensor &weights, uint64_t seed, uint64_t offset) {
    const at::Tensor rows = weights.reshape({-1, weights.size(-1)});
    const at::Tensor sums = at::where(rows.isfinite(), rows, 0.0).cumsum(1);
    at::Tensor places =
        at::empty({rows.size(0), rows.size(0) == 0 ? 0 : call.out[0].numel() / rows.size(0)}, at::kDouble);
    draw_uniform(places, 0, 1, seed, offset);
    places *= sums.narrow(1, sums.size(1) - 1, 1);
    put(call.out[0], at::searchsorted(sums, places, false, /*right=*/true).clamp_max(sums.size(1) - 1));
}

void by_probability(LegacyArguments &call) {
    const auto [seed, offset] = counted(call.attributes);
    draw(call, call.in[0].to(at::kDouble), seed, offset);
}

// in: logits, how many, a seed.
void by_logit(LegacyArguments &call) {
    const at::Tensor logits = call.in[0].to(at::kDouble);
    const at::Tensor finite = at::where(logits.isfinite(), logits, -std::numeric_limits<double>::infinity());
    draw(call, (finite - finite.amax({1}, true)).exp(), word(call.in[2]), counted(call.attributes).second);
}

// How candidates are drawn from 0 to `range` - 1: all alike, or in falling order by P(k) = log((k + 2) / (k + 1)) /
// log(range + 1) (TensorFlow, with which both operators are compatible).
struct Sampler {
    bool falling;
    int64_t range, count, labels;
    bool unique;

    double probability(int64_t k) const {
        if (!falling) return 1 / static_cast<double>(range);
        const auto at = static_cast<double>(k);
        return std::log((at + 2) / (at + 1)) / std::log1p(static_cast<double>(range));
    }
    int64_t drawn(double u) const {
        const auto whole = static_cast<double>(range);
        const double k = falling ? std::floor(std::exp(u * std::log1p(whole))) - 1 : std::floor(u * whole);
        return std::clamp<int64_t>(static_cast<int64_t>(k), 0, range - 1);
    }
    // How often k is expected among the draws, of which there were `tries` until all were different.
    double expected(int64_t k, int64_t tries) const {
        const double p = probability(k);
        return unique ? -std::expm1(static_cast<double>(tries) * std::log1p(-p)) : p * static_cast<double>(count);
    }
};

Sampler sampler(LegacyArguments &call, bool falling) {
    const auto number = [&](const char *name) { return attribute<int64_t>(call.attributes, name, 0); };
    const Sampler made{falling, number("range_max"), number("num_sampled"), number("num_true"),
                       attribute<bool>(call.attributes, "unique", true)};
    if (made.range < 1 || made.count < 1 || made.labels < 1)
        fail(FaultKind::InvalidArgument, "range_max is {}, num_sampled {} and num_true {}, expected 1 or more",
             made.range, made.count, made.labels);
    if (made.unique && made.count > made.range)
        fail(FaultKind::InvalidArgument, "num_sampled is {}, of {} are all to be different", made.count, made.range);
    allowed(call.in[0], at::kLong, "true_classes");
    sizes(call.in[0], {-1, made.labels}, "true_classes");
    allowed(call.out[0], at::kLong, "sampled_candidates");
    sizes(call.out[0], {made.count}, "sampled_candidates");
    for (const size_t i : {1, 2}) allowed(call.out[i], at::kFloat, "an expected count");
    holds(call.out[1], call.in[0].numel(), "true_expected_count");
    holds(call.out[2], made.count, "sampled_expected_count");
    return made;
}

void sample(LegacyArguments &call, const Sampler &by) {
    const at::Tensor labels = call.in[0].contiguous();
    // One behind the range has the value of the formula: MindSpore's own test brings such.
    if (labels.lt(0).any().item<bool>()) fail(FaultKind::OutOfBounds, "true_classes has one below 0");
    // Not seed2: MindSpore 2.10 does not set it, and what it gives is another number in each run.
    const Philox philox(static_cast<uint64_t>(attribute<int64_t>(call.attributes, "seed", 0)),
                        counted(call.attributes).second);
    std::vector<int64_t> chosen;
    std::unordered_set<int64_t> seen;
    int64_t tries = 0;
    while (static_cast<int64_t>(chosen.size()) < by.count) {
        const uint64_t bits = Philox::wide(philox(static_cast<uint64_t>(tries++)), 0);
        const int64_t k = by.drawn(static_cast<double>(bits >> 11) * 0x1p-53);
        if (!by.unique || seen.insert(k).second) chosen.push_back(k);
    }
    std::vector<double> of_labels, of_chosen;
    for (int64_t i = 0; i < labels.numel(); ++i)
        of_labels.push_back(by.expected(labels.const_data_ptr<int64_t>()[i], tries));
    for (const int64_t k : chosen) of_chosen.push_back(by.expected(k, tries));
    put(call.out[0], at::tensor(chosen, at::kLong));
    put(call.out[1], at::tensor(of_labels, at::kDouble));
    put(call.out[2], at::tensor(of_chosen, at::kDouble));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(CustMultinomial, check_categories(arguments, true), by_probability(arguments))
LEGACY(CustRandomCategorical, check_categories(arguments, false), by_logit(arguments))
LEGACY(UniformCandidateSampler, sampler(arguments, false);
       number_call(arguments), sample(arguments, sampler(arguments, false)))
LEGACY(CustLogUniformCandidateSampler, sampler(arguments, true);
       number_call(arguments), sample(arguments, sampler(arguments, true)))
