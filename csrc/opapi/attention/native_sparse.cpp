// Native sparse attention (https://arxiv.org/abs/2502.11089): keys and values compressed block by block, attention over
// the compressed ones, which says which blocks matter, and attention over the blocks that do. fp32, rounded once.
// https://gitcode.com/cann/ops-transformer, attention/nsa_*.
#include <algorithm>

#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/attention/native_sparse.h"
#include "opapi/attention/written_out.h"

namespace vnpu::opapi::attention {

at::Tensor importance(const at::Tensor &weights, int64_t blocks, const Sizes &sizes) {
    const int64_t of_block = sizes.chosen / sizes.stride, of_window = sizes.block / sizes.stride;
    const at::Tensor all = weights.sum(1);
    at::Tensor sums = at::zeros({all.size(0), all.size(1), blocks}, at::kFloat);
    for (int64_t block = 0; block < blocks; ++block)
        for (int64_t m = 0; m < of_block; ++m)
            for (int64_t n = 0; n < of_window; ++n) {
                const int64_t key = of_block * (block + 1) - m - n;
                if (key >= 0 && key < all.size(2)) sums.select(2, block).add_(all.select(2, key));
            }
    return sums;
}

at::Tensor most_important(const at::Tensor &importance, int64_t count) {
    return std::get<1>(importance.sort(true, -1, true)).narrow(-1, 0, count);
}

at::Tensor tokens_of(const at::Tensor &indices, int64_t block, int64_t length) {
    const at::Tensor wide = indices.to(at::kLong);
    const at::Tensor named = wide.masked_select(wide.ge(0)).unsqueeze(1);
    const at::Tensor all = (named * block + at::arange(block, at::kLong)).flatten();
    return all.masked_select(all.lt(length));
}

void check_choice(const Sizes &sizes) {
    // (ops-transformer: aclnnNsaCompressAttention.md)
    const bool multiples = sizes.block % 16 == 0 && sizes.stride % 16 == 0 && sizes.chosen % 16 == 0;
    if (sizes.block <= 0 || sizes.stride <= 0 || sizes.chosen <= 0 || sizes.count <= 0)
        fail(FaultKind::InvalidArgument,
             "compressBlockSize is {}, compressStride {}, selectBlockSize {} and selectBlockCount {}, they must be "
             "positive",
             sizes.block, sizes.stride, sizes.chosen, sizes.count);
    tiled_part(multiples && sizes.block >= sizes.stride && sizes.chosen >= sizes.block &&
                   sizes.chosen % sizes.stride == 0 && sizes.block <= 128 && sizes.stride <= 64 &&
                   sizes.chosen <= 128 && sizes.count <= 32,
               "compressBlockSize is {}, compressStride {}, selectBlockSize {} and selectBlockCount {}: allowed are "
               "multiples of 16, up to 128, 64 and 128, the stride not more than the block, that not more than the "
               "chosen block, which is a multiple of the stride, and a count of up to 32",
               sizes.block, sizes.stride, sizes.chosen, sizes.count);
}

namespace {

struct Span {
    int64_t start, length;
};

// One behind another, where `ends` are running totals.
std::vector<Span> spans(const Ints &ends) {
    std::vector<Span> all;
    for (size_t i = 0; i < ends.size(); ++i) {
        const int64_t start = i == 0 ? 0 : ends[i - 1];
        all.push_back({start, ends[i] - start});
    }
    return all;
}

void check_ends(const char *name, const Ints &ends, int64_t tokens) {
    if (ends.empty()) fail(FaultKind::InvalidArgument, "parameter {} is empty", name);
    if (!std::ranges::is_sorted(ends) || ends.front() < 0 || ends.back() != tokens)
        fail(FaultKind::InvalidArgument, "parameter {} must grow to {}, the tokens that there are", name, tokens);
}

void check_layout(const std::string &layout) {
    if (layout != "TND") fail(FaultKind::InvalidArgument, "parameter layout is \"{}\", allowed is TND", layout);
}

// --- compression: the weighted sum of a window's tokens, every `stride`

int64_t windows(int64_t length, const Sizes &sizes) {
    return length < sizes.block ? 0 : (length - sizes.block) / sizes.stride + 1;
}

void check_compression(const Operand &input, const Operand &weight, const Sizes &sizes) {
    dtype(input, {at::kHalf, at::kBFloat16});
    same_dtype(weight, input);
    if (input.numel() == 0 || weight.numel() == 0)
        fail(FaultKind::InvalidArgument, "parameters {} and {} are {} and {}, which must not be empty",
             input.parameter(), weight.parameter(), describe(input), describe(weight));
    shape(weight, {sizes.block, input.size(-2)});
    // (ops-transformer: aclnnNsaCompress.md)
    tiled_part(input.size(-2) <= 128 && input.size(-1) % 16 == 0 && input.size(-1) <= 256,
               "parameter {} is {}: allowed are up to 128 heads of a width of up to 256, a multiple of 16",
               input.parameter(), describe(input));
    tiled_part(
        sizes.block % 16 == 0 && sizes.block <= 128 && sizes.stride % 16 == 0 && sizes.stride > 0 &&
            sizes.block >= sizes.stride,
        "compressBlockSize is {} and compressStride {}: allowed are multiples of 16, the block up to 128 and not "
        "less than the stride",
        sizes.block, sizes.stride);
    if (sizes.block <= 0 || sizes.stride <= 0)
        fail(FaultKind::InvalidArgument, "compressBlockSize is {} and compressStride {}, they must be positive",
             sizes.block, sizes.stride);
}

void check_tokens(const Operand &input, const Ints &ends, const std::string &layout, int64_t type) {
    check_layout(layout);
    rank(input, {3});
    if (type != 0) fail(FaultKind::InvalidArgument, "parameter actSeqLenType is {}, allowed is 0", type);
    check_ends("actSeqLenOptional", ends, input.size(0));
}

int64_t all_windows(const Ints &ends, const Sizes &sizes) {
    int64_t count = 0;
    for (const Span &one : spans(ends)) count += windows(one.length, sizes);
    return count;
}

// Calls work(first window, first token, tokens [windows, heads, width, block]) for each sequence that has windows.
template <class Work>
void for_windows(const at::Tensor &input, const Ints &ends, const Sizes &sizes, Work work) {
    int64_t first = 0;
    for (const Span &one : spans(ends)) {
        const int64_t count = windows(one.length, sizes);
        if (count == 0) continue;
        work(first, one.start, input.narrow(0, one.start, one.length).unfold(0, sizes.block, sizes.stride));
        first += count;
    }
}

at::Tensor as_factors(const at::Tensor &weight) { return widened(weight).t().unsqueeze(1); }  // [heads, 1, block]

void compress(const at::Tensor &input, const at::Tensor &weight, const Ints &ends, const Sizes &sizes,
              at::Tensor &out) {
    const at::Tensor wide = widened(input), factors = as_factors(weight);
    for_windows(wide, ends, sizes, [&](int64_t first, int64_t, const at::Tensor &tokens) {
        out.narrow(0, first, tokens.size(0)).copy_((tokens * factors).sum(-1));
    });
}

void compress_backward(const at::Tensor &grad, const at::Tensor &input, const at::Tensor &weight, const Ints &ends,
                       const Sizes &sizes, at::Tensor &input_grad, at::Tensor &weight_grad) {
    const at::Tensor wide = widened(input), factors = as_factors(weight), wide_grad = widened(grad);
    const at::Tensor of_input = at::zeros_like(wide);
    const at::Tensor of_weight = at::zeros(weight.sizes(), at::kFloat);
    for_windows(wide, ends, sizes, [&](int64_t first, int64_t start, const at::Tensor &tokens) {
        const at::Tensor own = wide_grad.narrow(0, first, tokens.size(0));
        of_weight.add_((tokens * own.unsqueeze(-1)).sum(at::IntArrayRef({0, 2})).t());
        for (int64_t i = 0; i < tokens.size(0); ++i)  // windows overlap
            of_input.narrow(0, start + i * sizes.stride, sizes.block)
                .add_((own.select(0, i).unsqueeze(-1) * factors).permute({2, 0, 1}));
    });
    input_grad.copy_(of_input);
    weight_grad.copy_(of_weight);
}

// A token a step: a sequence whose last tokens fill a window has that window compressed into its place of the cache.
struct Step {
    const at::Tensor &input, &table;
    const Ints &lengths;
    int64_t type;  // 0: running totals; 1: each sequence's own
    int64_t page;

