// The lightning indexer, which says which keys matter to a query, and attention over those keys alone (DeepSeek sparse
// attention). fp32, rounded once. https://gitcode.com/cann/ops-transformer, attention/lightning_indexer,
// attention/sparse_flash_attention.
#include <algorithm>

#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/attention/attention.h"
#include "opapi/attention/native_sparse.h"
#include "opapi/attention/token_sets.h"

namespace vnpu::opapi::attention {

void check_sets(const Operand &query, const Operand &query_lengths, const std::string &query_layout, const Operand &key,
                const Operand &key_lengths, const std::string &key_layout, const Operand &table) {
    if ((query_layout != "BSND" && query_layout != "TND") ||
        (key_layout != "BSND" && key_layout != "TND" && key_layout != "PA_BSND"))
        fail(FaultKind::InvalidArgument,
             "the layout of the query is \"{}\" and that of the key \"{}\", allowed are BSND and TND, and for a key "
             "PA_BSND",
             query_layout, key_layout);
    rank(query, {query_layout == "TND" ? 3 : 4});
    rank(key, {key_layout == "TND" ? 3 : 4});
    for (const Operand *lengths : {&query_lengths, &key_lengths}) {
        if (!lengths->defined()) continue;
        dtype(*lengths, {at::kInt, at::kLong});
        rank(*lengths, {1});
    }
    if ((query_layout == "TND" && !query_lengths.defined()) || (key_layout != "BSND" && !key_lengths.defined()))
        fail(FaultKind::NullArgument, "parameters {} and {}: one is null, which the layouts {} and {} do not allow",
             query_lengths.parameter(), key_lengths.parameter(), query_layout, key_layout);
    const int64_t batches = query_layout == "BSND" ? query.size(0) : query_lengths.size(0);
    const bool fits = (!query_lengths.defined() || query_lengths.size(0) == batches) &&
                      (!key_lengths.defined() || key_lengths.size(0) == batches) &&
                      (key_layout != "BSND" || key.size(0) == batches);
    if (!fits)
        fail(FaultKind::InvalidArgument, "the query is {}, the key {}, which do not belong to {} batches",
             describe(query), describe(key), batches);
    if (key_layout != "PA_BSND") return;
    require(table);
    dtype(table, {at::kInt});
    rank(table, {2});
    if (table.size(0) != batches)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected {} rows", table.parameter(), describe(table),
             batches);
    // (ops-transformer: aclnnLightningIndexer.md, aclnnSparseFlashAttention.md)
    tiled(key.size(1) % 16 == 0 && key.size(1) <= 1024,
          "parameter {} is {}: allowed are blocks of a multiple of 16 tokens, up to 1024", key.parameter(),
          describe(key));
}

void check_mode(int64_t mode, std::initializer_list<int64_t> allowed) {
    if (std::ranges::count(allowed, mode) == 0)
        fail(FaultKind::InvalidArgument, "parameter sparseMode is {}, which the operator does not have", mode);
}

at::Tensor Sight::tokens(const at::Tensor &indices, int64_t own, int64_t keys) const {
    const at::Tensor named = tokens_of(indices, block, keys);
    if (mode == kRightDown) return named.masked_select(named.le(own));
    if (mode != kInBand) return named;
    return named.masked_select((named - own).le(next_tokens).logical_and((own - named).le(pre_tokens)));
}

namespace {

// --- which keys matter: sum over heads of weight * relu(q k)

void check_index(const Operand &query, const Operand &key, const Operand &weights) {
    dtype(query, {at::kHalf, at::kBFloat16});
    same_dtype(key, query);
    dtype(weights, {at::kHalf, at::kBFloat16, at::kFloat});
    shape(weights, query.sizes().slice(0, static_cast<size_t>(query.dim() - 1)));
    if (key.size(-1) != query.size(-1) || key.size(-2) != 1)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected one head of the width of {}", key.parameter(),
             describe(key), describe(query));
    // (ops-transformer: aclnnLightningIndexer.md)
    tiled(query.size(-2) <= 64 && query.size(-1) == 128,
          "parameter {} is {}: allowed are up to 64 heads of a width of 128", query.parameter(), describe(query));
}

