// How far the lightning indexer's weights of keys are from those of the attention that it chooses keys for, and what
// the difference means for the indexer: a divergence of Kullback and Leibler, with its gradients. fp32; the gradient of
// the products is rounded before it is multiplied, as on hardware. https://gitcode.com/cann/ops-transformer,
// attention/sparse_lightning_indexer_grad_kl_loss and dense_...
#include <fmt/ranges.h>

#include <algorithm>

#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"
#include "opapi/attention/token_sets.h"

namespace vnpu::opapi::attention {
namespace {

constexpr float kSmallest = 1e-8F;  // of what a logarithm is taken of

struct Lesson {
    const Operand &query, &key, &query_index, &key_index, &weights, &maximum, &sum, &query_rope, &key_rope;
    const Ints &query_lengths, &key_lengths;  // running totals, of TND
    double scale;
    const std::string &layout;
    int64_t mode;
    bool packed() const { return layout == "TND"; }
    bool ropes() const { return query_rope.defined() && query_rope.numel() > 0; }
    // Lengths beside a dimension of batches are not read.
    TokenSets sets(const Ints &lengths) const {
        return {packed() ? at::tensor(static_cast<const std::vector<int64_t> &>(lengths), at::kLong) : at::Tensor(),
                layout};
    }
};

struct Learned {
    Operand &query_index, &key_index, &weights, &loss;
};

void check_size(const Operand &tensor, const at::DimVector &expected) {
    if (tensor.sizes() != at::IntArrayRef(expected))
        fail(FaultKind::TilingRefused, "parameter {} is {}, expected [{}]", tensor.parameter(), describe(tensor),
             fmt::join(expected, ", "));
}

// Leading dimensions of the tokens of `of`, and these behind.
at::DimVector by_token(const Operand &of, std::initializer_list<int64_t> behind) {
    at::DimVector sizes(of.sizes().begin(), of.sizes().end() - 2);
    sizes.append(behind.begin(), behind.end());
    return sizes;
}

// [(batch,) groups, tokens], and these behind.
at::DimVector by_group(const Lesson &a, int64_t groups, std::initializer_list<int64_t> behind) {
    at::DimVector sizes(a.query.sizes().begin(), a.query.sizes().end() - 2);
    sizes.insert(sizes.end() - 1, groups);
    sizes.append(behind.begin(), behind.end());
    return sizes;
}

void check_lengths(const Lesson &a) {
    if (!a.packed()) {
        tiled(a.query.size(1) <= a.key.size(1), "parameter query is {}, longer than key, {}", describe(a.query),
              describe(a.key));
        return;
    }
    const bool fits = !a.query_lengths.empty() && a.query_lengths.size() == a.key_lengths.size();
    bool shorter = fits;
    int64_t query = 0, key = 0;
    for (size_t i = 0; fits && i < a.query_lengths.size(); ++i) {
        const int64_t rows = a.query_lengths[i] - query, keys = a.key_lengths[i] - key;
        shorter = shorter && rows >= 0 && rows <= keys;
        query = a.query_lengths[i];
        key = a.key_lengths[i];
    }
    if (!shorter || query > a.query.size(0) || key > a.key.size(0))
        fail(
            FaultKind::TilingRefused,
            "parameters actualSeqLengthsQuery and actualSeqLengthsKey are [{}] and [{}], expected running totals of as "
            "many sequences, of up to {} and {} tokens, none with more queries than keys",
            fmt::join(a.query_lengths, ", "), fmt::join(a.key_lengths, ", "), a.query.size(0), a.key.size(0));
}

// `groups`: heads of the keys; `width`: of a head (tiling of both operators, of 910B).
void check_lesson(const Lesson &a, const Learned &out, int64_t groups, int64_t width) {
    required(a.query, a.key, a.query_index, a.key_index, a.weights, a.maximum, a.sum);
    required(out.query_index, out.key_index, out.weights, out.loss);
    for (const Operand *tensor : {&a.key, &a.query_index, &a.key_index}) same_dtype(*tensor, a.query);
    if (a.weights.scalar_type() != at::kFloat) same_dtype(a.weights, a.query);
    same_dtype(out.query_index, a.query);
    same_dtype(out.key_index, a.query);
    same_dtype(out.weights, a.weights);
    if (a.layout != "TND" && a.layout != "BSND")
        fail(FaultKind::TilingRefused, "parameter layout is \"{}\", allowed are TND and BSND", a.layout);
    if (a.mode != kRightDown)
        fail(FaultKind::TilingRefused, "parameter sparseMode is {}, allowed is 3 (right-down causal)", a.mode);
    for (const Operand *tensor : {&a.query, &a.key, &a.query_index, &a.key_index})
        if (tensor->dim() != (a.packed() ? 3 : 4))
            fail(FaultKind::TilingRefused, "parameter {} is {}, which is not laid out as {}", tensor->parameter(),
                 describe(*tensor), a.layout);
    const int64_t heads = a.query.size(-2), own = a.query_index.size(-2);
    tiled(heads == 32 || heads == 64 || heads == 128, "parameter query is {}, allowed are 32, 64 and 128 heads",
          describe(a.query));
    tiled(own == 8 || own == 16 || own == 32 || own == 64,
          "parameter queryIndex is {}, allowed are 8, 16, 32 and 64 heads", describe(a.query_index));
    tiled(a.query.size(-1) == width && a.query_index.size(-1) == 128,
          "parameters query and queryIndex are {} and {}, allowed are widths of {} and 128", describe(a.query),
          describe(a.query_index), width);
    check_size(a.key, by_token(a.key, {groups, a.query.size(-1)}));
    check_size(a.query_index, by_token(a.query, {own, a.query_index.size(-1)}));
    check_size(a.key_index, by_token(a.key, {1, a.query_index.size(-1)}));
    check_size(a.weights, by_token(a.query, {own}));
    if (!a.packed() && a.key.size(0) != a.query.size(0))
        fail(FaultKind::TilingRefused, "parameter key is {}, the query {}", describe(a.key), describe(a.query));
    for (const Operand *statistic : {&a.maximum, &a.sum}) check_size(*statistic, by_group(a, groups, {heads / groups}));
    if (a.ropes() != (a.key_rope.defined() && a.key_rope.numel() > 0))
        fail(FaultKind::TilingRefused, "parameters queryRope and keyRope come together");
    if (a.ropes()) {
        same_dtype(a.query_rope, a.query);
        same_dtype(a.key_rope, a.query);
        check_size(a.query_rope, by_token(a.query, {heads, 64}));
        check_size(a.key_rope, by_token(a.key, {groups, 64}));
    }
    check_lengths(a);
    check_size(out.query_index, {a.query_index.sizes().begin(), a.query_index.sizes().end()});
    check_size(out.key_index, {a.key_index.sizes().begin(), a.key_index.sizes().end()});
    check_size(out.weights, {a.weights.sizes().begin(), a.weights.sizes().end()});
    check_size(out.loss, {1});
}

void check_chosen(const Lesson &a, const Operand &indices) {
    required(indices);
    tiled(a.ropes(), "parameter queryRope is null or empty, which this operator does not allow");
    const int64_t count = indices.dim() > 0 ? indices.size(-1) : 0;
    tiled(count > 0 && count <= 8192 && count % 1024 == 0,
          "parameter sparseIndices is {}, allowed are multiples of 1024 keys, up to 8192", describe(indices));
    check_size(indices, by_token(a.query, {1, count}));
}

// What belongs to one sequence.
struct Sequence {
    at::Tensor query, key, query_index, key_index, weights;  // float32: [tokens, heads, width]; [rows, heads]
    at::Tensor maximum, sum;                                 // [rows, heads]
};

at::Tensor with_rope(const TokenSets &sets, const at::Tensor &tensor, const at::Tensor &rope, int64_t batch) {
    const at::Tensor own = widened(sets.of(tensor, batch));
    return rope.defined() && rope.numel() > 0 ? at::cat({own, widened(sets.of(rope, batch))}, -1) : own;
}

Sequence sequence_of(const Lesson &a, const TokenSets &queries, const TokenSets &keys, int64_t batch) {
    const auto statistic = [&](const at::Tensor &tensor) {
        return queries.of(tensor.transpose(a.packed() ? 0 : 1, a.packed() ? 1 : 2), batch).flatten(1);
    };
    return {with_rope(queries, a.query, a.query_rope, batch),
            with_rope(keys, a.key, a.key_rope, batch),
            widened(queries.of(a.query_index, batch)),
            widened(keys.of(a.key_index, batch)).select(1, 0),
            widened(queries.of(a.weights, batch)),
            statistic(a.maximum),
            statistic(a.sum)};
}

// The mean over the heads of what attention gives each key, [rows, keys]; `key` has one head or one for each.
at::Tensor target(const Sequence &s, const at::Tensor &query, const at::Tensor &key, const at::Tensor &maximum,
                  const at::Tensor &sum, double scale) {
    const at::Tensor scores = at::matmul(query.transpose(0, 1), key.permute({1, 2, 0})) * scale;
    const at::Tensor top = maximum.t().unsqueeze(-1), total = sum.t().unsqueeze(-1);
    return ((scores - top).exp_() / total).sum(0) / s.query.size(1);
}

struct Relevance {
    at::Tensor products, scores;  // [rows, heads, keys] and [rows, keys]
};

Relevance relevance_of(const at::Tensor &query, const at::Tensor &key, const at::Tensor &weights) {
    const at::Tensor products = at::matmul(query, key.t()).relu_();
    return {products, (products * weights.unsqueeze(-1)).sum(1)};
}

struct Gradients {
    at::Tensor query, key, weights;
};

// `away`: how much more the indexer gives each key than it should.
Gradients gradients_of(const at::Tensor &away, const Relevance &found, const at::Tensor &query, const at::Tensor &key,
                       const at::Tensor &weights, at::ScalarType dtype) {
    const at::Tensor rows = away.unsqueeze(1);
    const at::Tensor of_products =
        (rows * weights.unsqueeze(-1) * found.products.gt(0)).to(dtype).to(at::kFloat);  // [rows, heads, keys]
    return {at::matmul(of_products, key), at::matmul(of_products.flatten(0, 1).t(), query.flatten(0, 1)),
            (rows * found.products).sum(-1)};
}

double divergence(const at::Tensor &wanted, const at::Tensor &has, const at::Tensor &weights) {
    const at::Tensor logarithms = wanted.clamp_min(kSmallest).log() - has.clamp_min(kSmallest).log();
    return (logarithms * weights).sum().item<double>();
}

template <class Teach>
void teach(const Lesson &a, Learned out, Teach one) {
    for (Operand *gradient : {&out.query_index, &out.key_index, &out.weights}) gradient->zero_();
    const TokenSets queries = a.sets(a.query_lengths), keys = a.sets(a.key_lengths);
    double loss = 0;
    for (int64_t b = 0; b < queries.batches(a.query); ++b) {
        const Sequence s = sequence_of(a, queries, keys, b);
        if (s.query.size(0) == 0) continue;
        Gradients total{at::zeros_like(s.query_index), at::zeros_like(s.key_index), at::zeros_like(s.weights)};
        loss += one(s, queries, b, total);
        queries.of(out.query_index, b).copy_(total.query);
        keys.of(out.key_index, b).select(1, 0).copy_(total.key);
        queries.of(out.weights, b).copy_(total.weights);
    }
    out.loss.fill_(loss);
}

// Of the keys that a query names, as many as it sees.
void teach_chosen(const Lesson &a, const at::Tensor &indices, Learned out) {
    teach(a, out, [&](const Sequence &s, const TokenSets &queries, int64_t b, Gradients &total) {
        const at::Tensor named = queries.of(indices, b).select(1, 0).to(at::kLong);
        const int64_t ahead = s.key.size(0) - s.query.size(0);
        double loss = 0;
        for (int64_t row = 0; row < s.query.size(0); ++row) {
            const at::Tensor keys = named[row].narrow(0, 0, std::min(named.size(1), ahead + row + 1));
            const auto own = [&](const at::Tensor &tensor) { return tensor.narrow(0, row, 1); };
            const at::Tensor key_index = s.key_index.index_select(0, keys);
            const at::Tensor wanted =
                target(s, own(s.query), s.key.index_select(0, keys), own(s.maximum), own(s.sum), a.scale);
            const Relevance found = relevance_of(own(s.query_index), key_index, own(s.weights));
            const at::Tensor has = found.scores.softmax(-1);
            loss += divergence(wanted, has, wanted.clamp_min(kSmallest));
            const Gradients mine =
                gradients_of(has - wanted, found, own(s.query_index), key_index, own(s.weights), a.query.scalar_type());
            own(total.query).copy_(mine.query);
            own(total.weights).copy_(mine.weights);
            total.key.index_add_(0, keys, mine.key);
        }
        return loss;
    });
}

// Of all keys up to the query's own.
void teach_all(const Lesson &a, const at::Tensor &maximum, const at::Tensor &sum, Learned out) {
    teach(a, out, [&](const Sequence &s, const TokenSets &queries, int64_t b, Gradients &total) {
        const auto statistic = [&](const at::Tensor &tensor) {
            return queries.of(tensor.select(a.packed() ? 0 : 1, 0), b).unsqueeze(-1);
        };
        const int64_t rows = s.query.size(0), keys = s.key.size(0);
        const at::Tensor first_unseen = at::arange(keys - rows + 1, keys + 1, at::kLong).unsqueeze(1);
        const at::Tensor unseen = at::arange(keys, at::kLong).ge(first_unseen);
        const at::Tensor wanted = target(s, s.query, s.key, s.maximum, s.sum, a.scale).masked_fill_(unseen, 0);
        const Relevance found = relevance_of(s.query_index, s.key_index, s.weights);
        const at::Tensor has = ((found.scores - statistic(maximum)).exp_() / statistic(sum)).masked_fill_(unseen, 0);
        total = gradients_of(has - wanted, found, s.query_index, s.key_index, s.weights, a.query.scalar_type());
        return divergence(wanted, has, wanted);
    });
}

void check_own_statistics(const Lesson &a, std::initializer_list<const Operand *> statistics) {
    for (const Operand *statistic : statistics) check_size(*statistic, by_group(a, 1, {}));
}

}  // namespace
}  // namespace vnpu::opapi::attention

#define LESSON                                                                                                        \
    attention::Lesson {                                                                                               \
        query, key, queryIndex, keyIndex, weights, softmaxMax, softmaxSum, queryRope, keyRope, actualSeqLengthsQuery, \
            actualSeqLengthsKey, scaleValue, layout, sparseMode                                                       \
    }
#define LEARNED \
    attention::Learned { dQueryIndex, dKeyIndex, dWeights, loss }
OP(aclnnSparseLightningIndexerGradKLLoss, optional(queryRope, keyRope);
   attention::check_lesson(LESSON, LEARNED, 1, 512);
   attention::check_chosen(LESSON, sparseIndices), attention::teach_chosen(LESSON, sparseIndices, LEARNED))
OP(aclnnDenseLightningIndexerGradKLLoss, optional(queryRope, keyRope);
   required(query, softmaxMaxIndex, softmaxSumIndex);
   attention::check_lesson(LESSON, LEARNED, query.dim() > 1 ? query.size(-2) : 0, 128);
   attention::check_own_statistics(LESSON, {&softmaxMaxIndex, &softmaxSumIndex}),
   attention::teach_all(LESSON, softmaxMaxIndex, softmaxSumIndex, LEARNED))