    Span tokens(size_t sequence) const {
        if (type == 0) return spans(lengths)[sequence];
        int64_t start = 0;
        for (size_t i = 0; i < sequence; ++i) start += lengths[i];
        return {start, lengths[sequence]};
    }
    // The last `count` tokens, [count, heads, width].
    at::Tensor last(size_t sequence, int64_t count) const {
        const Span own = tokens(sequence);
        if (!table.defined()) return input.narrow(0, own.start + own.length - count, count);
        const at::Tensor at = at::arange(own.length - count, own.length, at::kLong);
        const at::Tensor blocks = table.select(0, static_cast<int64_t>(sequence)).to(at::kLong);
        return input.index({blocks.index_select(0, at::floor_divide(at, page)), at.remainder(page)});
    }
};

void check_step(const Operand &input, const Operand &weight, const Operand &slots, const Operand &table,
                const Ints &lengths, const Sizes &sizes, int64_t type, int64_t page, const std::string &layout,
                const Operand &cache) {
    check_layout(layout);
    check_compression(input, weight, sizes);
    rank(input, {table.defined() ? 4 : 3});
    dtype(slots, {at::kInt});
    shape(slots, {static_cast<int64_t>(lengths.size())});
    if (type != 0 && type != 1)
        fail(FaultKind::InvalidArgument, "parameter actSeqLenType is {}, allowed are 0 and 1", type);
    rank(cache, {3});
    same_dtype(cache, input);
    if (cache.size(1) != input.size(-2) || cache.size(2) != input.size(-1))
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected heads and width of {}", cache.parameter(),
             describe(cache), describe(input));
    // Only some of its rows are written: those of a result with gaps would be lost (result_layout.h).
    if (!cache.is_non_overlapping_and_dense())
        fail(FaultKind::InvalidArgument, "parameter {} is {} with gaps between its elements", cache.parameter(),
             describe(cache));
    if (!table.defined()) return;
    dtype(table, {at::kInt});
    rank(table, {2});
    if (input.size(1) != page || table.size(0) != static_cast<int64_t>(lengths.size()))
        fail(FaultKind::InvalidArgument,
             "parameter {} is {}: it needs a row for each of {} sequences and blocks of pageBlockSize {} in {}",
             table.parameter(), describe(table), lengths.size(), page, describe(input));
}

void compress_step(const Step &step, const at::Tensor &weight, const at::Tensor &slots, const Sizes &sizes,
                   at::Tensor &cache) {
    const at::Tensor factors = widened(weight).unsqueeze(-1);
    for (size_t i = 0; i < step.lengths.size(); ++i) {
        const int64_t length = step.tokens(i).length;
        if (length < sizes.block || (length - sizes.block) % sizes.stride != 0) continue;
        const int64_t slot = slots[static_cast<int64_t>(i)].item<int64_t>();
        cache.select(0, slot).copy_((widened(step.last(i, sizes.block)) * factors).sum(0));
    }
}

// --- attention over what is compressed, and which blocks it says matter

struct Attended {
    const Operand &query, &key, &value;
    int64_t heads;
    double scale;
    int64_t groups() const { return key.size(1); }
};

void check_attended(const Attended &a, const Operand &out) {
    for (const Operand *operand : {&a.query, &a.key, &a.value, &out}) {
        dtype(*operand, {at::kHalf, at::kBFloat16});
        same_dtype(*operand, a.query);
        rank(*operand, {3});
    }
    if (a.query.size(1) != a.heads || a.heads <= 0 || a.groups() == 0 || a.heads % a.groups() != 0)
        fail(FaultKind::InvalidArgument, "parameter headNum is {}, the query {} and the key {}, expected a multiple",
             a.heads, describe(a.query), describe(a.key));
    if (a.key.size(2) != a.query.size(2) || a.value.size(0) != a.key.size(0) || a.value.size(1) != a.key.size(1))
        fail(FaultKind::InvalidArgument, "the query is {}, the key {} and the value {}, which do not fit",
             describe(a.query), describe(a.key), describe(a.value));
    on_chip(a.value.size(2) <= a.key.size(2), "only support kD >= vD: parameter {} is {}, the key {}",
            a.value.parameter(), describe(a.value), describe(a.key));
    shape(out, {a.query.size(0), a.heads, a.value.size(2)});
}

void check_statistics(const Attended &a, std::initializer_list<const Operand *> statistics) {
    for (const Operand *one : statistics) {
        dtype(*one, at::kFloat);
        shape(*one, {a.query.size(0), a.heads, 8});
    }
}

void check_mask(const Operand &mask, int64_t rows, int64_t columns) {
    if (!mask.defined()) return;
    dtype(mask, {at::kBool, at::kByte});
    rank(mask, {2});
    if (mask.size(0) < rows || mask.size(1) < columns)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected at least [{}, {}]", mask.parameter(),
             describe(mask), rows, columns);
}