void check_indices(const Operand &indices, const Operand &query, int64_t heads, int64_t count) {
    dtype(indices, {at::kInt});
    at::DimVector expected(query.sizes());
    expected.back() = count;
    expected[expected.size() - 2] = heads;
    shape(indices, expected);
}

// The first tokens that queries [rows, heads, width] do not see, [rows, 1].
at::Tensor first_unseen(int64_t rows, int64_t keys) {
    return at::arange(keys - rows + 1, keys + 1, at::kLong).unsqueeze(1);
}

struct Chosen {
    at::Tensor indices, values;  // [rows, 1, count]
};

// [rows, keys]; what a query does not see is minus infinity.
at::Tensor relevance(const at::Tensor &query, const at::Tensor &key, const at::Tensor &weights, int64_t mode) {
    const int64_t rows = query.size(0), keys = key.size(0);
    const at::Tensor products = at::matmul(widened(query), widened(key).select(1, 0).t()).relu_();
    const at::Tensor scores = (products * widened(weights).unsqueeze(-1)).sum(1);
    if (mode != kRightDown) return scores;
    return scores.masked_fill(at::arange(keys, at::kLong).ge(first_unseen(rows, keys)),
                              -std::numeric_limits<float>::infinity());
}

Chosen most_relevant(const at::Tensor &query, const at::Tensor &key, const at::Tensor &weights, int64_t count,
                     int64_t mode) {
    const int64_t rows = query.size(0), keys = key.size(0);
    Chosen found{at::full({rows, 1, count}, -1, at::kLong),
                 at::full({rows, 1, count}, -std::numeric_limits<float>::infinity(), at::kFloat)};
    const int64_t most = std::min(count, keys);
    if (most == 0 || rows == 0) return found;
    const at::Tensor scores = relevance(query, key, weights, mode);
    const auto [values, indices] = scores.sort(true, -1, true);
    const at::Tensor best = values.narrow(1, 0, most);
    const at::Tensor unseen = best.eq(-std::numeric_limits<float>::infinity());
    found.indices.select(1, 0).narrow(1, 0, most).copy_(indices.narrow(1, 0, most).masked_fill(unseen, -1));
    found.values.select(1, 0).narrow(1, 0, most).copy_(best);
    return found;
}

void index(const at::Tensor &query, const at::Tensor &key, const at::Tensor &weights, const TokenSets &queries,
           const TokenSets &keys, int64_t count, int64_t mode, bool with_values, at::Tensor &indices,
           at::Tensor &values) {
    indices.fill_(-1);
    if (with_values) values.fill_(-std::numeric_limits<float>::infinity());
    for (int64_t b = 0; b < queries.batches(query); ++b) {
        const Chosen found = most_relevant(queries.of(query, b), keys.of(key, b), queries.of(weights, b), count, mode);
        queries.of(indices, b).copy_(found.indices);
        if (with_values) queries.of(values, b).copy_(found.values);
    }
}

// What a softmax over a query's scores needs: their maximum and the sum of exp(score - maximum), [batch, 1, rows] or
// [1, tokens].
void relevance_sums(const at::Tensor &query, const at::Tensor &key, const at::Tensor &weights, const TokenSets &queries,
                    const TokenSets &keys, int64_t mode, at::Tensor &maximum, at::Tensor &sum) {
    const bool packed = query.dim() == 3;
    maximum.zero_();
    sum.zero_();
    for (int64_t b = 0; b < queries.batches(query); ++b) {
        const at::Tensor own = queries.of(query, b);
        if (own.size(0) == 0) continue;
        const at::Tensor scores = relevance(own, keys.of(key, b), queries.of(weights, b), mode);
        const auto place = [&](const at::Tensor &statistic) {
            return queries.of(packed ? statistic.select(0, 0) : statistic.select(1, 0), b);
        };
        const at::Tensor top = scores.amax(-1, true);
        place(maximum).copy_(top.squeeze(1));
        place(sum).copy_((scores - top).exp_().sum(-1));
    }
}

