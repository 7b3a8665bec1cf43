// Random numbers of the old API. torch_npu draws with them where it compiles operators (set_compile_mode), from the
// seed and the offset that the current operators have, so the numbers are the same.
#include <algorithm>
#include <numeric>

#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"
#include "opapi/random/aclop_numbered.h"
#include "opapi/random/draw.h"

namespace vnpu::opapi {
namespace {

void check_choice(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    allowed(x, at::kBool, "x");
    if (x.dim() < 1 || x.dim() > 5)
        fail(FaultKind::InvalidArgument, "x is {}, expected 1 to 5 dimensions", describe(x));
    sizes(call.out[0], {-1, x.dim()}, "the first output");
    holds(call.out[1], call.out[0].size(0), "the second output");
    number_call(call);
}

// Some of the places where x is true, in random order, or all in theirs (op-plugin: test_random_choice_with_mask); the
// rest of the rows is 0 and marked.
void choose(LegacyArguments &call) {
    const auto number = [&](const char *name) {
        return static_cast<uint64_t>(attribute<int64_t>(call.attributes, name, 0));
    };
    const bool seeded = number("seed") != 0 || number("seed2") != 0;
    const Philox philox(seeded ? number("seed") : number("call"), seeded ? number("seed2") : ~uint64_t{0});
    const at::Tensor places = call.in[0].nonzero();
    std::vector<int64_t> order = shuffled(places.size(0), philox);
    const int64_t count = std::min(places.size(0), call.out[0].size(0));
    if (count == places.size(0)) std::iota(order.begin(), order.end(), 0);
    const at::Tensor chosen = at::tensor(at::IntArrayRef(order).slice(0, static_cast<size_t>(count)), at::kLong);
    call.out[0].zero_().narrow(0, 0, count).copy_(places.index_select(0, chosen));
    call.out[1].zero_().narrow(0, 0, count).fill_(true);
}

struct Sample {
    int64_t count;
    float positive;
};

Sample sample(LegacyArguments &call) {
    const Sample made{attribute<int64_t>(call.attributes, "batch_size_per_images", 0),
                      attribute<float>(call.attributes, "positive_fraction", 0)};
    allowed(call.in[0], at::kInt, "labels");
    alike(call.out[0], call.in[0], "the output");
    if (made.count < 0 || !(made.positive >= 0 && made.positive <= 1))
        fail(FaultKind::InvalidArgument, "batch_size_per_images is {} and positive_fraction {}", made.count,
             made.positive);
    return made;
}

// Labels above 0 up to their share, then those that are 0, at random; all others become -1, which stands for ignored.
void sub_sample(LegacyArguments &call) {
    const Sample wanted = sample(call);
    const auto number = static_cast<uint64_t>(attribute<int64_t>(call.attributes, "call", 0));
    const at::Tensor labels = call.in[0].flatten();
    at::Tensor result = at::full_like(labels, -1);
    const auto keep = [&](const at::Tensor &which, int64_t most, uint64_t stream) {
        const at::Tensor places = which.nonzero().flatten();
        const std::vector<int64_t> order = shuffled(places.numel(), Philox(number, stream));
        const int64_t count = std::min(places.numel(), most);
        const at::Tensor chosen =
            places.index_select(0, at::tensor(at::IntArrayRef(order).slice(0, static_cast<size_t>(count)), at::kLong));
        result.index_copy_(0, chosen, labels.index_select(0, chosen));
        return count;
    };
    const int64_t positive =
        keep(labels.gt(0), static_cast<int64_t>(static_cast<float>(wanted.count) * wanted.positive), 1);
    keep(labels.eq(0), wanted.count - positive, 2);
    put(call.out[0], result);
}

}  // namespace
}  // namespace vnpu::opapi

// in: shape, key, counter, algorithm.
LEGACY(StatelessRandomNormalV2, check_drawn(arguments, kFloats), draw_normal(out[0], 0, 1, word(in[1]), word(in[2])))
LEGACY(StatelessRandomUniformV2, check_drawn(arguments, kFloats), draw_uniform(out[0], 0, 1, word(in[1]), word(in[2])))
// in: shape. The seeds are attributes.
LEGACY(RandomStandardNormal, check_drawn(arguments, kFloats);
       number_call(arguments), const auto [seed, offset] = counted(attributes); draw_normal(out[0], 0, 1, seed, offset))
LEGACY(RandomUniform, check_drawn(arguments, kFloats);
       number_call(arguments), const auto [seed, offset] = counted(attributes);
       draw_uniform(out[0], 0, 1, seed, offset))
// in: shape, probability, seed, offset.
LEGACY(StatelessBernoulli, check_drawn(arguments, kFloats | kIntsAndBool);
       holds(in[1], 1, "prob"), draw_bernoulli(out[0], widened(in[1]).item().toDouble(), word(in[2]), word(in[3])))
LEGACY(RandomChoiceWithMask, check_choice(arguments), choose(arguments))
LEGACY(CustRandomChoiceWithMask, check_choice(arguments), choose(arguments))
LEGACY(SubSample, sample(arguments); number_call(arguments), sub_sample(arguments))