int64_t longest(const Ints &ends) {
    int64_t found = 0;
    for (const Span &one : spans(ends)) found = std::max(found, one.length);
    return found;
}

void check_compressed(const Attended &a, const Operand &mask, const Operand &chosen_mask, const Ints &queries,
                      const Ints &keys, const Ints &blocks, const std::string &layout, int64_t mode, const Sizes &sizes,
                      const Operand &maximum, const Operand &sum, const Operand &out, const Operand &indices) {
    check_layout(layout);
    check_attended(a, out);
    check_statistics(a, {&maximum, &sum});
    check_choice(sizes);
    check_ends("actualSeqQLenOptional", queries, a.query.size(0));
    check_ends("actualCmpSeqKvLenOptional", keys, a.key.size(0));
    if (blocks.size() != queries.size() || keys.size() != queries.size() || !std::ranges::is_sorted(blocks))
        fail(FaultKind::InvalidArgument,
             "actualSeqQLenOptional has {} values, actualCmpSeqKvLenOptional {} and actualSelSeqKvLenOptional {}, "
             "expected as many, and growing",
             queries.size(), keys.size(), blocks.size());
    if (mode != 0 && mode != 1)
        fail(FaultKind::InvalidArgument, "parameter sparseMode is {}, allowed are 0 and 1", mode);
    for (const Span &one : spans(blocks))
        if (sizes.count > one.length)
            fail(FaultKind::PartRefused, "selectBlockCount is {}, a sequence has {} blocks", sizes.count, one.length);
    check_mask(mask, longest(queries), longest(keys));
    check_mask(chosen_mask, longest(queries), longest(blocks));
    dtype(indices, {at::kInt});
    shape(indices, {a.query.size(0), a.groups(), sizes.count});
}