void check_relevance_sums(const Operand &query, const Operand &key, const Operand &weights, const Ints &query_lengths,
                          const Ints &key_lengths, const std::string &layout, int64_t mode, const Operand &maximum,
                          const Operand &sum) {
    if (layout != "BSND" && layout != "TND")
        fail(FaultKind::InvalidArgument, "parameter layoutOptional is \"{}\", allowed are BSND and TND", layout);
    const bool packed = layout == "TND";
    rank(query, {packed ? 3 : 4});
    rank(key, {packed ? 3 : 4});
    check_index(query, key, weights);
    check_mode(mode, {kRightDown});
    for (const auto &[lengths, of] :
         {std::pair<const Ints &, const Operand &>{query_lengths, query}, {key_lengths, key}}) {
        const bool fits = packed ? !lengths.empty() && std::ranges::is_sorted(lengths) && lengths.front() >= 0 &&
                                       lengths.back() == of.size(0) && lengths.size() == query_lengths.size()
                                 : lengths.empty() || static_cast<int64_t>(lengths.size()) == of.size(0);
        if (!fits)
            fail(FaultKind::InvalidArgument, "the lengths that belong to {} {} are {} values, which do not fit",
                 of.parameter(), describe(of), lengths.size());
    }
    if (!packed && key.size(0) != query.size(0))
        fail(FaultKind::InvalidArgument, "parameter {} is {}, the query {}", key.parameter(), describe(key),
             describe(query));
    for (const Operand *statistic : {&maximum, &sum}) {
        dtype(*statistic, at::kFloat);
        if (packed)
            shape(*statistic, {1, query.size(0)});
        else
            shape(*statistic, {query.size(0), 1, query.size(1)});
    }
}

at::Tensor lengths_of(const Ints &lengths) {
    return lengths.empty() ? at::Tensor() : at::tensor(static_cast<const std::vector<int64_t> &>(lengths), at::kLong);
}

// Of numbers of 8 bits, each token's and head's with a factor.
void quantised_index(const at::Tensor &query, const at::Tensor &key, const at::Tensor &weights,
                     const at::Tensor &query_scale, const at::Tensor &key_scale, const TokenSets &queries,
                     const TokenSets &keys, int64_t count, int64_t mode, at::Tensor &indices) {
    const auto restored = [](const TokenSets &sets, const at::Tensor &tensor, const at::Tensor &scale, int64_t batch) {
        return sets.of(tensor, batch).to(at::kFloat) * sets.of(scale, batch).to(at::kFloat).unsqueeze(-1);
    };
    indices.fill_(-1);
    for (int64_t b = 0; b < queries.batches(query); ++b)
        queries.of(indices, b)
            .copy_(most_relevant(restored(queries, query, query_scale, b), restored(keys, key, key_scale, b),
                                 queries.of(weights, b), count, mode)
                       .indices);
}

