// The next token of each row: the k likeliest, of those the fewest whose probabilities come to p, of those what reaches
// a share of the likeliest, and of those one (ops-nn: aclnnTopKTopPSampleV2.md).
#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

struct Sampling {
    double eps;
    bool keep_logits, from_logits, keep_all;
    int64_t most;  // a k above it counts as none
};

constexpr int64_t kMost = 1024;

// The kernel keeps places for a multiple of 8, at most 1024 (ops-nn: top_k_top_p_sample_v2_tiling.cpp).
int64_t places(int64_t most) { return std::min((most + 7) / 8 * 8, kMost); }

void check_sample(const Operand &logits, const Operand &k, const Operand &p, const Operand &q, const Operand &min_p,
                  const Sampling &how, const Operand &chosen, const Operand &kept, const Operand &order,
                  const Operand &sorted) {
    for (const Operand *each : {&logits, &k, &p}) require(*each);
    tiled(logits.dim() == 2, "parameter logits is {}, expected 2 dimensions", describe(logits));
    tiled(logits.size(1) <= 1 << 20, "parameter logits is {}, its rows are longer than 2^20", describe(logits));
    for (const Operand *each : {&k, &p, &min_p})
        if (each->defined())
            tiled(each->dim() == 1 && each->size(0) == logits.size(0), "parameter {} is {}, expected [{}]",
                  each->parameter(), describe(*each), logits.size(0));
    for (const Operand *each : {&p, &min_p})
        if (each->defined())
            tiled(each->scalar_type() == logits.scalar_type(), "parameter {} is {}, expected the dtype of logits, {}",
                  each->parameter(), describe(*each), describe(logits));
    if (q.defined()) {
        tiled(!how.keep_all, "parameter isNeedSampleResult is true, which q does not allow");
        tiled(q.sizes() == logits.sizes(), "parameter q is {}, expected the shape of logits, {}", describe(q),
              describe(logits));
    }
    if (how.keep_logits) shape(kept, logits.sizes());
    if (!how.keep_all) return shape(chosen, {logits.size(0)});
    shape(order, logits.sizes());
    shape(sorted, logits.sizes());
}

struct Row {
    at::Tensor probability, token;
};

// The tokens of one row that are left, sorted unless nothing sorts them.
Row left(const at::Tensor &logits, int64_t k, double p, double min_p, const Sampling &how) {
    const bool by_k = k >= 1 && k <= std::min(how.most, logits.size(0)), by_p = p < 1;
    const auto probabilities = [&](const at::Tensor &of) { return how.from_logits ? at::softmax(of, 0) : of; };
    if (!by_k && !by_p && min_p <= 0) return {probabilities(logits), at::arange(logits.size(0))};
    auto [value, token] = at::sort(logits, /*stable=*/true, /*dim=*/0, /*descending=*/true);
    if (by_k) {
        value = value.narrow(0, 0, k);
        token = token.narrow(0, 0, k);
    }
    at::Tensor probability = probabilities(value);
    if (by_p) {
        const int64_t count =
            p > 0 ? (probability.cumsum(0) - probability).lt(p).sum().item().toLong() : std::min<int64_t>(1, k);
        const int64_t kept = std::max<int64_t>(count, 1);
        probability = probability.narrow(0, 0, kept).clone();
        token = token.narrow(0, 0, kept);
        if (p <= 0 && how.from_logits) probability.fill_(1);
    }
    if (min_p <= 0) return {probability, token};
    const int64_t kept = min_p < 1 ? probability.ge(probability.max() * min_p).sum().item().toLong() : 1;
    return {probability.narrow(0, 0, kept), token.narrow(0, 0, kept)};
}

void sample(const at::Tensor &logits, const at::Tensor &k, const at::Tensor &p, const at::Tensor &q,
            const at::Tensor &min_p, const Sampling &how, at::Tensor &chosen, at::Tensor &kept, at::Tensor &order,
            at::Tensor &sorted) {
    const at::Tensor wide = widened(logits);
    if (how.keep_logits) kept.fill_(how.from_logits ? -std::numeric_limits<float>::infinity() : 0.0F);
    if (how.keep_all) {
        order.zero_();
        sorted.zero_();
    }
    for (int64_t row = 0; row < logits.size(0); ++row) {
        const Row found = left(wide[row], k[row].item().toLong(), p[row].item().toDouble(),
                               min_p.defined() ? min_p[row].item().toDouble() : -1, how);
        const int64_t count = found.token.size(0);
        if (how.keep_logits) kept[row].index_copy_(0, found.token, wide[row].index_select(0, found.token));
        if (how.keep_all) {
            order[row].narrow(0, 0, count).copy_(found.token);
            sorted[row].narrow(0, 0, count).copy_(found.probability);
            continue;
        }
        at::Tensor weight = found.probability;
        if (q.defined()) weight = weight / (q[row].narrow(0, 0, count).abs() + how.eps);
        chosen[row].copy_(found.token[weight.argmax()]);
    }
}

}  // namespace
}  // namespace vnpu::opapi

#define FIRST {eps, isNeedLogits, true, false, kMost}
#define SECOND {eps, isNeedLogits, inputIsLogits, isNeedSampleResult, places(ksMax)}

OP(aclnnTopKTopPSample, optional(q, logitsTopKPSelect); const Operand none(nullptr, "minPs");
   check_sample(logits, topK, topP, q, none, FIRST, logitsSelectIdx, logitsTopKPSelect, none, none), at::Tensor none;
   sample(logits, topK, topP, q, none, FIRST, logitsSelectIdx, logitsTopKPSelect, none, none))
OP(aclnnTopKTopPSampleV2, optional(q, minPs, logitsSelectIdx, logitsTopKPSelect, logitsIdx, logitsSortMasked);
   tiled(ksMax >= 1 && ksMax <= kMost, "parameter ksMax is {}, allowed are 1 to 1024", ksMax);
   check_sample(logits, topK, topP, q, minPs, SECOND, logitsSelectIdx, logitsTopKPSelect, logitsIdx, logitsSortMasked),
   sample(logits, topK, topP, q, minPs, SECOND, logitsSelectIdx, logitsTopKPSelect, logitsIdx, logitsSortMasked))