// [groups, heads * queries, width] of tokens [queries, heads of all groups, width].
at::Tensor by_group(const at::Tensor &tokens, int64_t groups) {
    return tokens.transpose(0, 1).unflatten(0, {groups, -1}).flatten(1, 2);
}

at::Tensor part(const at::Tensor &mask, int64_t rows, int64_t columns) {
    return mask.defined() ? mask.narrow(0, 0, rows).narrow(1, 0, columns).to(at::kBool) : at::Tensor();
}

void compressed(const Attended &a, const at::Tensor &mask, const at::Tensor &chosen_mask, const Ints &query_ends,
                const Ints &key_ends, const Ints &block_ends, const Sizes &sizes, at::Tensor &maximum, at::Tensor &sum,
                at::Tensor &out, at::Tensor &indices) {
    const std::vector<Span> queries = spans(query_ends), keys = spans(key_ends), blocks = spans(block_ends);
    const int64_t groups = a.groups(), of_group = a.heads / groups;
    for (size_t i = 0; i < queries.size(); ++i) {
        const auto [start, rows] = queries[i];
        if (rows == 0) continue;
        const at::Tensor key = a.key.narrow(0, keys[i].start, keys[i].length).transpose(0, 1);
        const at::Tensor value = a.value.narrow(0, keys[i].start, keys[i].length).transpose(0, 1);
        at::Tensor left_out = part(mask, rows, keys[i].length);
        if (left_out.defined()) left_out = left_out.repeat({of_group, 1});
        const WrittenOut found =
            written_out(by_group(a.query.narrow(0, start, rows), groups), key, value, a.scale, left_out);
        const auto back = [&](const at::Tensor &tensor) {  // to [queries, heads, ...]
            return tensor.unflatten(1, {of_group, rows}).flatten(0, 1).transpose(0, 1);
        };
        out.narrow(0, start, rows).copy_(back(found.out));
        maximum.narrow(0, start, rows).copy_(back(found.maximum).expand({rows, a.heads, 8}));
        sum.narrow(0, start, rows).copy_(back(found.sum).expand({rows, a.heads, 8}));
        at::Tensor matters = importance(found.weights.unflatten(1, {of_group, rows}), blocks[i].length, sizes);
        const at::Tensor always = part(chosen_mask, rows, blocks[i].length);
        if (always.defined()) matters = matters.masked_fill(always, std::numeric_limits<float>::infinity());
        indices.narrow(0, start, rows).copy_(most_important(matters, sizes.count).transpose(0, 1));
    }
}