// (ops-transformer: aclnnQuantLightningIndexer.md: of 910B)
void check_quantised(const Operand &query, const Operand &key, const Operand &weights, const Operand &query_scale,
                     const Operand &key_scale, int64_t query_mode, int64_t key_mode, int64_t count, int64_t mode,
                     const Operand &indices) {
    for (const Operand *operand : {&query, &key}) dtype(*operand, {at::kChar});
    for (const Operand *operand : {&weights, &query_scale, &key_scale}) dtype(*operand, {at::kHalf});
    const auto without_width = [](const Operand &operand) {
        return operand.sizes().slice(0, static_cast<size_t>(operand.dim() - 1));
    };
    shape(weights, without_width(query));
    shape(query_scale, without_width(query));
    shape(key_scale, without_width(key));
    if (key.size(-1) != query.size(-1) || key.size(-2) != 1)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected one head of the width of {}", key.parameter(),
             describe(key), describe(query));
    if (query_mode != 0 || key_mode != 0)
        fail(FaultKind::InvalidArgument, "queryQuantMode is {} and keyQuantMode {}, allowed is 0", query_mode,
             key_mode);
    check_mode(mode, {kAll, kRightDown});
    if (count <= 0) fail(FaultKind::InvalidArgument, "parameter sparseCount is {}, it must be positive", count);
    tiled(query.size(-2) <= 64 && query.size(-1) == 128 && count <= 2048,
          "parameter {} is {} and sparseCount {}: allowed are up to 64 heads of a width of 128 and up to 2048 keys",
          query.parameter(), describe(query), count);
    check_indices(indices, query, 1, count);
}

void check_lightning(const Operand &query, const Operand &key, const Operand &weights, int64_t count, int64_t mode,
                     bool with_values, const Operand &indices, const Operand &values) {
    check_index(query, key, weights);
    check_mode(mode, {kAll, kRightDown});
    if (count <= 0) fail(FaultKind::InvalidArgument, "parameter sparseCount is {}, it must be positive", count);
    tiled(count <= 2048 || (count % 1024 == 0 && count <= 8192),
          "parameter sparseCount is {}: allowed are up to 2048, and multiples of 1024 up to 8192", count);
    check_indices(indices, query, 1, count);
    if (with_values) same_shape(values, indices);
}

void index_backward(const at::Tensor &query, const at::Tensor &key, const at::Tensor &grad, const at::Tensor &indices,
                    const at::Tensor &weights, const TokenSets &queries, const TokenSets &keys, at::Tensor &query_grad,
                    at::Tensor &key_grad, at::Tensor &weight_grad) {
    query_grad.zero_();
    key_grad.zero_();
    weight_grad.zero_();
    for (int64_t b = 0; b < queries.batches(query); ++b) {
        const at::Tensor q = widened(queries.of(query, b)), k = widened(keys.of(key, b)).select(1, 0);
        const at::Tensor w = widened(queries.of(weights, b)), dy = widened(queries.of(grad, b)).select(1, 0);
        const at::Tensor named = queries.of(indices, b).select(1, 0).to(at::kLong);
        // Scattered over all keys: what is named twice counts twice, and -1 not at all.
        const at::Tensor known = named.ge(0).logical_and(named.lt(k.size(0)));
        at::Tensor of_keys = at::zeros({q.size(0), k.size(0)}, at::kFloat);
        if (k.size(0) > 0)
            of_keys.scatter_add_(1, named.clamp(0, k.size(0) - 1), dy.masked_fill(known.logical_not(), 0));
        const at::Tensor products = at::matmul(q, k.t());  // [rows, heads, keys]
        const at::Tensor active = of_keys.unsqueeze(1) * products.gt(0);
        const at::Tensor of_scores = active * w.unsqueeze(-1);
        queries.of(weight_grad, b).copy_((active * products).sum(-1));
        queries.of(query_grad, b).copy_(at::matmul(of_scores, k));
        keys.of(key_grad, b).select(1, 0).copy_(at::einsum("rhk,rhd->kd", {of_scores, q}));
    }
}

void check_lightning_gradients(const Operand &query, const Operand &key, const Operand &grad, const Operand &indices,
                               const Operand &weights, const Operand &query_grad, const Operand &key_grad,
                               const Operand &weight_grad, int64_t mode) {
    check_index(query, key, weights);
    check_mode(mode, {kAll, kRightDown});
    check_indices(indices, query, 1, indices.size(-1));
    same_shape(grad, indices);
    for (const auto &[gradient, of] :
         {std::pair<const Operand &, const Operand &>{query_grad, query}, {key_grad, key}, {weight_grad, weights}}) {
        same_shape(gradient, of);
        same_dtype(gradient, of);
    }
}

