// Signs in bits, and the search for a quantization's scale (ops-nn: ifmr).
#include <cmath>

#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kHalves{at::kHalf, at::kFloat};

void check_rows(const aclopAttr &attributes, int64_t bytes) {
    const auto size = attribute<int64_t>(attributes, "size", 1);
    if (size < 1 || bytes % size != 0)
        fail(FaultKind::InvalidArgument, "attribute size is {}, which does not divide {} bytes", size, bytes);
}

at::Tensor weights() { return at::tensor({1, 2, 4, 8, 16, 32, 64, 128}, at::kByte); }

// On a 910B bit i is the i-th of eight numbers and a 1 means that it is not negative (op-plugin: test_sign_bits_pack);
// where eight are not left the rest is 0. The kernel in ops-math, the other way round, is that of a 950.
at::Tensor packed(const at::Tensor &x) {
    const at::Tensor signs = at::constant_pad_nd(x.ge(0).to(at::kByte), {0, (8 - x.numel() % 8) % 8});
    return signs.view({-1, 8}).mul(weights()).sum(-1, false, at::kByte);
}

at::Tensor unpacked_signs(const at::Tensor &bytes) {
    return bytes.flatten().unsqueeze(1).bitwise_and(weights()).ne(0).to(at::kFloat).mul_(2).sub_(1);
}

struct Search {
    float low, high, start, end, step;
    bool offset;
    int64_t bits;
};

Search search(const aclopAttr &attributes) {
    const auto range = attribute<std::vector<float>>(attributes, "search_range", {});
    if (range.size() != 2)
        fail(FaultKind::InvalidArgument, "attribute search_range has {} values, expected 2", range.size());
    const Search made{attribute<float>(attributes, "min_percentile", 0),
                      attribute<float>(attributes, "max_percentile", 0),
                      range[0],
                      range[1],
                      attribute<float>(attributes, "search_step", 0),
                      attribute<bool>(attributes, "with_offset", true),
                      attribute<int64_t>(attributes, "quant_bits", 8)};
    if (!(made.step > 0) || made.end < made.start)
        fail(FaultKind::InvalidArgument, "attribute search_range is [{}, {}] and search_step {}", made.start, made.end,
             made.step);
    return made;
}

// The clipping range is that of the percentiles in the histogram; its upper end is tried at several sizes, and the one
// with the smallest squared error stays.
std::pair<float, float> best(const at::Tensor &data, float low, float high, const at::Tensor &cumulated,
                             const Search &s) {
    const auto bins = static_cast<float>(cumulated.numel());
    const at::Tensor share = cumulated.to(at::kFloat) / static_cast<double>(data.numel());
    const auto below = [&](float limit) { return share.lt(limit).sum().item<float>() / bins * (high - low) + low; };
    float top = below(s.high), bottom = below(1 - s.low);
    if (s.offset) {
        top = std::max(top, 0.0F);
        bottom = std::min(bottom, 0.0F);
    } else {
        top = std::max(top, std::abs(bottom));
    }
    const float least = -std::ldexp(1.0F, static_cast<int>(s.bits) - 1), most = -least - 1;
    std::pair<float, float> found{1, s.offset ? least : 0};
    double smallest = INFINITY;
    const auto steps = static_cast<int64_t>((s.end - s.start) / s.step + 0.5F) + 1;
    for (int64_t i = 0; i < steps; ++i) {
        const float upper = (s.start + s.step * static_cast<float>(i)) * top;
        const float scale = s.offset ? (upper - bottom) / (most - least) : upper / most;
        const float offset = s.offset ? least - std::nearbyint(bottom / scale) : 0;
        const at::Tensor error = ((data / scale + offset).round().clamp(least, most) - offset) * scale - data;
        const auto loss = error.square().sum().item<double>();
        if (loss < smallest) {
            smallest = loss;
            found = {scale, offset};
        }
    }
    constexpr float kEpsilon = 1.192092896e-7F;  // smaller scales divide by nothing
    return found.first < kEpsilon ? std::pair{1.0F, s.offset ? least : 0.0F} : found;
}

void check_ifmr(LegacyArguments &call) {
    search(call.attributes);
    allowed(call.in[0], kHalves, "the data");
    for (const size_t i : {1, 2}) {
        allowed(call.in[i], call.in[0].scalar_type(), "an end of the data");
        holds(call.in[i], 1, "an end of the data");
    }
    allowed(call.in[3], at::kInt, "the cumulated histogram");
    if (call.in[0].numel() == 0 || call.in[3].numel() == 0)
        fail(FaultKind::InvalidArgument, "the data is {}, the cumulated histogram {}", describe(call.in[0]),
             describe(call.in[3]));
    for (size_t i = 0; i < 2; ++i) holds(call.out[i], 1, "an output");
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(SignBitsPack, allowed(in[0], kHalves, "x"); sizes(in[0], {-1}, "x"); allowed(out[0], at::kByte, "the output");
       check_rows(attributes, (in[0].numel() + 7) / 8);
       holds(out[0], (in[0].numel() + 7) / 8, "the output"), put(out[0], packed(in[0])))
LEGACY(SignBitsUnpack, allowed(in[0], at::kByte, "x"); sizes(in[0], {-1}, "x"); allowed(out[0], kHalves, "the output");
       check_rows(attributes, in[0].numel());
       holds(out[0], 8 * in[0].numel(), "the output"), put(out[0], unpacked_signs(in[0])))
LEGACY(IFMR, check_ifmr(arguments),
       const auto [scale, offset] = best(widened(in[0]), widened(in[1]).item<float>(), widened(in[2]).item<float>(),
                                         in[3], search(attributes));
       out[0].fill_(scale); out[1].fill_(offset))