// --- attention over chosen blocks

void check_chosen(const Attended &a, const Operand &indices, const Operand &mask, const Ints &queries, const Ints &keys,
                  const std::string &layout, int64_t mode, const Sizes &sizes, const Operand &maximum,
                  const Operand &sum, const Operand &out) {
    check_layout(layout);
    check_attended(a, out);
    check_statistics(a, {&maximum, &sum});
    check_ends("actualSeqQLenOptional", queries, a.query.size(0));
    check_ends("actualSeqKvLenOptional", keys, a.key.size(0));
    if (keys.size() != queries.size())
        fail(FaultKind::InvalidArgument, "actualSeqQLenOptional has {} values and actualSeqKvLenOptional {}",
             queries.size(), keys.size());
    dtype(indices, {at::kInt});
    shape(indices, {a.query.size(0), a.groups(), sizes.count});
    if (mode != 0 && mode != 2)
        fail(FaultKind::InvalidArgument, "parameter sparseMode is {}, allowed are 0 and 2", mode);
    if (sizes.chosen <= 0)
        fail(FaultKind::InvalidArgument, "parameter selectedBlockSize is {}, it must be positive", sizes.chosen);
    if (mask.defined()) {
        dtype(mask, {at::kBool, at::kByte});
        rank(mask, {2});
    }
    // (ops-transformer: aclnnNsaSelectedAttention.md)
    tiled_part(
        sizes.chosen % 16 == 0 && sizes.chosen <= 128 && sizes.count <= 32 && a.heads / a.groups() <= 32,
        "selectedBlockSize is {}, selectedBlockCount {} and {} heads share a key: allowed are multiples of 16 up "
        "to 128, up to 32 and up to 32",
        sizes.chosen, sizes.count, a.heads / a.groups());
    for (const Span &one : spans(keys))
        tiled_part(one.length % sizes.chosen == 0 && one.length >= sizes.chosen * sizes.count,
                   "a sequence has {} keys: allowed are multiples of selectedBlockSize {}, at least {} of it",
                   one.length, sizes.chosen, sizes.count);
}