// --- attention over the keys that are named

struct Sparse {
    const Operand &query, &key, &value, &indices;
    const Operand &query_rope, &key_rope;
    const Operand *sinks;
    double scale;
    int64_t block, mode, pre_tokens, next_tokens;

    Sight sight() const { return {block, mode, pre_tokens, next_tokens}; }
    const at::Tensor &values() const { return value.defined() ? value : key; }
};

void check_sparse(const Sparse &call, int64_t attention_mode, const Operand &out) {
    dtype(call.query, {at::kHalf, at::kBFloat16});
    for (const Operand *operand : {&call.key, &call.value, &call.query_rope, &call.key_rope, &out})
        if (operand->defined()) same_dtype(*operand, call.query);
    check_mode(call.mode, {kAll, kRightDown, kInBand});
    const int64_t heads = call.query.size(-2), groups = call.key.size(-2);
    if (groups == 0 || heads % groups != 0 || call.key.size(-1) != call.query.size(-1) || call.block <= 0)
        fail(FaultKind::InvalidArgument, "the query is {}, the key {} and sparseBlockSize {}, which do not fit",
             describe(call.query), describe(call.key), call.block);
    if (call.value.defined() && call.value.sizes().slice(0, static_cast<size_t>(call.value.dim() - 1)) !=
                                    call.key.sizes().slice(0, static_cast<size_t>(call.key.dim() - 1)))
        fail(FaultKind::InvalidArgument, "parameter {} is {}, the key {}", call.value.parameter(), describe(call.value),
             describe(call.key));
    check_indices(call.indices, call.query, groups, call.indices.size(-1));
    const bool ropes = given(&call.query_rope);
    if (ropes != given(&call.key_rope) || ropes != (attention_mode != 0))
        fail(FaultKind::InvalidArgument,
             "parameters {} and {} are given together, with an attentionMode other than 0: it is {}",
             call.query_rope.parameter(), call.key_rope.parameter(), attention_mode);
    if (call.sinks != nullptr && given(call.sinks)) shape(*call.sinks, {heads});
    // (ops-transformer: aclnnSparseFlashAttention.md)
    tiled(
        groups == 1 && heads <= 128 && (heads & (heads - 1)) == 0,
        "the query is {} and the key {}: allowed are one head of the key and a power of two of the query's, up to 128",
        describe(call.query), describe(call.key));
    at::DimVector expected(call.query.sizes());
    expected.back() = call.values().size(-1);
    shape(out, expected);
}

// Calls work(batch, row, group, tokens [count], those left out) for each query that sees a named token.
template <class Work>
void for_named(const Sparse &call, const at::Tensor &indices, int64_t batch, int64_t keys, Work work) {
    const int64_t rows = indices.size(0), shift = keys - rows;
    for (int64_t row = 0; row < rows; ++row)
        for (int64_t group = 0; group < indices.size(1); ++group) {
            const at::Tensor tokens = call.sight().tokens(indices.select(0, row).select(0, group), row + shift, keys);
            if (tokens.numel() > 0) work(batch, row, group, tokens);
        }
}

// The parts of a width that lie in two tensors.
at::Tensor joined(const TokenSets &sets, const at::Tensor &tensor, const at::Tensor &rope, int64_t batch) {
    const at::Tensor own = widened(sets.of(tensor, batch));
    return rope.defined() && rope.numel() > 0 ? at::cat({own, widened(sets.of(rope, batch))}, -1) : own;
}

// Statistics are [(batch,) groups, rows, heads of a group].
at::Tensor statistic_of(const TokenSets &sets, const at::Tensor &statistic, bool packed, int64_t batch) {
    const at::Tensor by_token = packed ? statistic.transpose(0, 1) : statistic.transpose(1, 2);
    return sets.of(by_token, batch);  // [rows, groups, heads of a group]
}

