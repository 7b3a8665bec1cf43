// Floyd attention: from i to k over every j, the scores of i to j and of j to k together. fp32, rounded once.
// https://gitcode.com/cann/ops-transformer, attention/fused_floyd_attention.
#include <limits>

#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

// Query [batch, heads, n, m, width]; the first pair of keys and values [batch, heads, n, k, width], the second [batch,
// heads, k, m, width].
struct Floyd {
    const Operand &query, &first_key, &first_value, &second_key, &second_value, &mask;
    double scale;
};

void check_floyd(const Floyd &a, std::initializer_list<const Operand *> statistics, const Operand &out) {
    dtype(a.query, {at::kHalf, at::kBFloat16});
    rank(a.query, {5});
    for (const Operand *operand : {&a.first_key, &a.first_value, &a.second_key, &a.second_value, &out}) {
        same_dtype(*operand, a.query);
        rank(*operand, {5});
    }
    const at::IntArrayRef q = a.query.sizes();
    const int64_t keys = a.first_key.size(3);
    for (const Operand *operand : {&a.first_key, &a.first_value}) shape(*operand, {q[0], q[1], q[2], keys, q[4]});
    for (const Operand *operand : {&a.second_key, &a.second_value}) shape(*operand, {q[0], q[1], keys, q[3], q[4]});
    same_shape(out, a.query);
    for (const Operand *one : statistics) {
        dtype(*one, at::kFloat);
        shape(*one, {q[0], q[1], q[2], q[3], 8});
    }
    // (ops-transformer: aclnnFusedFloydAttention.md)
    tiled_part(
        q[2] % 16 == 0 && q[3] % 128 == 0 && keys % 128 == 0 && (q[4] == 32 || q[4] == 64 || q[4] == 128),
        "the query is {} and the first key {}: allowed are multiples of 16, 128 and 128, and a width of 32, 64 or "
        "128",
        describe(a.query), describe(a.first_key));
    if (!a.mask.defined()) return;
    dtype(a.mask, {at::kBool, at::kByte});
    shape(a.mask, {q[0], 1, q[2], 1, keys});
}

// Of one batch and head.
struct Head {
    at::Tensor query, first_key, first_value, second_key, second_value, left_out;

    Head(const Floyd &a, int64_t batch, int64_t head) {
        const auto own = [&](const at::Tensor &tensor) { return widened(tensor.select(0, batch).select(0, head)); };
        query = own(a.query);
        first_key = own(a.first_key);
        first_value = own(a.first_value);
        second_key = own(a.second_key);
        second_value = own(a.second_value);
        if (a.mask.defined()) left_out = a.mask.select(0, batch).select(0, 0).to(at::kBool);
    }
    // Products of [n, m, width] with both, [n, m, k].
    static at::Tensor with_both(const at::Tensor &rows, const at::Tensor &first, const at::Tensor &second) {
        return at::einsum("nmd,nkd->nmk", {rows, first}) + at::einsum("nmd,kmd->nmk", {rows, second});
    }
    // ... of weights [n, m, k], [n, m, width].
    static at::Tensor over_both(const at::Tensor &weights, const at::Tensor &first, const at::Tensor &second) {
        return at::einsum("nmk,nkd->nmd", {weights, first}) + at::einsum("nmk,kmd->nmd", {weights, second});
    }
    at::Tensor scores(double scale) const {
        const at::Tensor all = with_both(query, first_key, second_key) * scale;
        return left_out.defined() ? all.masked_fill(left_out, std::numeric_limits<float>::lowest()) : all;
    }
};

template <class Work>
void for_heads(const Floyd &a, Work work) {
    if (a.first_key.size(3) == 0) return;
    for (int64_t batch = 0; batch < a.query.size(0); ++batch)
        for (int64_t head = 0; head < a.query.size(1); ++head)
            work(Head(a, batch, head),
                 [=](const at::Tensor &tensor) { return tensor.select(0, batch).select(0, head); });
}

void floyd(const Floyd &a, at::Tensor &maximum, at::Tensor &sum, at::Tensor &out) {
    for_heads(a, [&](const Head &head, auto own) {
        const at::Tensor scores = head.scores(a.scale), top = scores.amax(-1, true);
        const at::Tensor exponentials = (scores - top).exp_(), total = exponentials.sum(-1, true);
        own(out).copy_(Head::over_both(exponentials / total, head.first_value, head.second_value));
        own(maximum).copy_(top.expand_as(own(maximum)));
        own(sum).copy_(total.expand_as(own(sum)));
    });
}

struct FloydGradients {
    const Operand &grad, &out, &maximum, &sum;
    Operand &query, &first_key, &first_value, &second_key, &second_value;
};

void check_floyd_gradients(const Floyd &a, const FloydGradients &g) {
    check_floyd(a, {&g.maximum, &g.sum}, g.out);
    same_shape(g.grad, g.out);
    same_dtype(g.grad, g.out);
    for (const auto &[gradient, of] : {std::pair<const Operand &, const Operand &>{g.query, a.query},
                                       {g.first_key, a.first_key},
                                       {g.first_value, a.first_value},
                                       {g.second_key, a.second_key},
                                       {g.second_value, a.second_value}}) {
        same_shape(gradient, of);
        same_dtype(gradient, of);
    }
}

void floyd_backward(const Floyd &a, const FloydGradients &g) {
    for_heads(a, [&](const Head &head, auto own) {
        const at::Tensor weights =
            (head.scores(a.scale) - own(g.maximum).narrow(-1, 0, 1)).exp_() / own(g.sum).narrow(-1, 0, 1);
        const at::Tensor grad = widened(own(g.grad)), mean = (grad * widened(own(g.out))).sum(-1, true);
        const at::Tensor of_scores =
            (Head::with_both(grad, head.first_value, head.second_value) - mean) * weights * a.scale;
        own(g.query).copy_(Head::over_both(of_scores, head.first_key, head.second_key));
        own(g.first_key).copy_(at::einsum("nmk,nmd->nkd", {of_scores, head.query}));
        own(g.second_key).copy_(at::einsum("nmk,nmd->kmd", {of_scores, head.query}));
        own(g.first_value).copy_(at::einsum("nmk,nmd->nkd", {weights, grad}));
        own(g.second_value).copy_(at::einsum("nmk,nmd->kmd", {weights, grad}));
    });
}

}  // namespace
}  // namespace vnpu::opapi

#define FLOYD(SCALE) {query, key1, value1, key2, value2, attenMaskOptional, SCALE}
OP(aclnnFusedFloydAttention, check_floyd(FLOYD(scaleValueOptional), {&softmaxMaxOut, &softmaxSumOut}, attentionOutOut),
   floyd(FLOYD(scaleValueOptional), softmaxMaxOut, softmaxSumOut, attentionOutOut))
#define FLOYD_GRADIENTS {dy, attentionIn, softmaxMax, softmaxSum, dqOut, dk1Out, dv1Out, dk2Out, dv2Out}
OP(aclnnFusedFloydAttentionGrad, check_floyd_gradients(FLOYD(scaleValue), FLOYD_GRADIENTS),
   floyd_backward(FLOYD(scaleValue), FLOYD_GRADIENTS))