// Calls work(query, group, tokens of the key, left out or undefined) for all queries and groups.
template <class Work>
void for_chosen(const Attended &a, const at::Tensor &indices, bool causal, const Ints &query_ends, const Ints &key_ends,
                const Sizes &sizes, Work work) {
    const std::vector<Span> queries = spans(query_ends), keys = spans(key_ends);
    for (size_t i = 0; i < queries.size(); ++i)
        for (int64_t row = 0; row < queries[i].length; ++row)
            for (int64_t group = 0; group < a.groups(); ++group) {
                const int64_t query = queries[i].start + row;
                const at::Tensor tokens =
                    tokens_of(indices.select(0, query).select(0, group), sizes.chosen, keys[i].length);
                if (tokens.numel() == 0) continue;
                work(query, group, tokens + keys[i].start, causal ? tokens.gt(row) : at::Tensor());
            }
}

// The weights are rounded to the operands' dtype before they meet the values (nsa_selected_attention_kernel.h).
void chosen(const Attended &a, const at::Tensor &indices, const at::Tensor &mask, const Ints &queries, const Ints &keys,
            int64_t mode, const Sizes &sizes, at::Tensor &maximum, at::Tensor &sum, at::Tensor &out) {
    const int64_t of_group = a.heads / a.groups();
    out.zero_();
    for_chosen(a, indices, mask.defined() && mode == 2, queries, keys, sizes,
               [&](int64_t query, int64_t group, const at::Tensor &tokens, const at::Tensor &left_out) {
                   const auto own = [&](const at::Tensor &tensor) {
                       return tensor.select(0, query).narrow(0, group * of_group, of_group);
                   };
                   const WrittenOut found = written_out(own(a.query), a.key.select(1, group).index_select(0, tokens),
                                                        a.value.select(1, group).index_select(0, tokens), a.scale,
                                                        left_out, a.query.scalar_type());
                   own(out).copy_(found.out);
                   own(maximum).copy_(found.maximum.expand({of_group, 8}));
                   own(sum).copy_(found.sum.expand({of_group, 8}));
               });
}

struct Gradients {
    const Operand &out, &grad;
    Operand &query, &key, &value;
};

void check_gradients(const Attended &a, const Gradients &g) {
    same_shape(g.grad, g.out);
    same_dtype(g.grad, g.out);
    for (const auto &[gradient, of] :
         {std::pair<const Operand &, const Operand &>{g.query, a.query}, {g.key, a.key}, {g.value, a.value}}) {
        same_shape(gradient, of);
        same_dtype(gradient, of);
    }
}

void chosen_backward(const Attended &a, const Gradients &g, const at::Tensor &indices, const at::Tensor &mask,
                     const Ints &queries, const Ints &keys, int64_t mode, const Sizes &sizes, const at::Tensor &maximum,
                     const at::Tensor &sum) {
    const int64_t of_group = a.heads / a.groups();
    const at::Tensor grad = widened(g.grad), mean = (grad * widened(g.out)).sum(-1, true);
    const at::Tensor query_grad = at::zeros(a.query.sizes(), at::kFloat);
    const at::Tensor key_grad = at::zeros(a.key.sizes(), at::kFloat);
    const at::Tensor value_grad = at::zeros(a.value.sizes(), at::kFloat);
    for_chosen(a, indices, mask.defined() && mode == 2, queries, keys, sizes,
               [&](int64_t query, int64_t group, const at::Tensor &tokens, const at::Tensor &left_out) {
                   const auto own = [&](const at::Tensor &tensor) {
                       return tensor.select(0, query).narrow(0, group * of_group, of_group);
                   };
                   const WrittenOutGradients found = gradients_written_out(
                       own(a.query), a.key.select(1, group).index_select(0, tokens),
                       a.value.select(1, group).index_select(0, tokens), a.scale, left_out,
                       own(maximum).narrow(1, 0, 1), own(sum).narrow(1, 0, 1), own(grad), own(mean));
                   own(query_grad).copy_(found.query);
                   key_grad.select(1, group).index_add_(0, tokens, found.key);
                   value_grad.select(1, group).index_add_(0, tokens, found.value);
               });
    g.query.copy_(query_grad);
    g.key.copy_(key_grad);
    g.value.copy_(value_grad);
}

}  // namespace
}  // namespace vnpu::opapi::attention