void check_statistics(const Sparse &call, const Operand &maximum, const Operand &sum) {
    const bool packed = call.query.dim() == 3;
    const int64_t groups = call.key.size(-2), of_group = call.query.size(-2) / groups;
    for (const Operand *one : {&maximum, &sum}) {
        dtype(*one, at::kFloat);
        if (packed)
            shape(*one, {groups, call.query.size(0), of_group});
        else
            shape(*one, {call.query.size(0), groups, call.query.size(1), of_group});
    }
}

void sparse(const Sparse &call, const TokenSets &queries, const TokenSets &keys, bool statistics, at::Tensor &out,
            at::Tensor &maximum, at::Tensor &sum) {
    out.zero_();
    const int64_t of_group = call.query.size(-2) / call.key.size(-2);
    for (int64_t b = 0; b < queries.batches(call.query); ++b) {
        const at::Tensor query = joined(queries, call.query, call.query_rope, b);
        const at::Tensor key = joined(keys, call.key, call.key_rope, b), value = widened(keys.of(call.values(), b));
        const at::Tensor own = queries.of(out, b);
        for_named(
            call, queries.of(call.indices, b), b, key.size(0),
            [&](int64_t batch, int64_t row, int64_t group, const at::Tensor &tokens) {
                const int64_t first = group * of_group;
                WrittenOut found = written_out(query.select(0, row).narrow(0, first, of_group),
                                               key.select(1, group).index_select(0, tokens),
                                               value.select(1, group).index_select(0, tokens), call.scale);
                if (call.sinks != nullptr && given(call.sinks)) {
                    const at::Tensor sink = call.sinks->to(at::kFloat).narrow(0, first, of_group).unsqueeze(1);
                    const at::Tensor top = at::maximum(found.maximum, sink);
                    const at::Tensor rest = found.sum * (found.maximum - top).exp_();
                    const at::Tensor total = rest + (sink - top).exp_();
                    found.out = found.out * (rest / total);
                    found.maximum = top;
                    found.sum = total;
                }
                own.select(0, row).narrow(0, first, of_group).copy_(found.out);
                if (!statistics) return;
                const bool packed = call.query.dim() == 3;
                statistic_of(queries, maximum, packed, batch)
                    .select(0, row)
                    .select(0, group)
                    .copy_(found.maximum.squeeze(1));
                statistic_of(queries, sum, packed, batch).select(0, row).select(0, group).copy_(found.sum.squeeze(1));
            });
    }
}

struct SparseGradients {
    const Operand &grad, &out, &maximum, &sum;
    Operand &query, &key, &value, &query_rope, &key_rope;
};

void check_sparse_gradients(const Sparse &call, const SparseGradients &g) {
    check_statistics(call, g.maximum, g.sum);
    same_shape(g.grad, g.out);
    same_dtype(g.grad, g.out);
    const auto like = [](const Operand &gradient, const at::Tensor &of) {
        shape(gradient, of.sizes());
        dtype(gradient, of.scalar_type());
    };
    like(g.query, call.query);
    like(g.key, call.key);
    like(g.value, call.values());
    if (!given(&call.query_rope)) return;
    for (const auto &[gradient, of] :
         {std::pair<const Operand &, const Operand &>{g.query_rope, call.query_rope}, {g.key_rope, call.key_rope}}) {
        if (!gradient.defined())
            fail(FaultKind::NullArgument, "parameter {} is null, but {} is given", gradient.parameter(),
                 of.parameter());
        like(gradient, of);
    }
}

void sparse_backward(const Sparse &call, const SparseGradients &g, const TokenSets &queries, const TokenSets &keys) {
    const bool ropes = given(&call.query_rope), packed = call.query.dim() == 3;
    const int64_t of_group = call.query.size(-2) / call.key.size(-2), width = call.query.size(-1);
    for (Operand *gradient : {&g.query, &g.key, &g.value, &g.query_rope, &g.key_rope})
        if (gradient->defined()) gradient->zero_();
    for (int64_t b = 0; b < queries.batches(call.query); ++b) {
        const at::Tensor query = joined(queries, call.query, call.query_rope, b);
        const at::Tensor key = joined(keys, call.key, call.key_rope, b), value = widened(keys.of(call.values(), b));
        const at::Tensor grad = widened(queries.of(g.grad, b));
        const at::Tensor mean = (grad * widened(queries.of(g.out, b))).sum(-1, true);
        const at::Tensor maximum = statistic_of(queries, g.maximum, packed, b);
        const at::Tensor sum = statistic_of(queries, g.sum, packed, b);
        const at::Tensor of_query = at::zeros_like(query), of_key = at::zeros_like(key);
        const at::Tensor of_value = at::zeros_like(value);
        for_named(call, queries.of(call.indices, b), b, key.size(0),
                  [&](int64_t, int64_t row, int64_t group, const at::Tensor &tokens) {
                      const auto own = [&](const at::Tensor &tensor) {
                          return tensor.select(0, row).narrow(0, group * of_group, of_group);
                      };
                      const auto known = [&](const at::Tensor &statistic) {
                          return statistic.select(0, row).select(0, group).unsqueeze(1);
                      };
                      const WrittenOutGradients found =
                          gradients_written_out(own(query), key.select(1, group).index_select(0, tokens),
                                                value.select(1, group).index_select(0, tokens), call.scale, {},
                                                known(maximum), known(sum), own(grad), own(mean));
                      own(of_query).copy_(found.query);
                      of_key.select(1, group).index_add_(0, tokens, found.key);
                      of_value.select(1, group).index_add_(0, tokens, found.value);
                  });
        queries.of(g.query, b).copy_(of_query.narrow(-1, 0, width));
        keys.of(g.key, b).copy_(of_key.narrow(-1, 0, width));
        keys.of(g.value, b).copy_(of_value);
        if (!ropes) continue;
        queries.of(g.query_rope, b).copy_(of_query.narrow(-1, width, of_query.size(-1) - width));
        keys.of(g.key_rope, b).copy_(of_key.narrow(-1, width, of_key.size(-1) - width));
    }
}

}  // namespace
}  // namespace vnpu::opapi::attention

#define INDEX_QUERIES attention::TokenSets(actualSeqLengthsQueryOptional, layoutQueryOptional)
#define INDEX_KEYS attention::TokenSets(actualSeqLengthsKeyOptional, layoutKeyOptional, blockTableOptional)
OP(aclnnLightningIndexer, optional(sparseValuesOut);
   attention::check_sets(query, actualSeqLengthsQueryOptional, layoutQueryOptional, key, actualSeqLengthsKeyOptional,
                         layoutKeyOptional, blockTableOptional);
   attention::check_lightning(query, key, weights, sparseCount, sparseMode, returnValues, sparseIndicesOut,
                              sparseValuesOut),
   attention::index(query, key, weights, INDEX_QUERIES, INDEX_KEYS, sparseCount, sparseMode, returnValues,
                    sparseIndicesOut, sparseValuesOut))
OP(aclnnDenseLightningIndexerSoftmaxLse,
   attention::check_relevance_sums(queryIndex, keyIndex, weight, actualSeqLengthsQueryOptional,
                                   actualSeqLengthsKeyOptional, layoutOptional, sparseMode, softmaxMaxOut,
                                   softmaxSumOut),
   attention::relevance_sums(queryIndex, keyIndex, weight,
                             attention::TokenSets(attention::lengths_of(actualSeqLengthsQueryOptional), layoutOptional),
                             attention::TokenSets(attention::lengths_of(actualSeqLengthsKeyOptional), layoutOptional),
                             sparseMode, softmaxMaxOut, softmaxSumOut))