#define COMPRESSION {compressBlockSize, compressStride}
OP(aclnnNsaCompress, attention::check_tokens(input, actSeqLenOptional, layoutOptional, actSeqLenType);
   attention::check_compression(input, weight, COMPRESSION); same_dtype(output, input);
   shape(output, {attention::all_windows(actSeqLenOptional, COMPRESSION), input.size(1), input.size(2)}),
   attention::compress(input, weight, actSeqLenOptional, COMPRESSION, output))
OP(aclnnNsaCompressGrad,
   attention::check_tokens(input, actSeqLenOptionalOptional, layoutOptionalOptional, actSeqLenType);
   attention::check_compression(input, weight, COMPRESSION); same_dtype(outputGrad, input);
   shape(outputGrad, {attention::all_windows(actSeqLenOptionalOptional, COMPRESSION), input.size(1), input.size(2)});
   same_shape(inputGradOut, input); same_dtype(inputGradOut, input); same_shape(weightGradOut, weight);
   same_dtype(weightGradOut, weight), attention::compress_backward(outputGrad, input, weight, actSeqLenOptionalOptional,
                                                                   COMPRESSION, inputGradOut, weightGradOut))
OP(aclnnNsaCompressWithCache,
   attention::check_step(input, weight, slotMapping, blockTableOptional, actSeqLenOptional, COMPRESSION, actSeqLenType,
                         pageBlockSize, layoutOptional, outputCache),
   attention::compress_step({input, blockTableOptional, actSeqLenOptional, actSeqLenType, pageBlockSize}, weight,
                            slotMapping, COMPRESSION, outputCache))

#define ATTENDED {query, key, value, headNum, scaleValue}
#define CHOICE {compressBlockSize, compressStride, selectBlockSize, selectBlockCount}
OP(aclnnNsaCompressAttention,
   attention::check_compressed(ATTENDED, attenMaskOptional, topkMaskOptional, actualSeqQLenOptional,
                               actualCmpSeqKvLenOptional, actualSelSeqKvLenOptional, inputLayout, sparseMode, CHOICE,
                               softmaxMaxOut, softmaxSumOut, attentionOutOut, topkIndicesOut),
   attention::compressed(ATTENDED, attenMaskOptional, topkMaskOptional, actualSeqQLenOptional,
                         actualCmpSeqKvLenOptional, actualSelSeqKvLenOptional, CHOICE, softmaxMaxOut, softmaxSumOut,
                         attentionOutOut, topkIndicesOut))

#define CHOSEN {0, 0, selectedBlockSize, selectedBlockCount}
OP(aclnnNsaSelectedAttention,
   attention::check_chosen(ATTENDED, topkIndices, attenMaskOptional, actualSeqQLenOptional, actualSeqKvLenOptional,
                           inputLayout, sparseMode, CHOSEN, softmaxMaxOut, softmaxSumOut, attentionOut),
   attention::chosen(ATTENDED, topkIndices, attenMaskOptional, actualSeqQLenOptional, actualSeqKvLenOptional,
                     sparseMode, CHOSEN, softmaxMaxOut, softmaxSumOut, attentionOut))
#define GRADIENTS {attentionOut, attentionOutGrad, dqOut, dkOut, dvOut}
OP(aclnnNsaSelectedAttentionGrad,
   attention::check_chosen(ATTENDED, topkIndices, attenMaskOptional, actualSeqQLenOptional, actualSeqKvLenOptional,
                           inputLayout, sparseMode, CHOSEN, softmaxMax, softmaxSum, attentionOut);
   attention::check_gradients(ATTENDED, GRADIENTS),
   attention::chosen_backward(ATTENDED, GRADIENTS, topkIndices, attenMaskOptional, actualSeqQLenOptional,
                              actualSeqKvLenOptional, sparseMode, CHOSEN, softmaxMax, softmaxSum))