OP(aclnnQuantLightningIndexer,
   attention::check_sets(query, actualSeqLengthsQueryOptional, layoutQueryOptional, key, actualSeqLengthsKeyOptional,
                         layoutKeyOptional, blockTableOptional);
   attention::check_quantised(query, key, weights, queryDequantScale, keyDequantScale, queryQuantMode, keyQuantMode,
                              sparseCount, sparseMode, out),
   attention::quantised_index(query, key, weights, queryDequantScale, keyDequantScale, INDEX_QUERIES, INDEX_KEYS,
                              sparseCount, sparseMode, out))
OP(aclnnLightningIndexerGrad,
   attention::check_sets(query, actualSeqQLenOptional, inputLayout, key, actualSeqKvLenOptional, inputLayout, key);
   attention::check_lightning_gradients(query, key, dy, sparseIndices, weights, dqOut, dkOut, dweightsOut, sparseMode),
   attention::index_backward(query, key, dy, sparseIndices, weights,
                             attention::TokenSets(actualSeqQLenOptional, inputLayout),
                             attention::TokenSets(actualSeqKvLenOptional, inputLayout), dqOut, dkOut, dweightsOut))

#define SPARSE(SINKS, BLOCK)                                                      \
    {query, key,        value, sparseIndices, queryRopeOptional, keyRopeOptional, \
     SINKS, scaleValue, BLOCK, sparseMode,    preTokens,         nextTokens}
#define SPARSE_QUERIES attention::TokenSets(actualSeqLengthsQueryOptional, layoutQueryOptional)
#define SPARSE_KEYS attention::TokenSets(actualSeqLengthsKvOptional, layoutKvOptional, blockTableOptional)
#define SPARSE_ATTENTION(NAME, SINKS)                                                                           \
    OP(NAME, optional(value, softmaxMax, softmaxSum);                                                           \
       attention::check_sets(query, actualSeqLengthsQueryOptional, layoutQueryOptional, key,                    \
                             actualSeqLengthsKvOptional, layoutKvOptional, blockTableOptional);                 \
       attention::check_sparse(SPARSE(SINKS, sparseBlockSizeOptional), attentionMode, attentionOut);            \
       if (returnSoftmaxLse)                                                                                    \
           attention::check_statistics(SPARSE(SINKS, sparseBlockSizeOptional), softmaxMax, softmaxSum),         \
       attention::sparse(SPARSE(SINKS, sparseBlockSizeOptional), SPARSE_QUERIES, SPARSE_KEYS, returnSoftmaxLse, \
                         attentionOut, softmaxMax, softmaxSum))
SPARSE_ATTENTION(aclnnSparseFlashAttention, nullptr)
SPARSE_ATTENTION(aclnnSparseFlashAttentionV2, &sinksOptional)

#define SPARSE_GRADIENTS \
    {dOut, out, softmaxMax, softmaxSum, dQueryOut, dKeyOut, dValueOut, dQueryRopeOutOptional, dKeyRopeOutOptional}
OP(aclnnSparseFlashAttentionGrad, optional(value);
   attention::check_sets(query, actualSeqLengthsQueryOptional, layoutOptional, key, actualSeqLengthsKvOptional,
                         layoutOptional, key);
   attention::check_sparse(SPARSE(nullptr, sparseBlockSize), queryRopeOptional.defined() ? 2 : 0, out);
   attention::check_sparse_gradients(SPARSE(nullptr, sparseBlockSize), SPARSE_GRADIENTS),
   attention::sparse_backward(SPARSE(nullptr, sparseBlockSize), SPARSE_GRADIENTS,
                              attention::TokenSets(actualSeqLengthsQueryOptional, layoutOptional),
                              attention::TokenSets(actualSeqLengthsKvOptional, layoutOptional)))
