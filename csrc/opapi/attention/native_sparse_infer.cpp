// Native sparse attention of one new token of each sequence, whose keys and values lie in a paged cache.
#include <algorithm>

#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/attention/native_sparse.h"

namespace vnpu::opapi::attention {
namespace {

struct Step {
    const Operand &query, &key, &value, &table;
    const Ints &query_lengths, &key_lengths;
    int64_t heads, groups;
    double scale;
    std::string layout;
    int64_t page;

    int64_t count() const { return static_cast<int64_t>(key_lengths.size()); }
    // [sequences, heads, width]
    at::Tensor tokens(const at::Tensor &tensor) const { return tensor.reshape({count(), heads, -1}); }
    int64_t width(const Operand &cache) const { return cache.dim() == 4 ? cache.size(3) : cache.size(2) / groups; }
    // A sequence's keys or values, [groups, length, width].
    at::Tensor rows(const Operand &cache, int64_t sequence) const {
        const int64_t length = key_lengths[static_cast<size_t>(sequence)];
        const at::Tensor blocks = table.select(0, sequence).narrow(0, 0, (length + page - 1) / page).to(at::kLong);
        const at::Tensor tokens = cache.index_select(0, blocks).flatten(0, 1).narrow(0, 0, length);
        return tokens.reshape({length, groups, width(cache)}).transpose(0, 1);
    }
    at::Tensor grouped(const at::Tensor &tokens, int64_t sequence) const {
        return tokens.select(0, sequence).unflatten(0, {groups, heads / groups});
    }
};

void check_step(const Step &step, std::initializer_list<std::string_view> layouts, const Operand &out) {
    if (std::ranges::count(layouts, std::string_view(step.layout)) == 0)
        fail(FaultKind::InvalidArgument, "parameter layoutOptional is \"{}\", which the operator does not have",
             step.layout);
    for (const Operand *operand : {&step.query, &step.key, &step.value, &out}) {
        dtype(*operand, {at::kHalf, at::kBFloat16});
        same_dtype(*operand, step.query);
    }
    require(step.table);
    dtype(step.table, {at::kInt});
    rank(step.table, {2});
    rank(step.key, {3, 4});
    rank(step.value, {step.key.dim()});
    if (step.heads <= 0 || step.groups <= 0 || step.heads % step.groups != 0)
        fail(FaultKind::InvalidArgument, "numHeads is {} and numKeyValueHeads {}, expected a multiple", step.heads,
             step.groups);
    for (const int64_t length : step.query_lengths)
        if (length != 1)
            fail(FaultKind::InvalidArgument,
                 "parameter actualQSeqLenOptional has the value {}: the virtual NPU has one query of each sequence",
                 length);
    const int64_t width = step.width(step.key), value_width = step.width(step.value);
    if (step.query.numel() != step.count() * step.heads * width ||
        out.numel() != step.count() * step.heads * value_width)
        fail(FaultKind::InvalidArgument,
             "the query is {}, the result {}, expected {} sequences with one query of {} heads of the widths {} and {}",
             describe(step.query), describe(out), step.count(), step.heads, width, value_width);
    if (step.key.dim() == 4) {
        for (const Operand *cache : {&step.key, &step.value})
            if (cache->size(2) != step.groups)
                fail(FaultKind::InvalidArgument, "parameter {} is {}, expected {} heads", cache->parameter(),
                     describe(*cache), step.groups);
    }
    if (step.key.size(1) != step.page || step.value.size(1) != step.page || step.table.size(0) != step.count())
        fail(FaultKind::InvalidArgument,
             "parameter {} is {}: it needs a row for each of {} sequences and blocks of pageBlockSize {}",
             step.table.parameter(), describe(step.table), step.count(), step.page);
    for (const int64_t length : step.key_lengths)
        if (length < 1 || length > step.table.size(1) * step.page)
            fail(FaultKind::InvalidArgument, "a sequence has {} keys, allowed are 1 to {}", length,
                 step.table.size(1) * step.page);
}

// The blocks of tokens that the compressed ones of a sequence stand for.
int64_t blocks_of(int64_t compressed, const Sizes &sizes) {
    const int64_t tokens = (compressed - 1) * sizes.stride + sizes.block;
    return (tokens + sizes.chosen - 1) / sizes.chosen;
}

void check_compressed(const Step &step, const Operand &chosen_mask, const Sizes &sizes, const Operand &out,
                      const Operand &indices) {
    check_step(step, {"TND", "BSND"}, out);
    check_choice(sizes);
    if (chosen_mask.defined())
        fail(FaultKind::InvalidArgument, "parameter {} is {}, CANN takes null here", chosen_mask.parameter(),
             describe(chosen_mask));
    dtype(indices, {at::kInt});
    if (indices.numel() != step.count() * step.groups * sizes.count)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected {} sequences, {} heads and {} blocks",
             indices.parameter(), describe(indices), step.count(), step.groups, sizes.count);
    // The first block and the last two are always chosen.
    if (sizes.count < 3)
        fail(FaultKind::InvalidArgument, "parameter selectBlockCount is {}, it must be at least 3", sizes.count);
    for (const int64_t length : step.key_lengths)
        if (sizes.count > blocks_of(length, sizes))
            fail(FaultKind::PartRefused, "selectBlockCount is {}, a sequence of {} compressed tokens has {} blocks",
                 sizes.count, length, blocks_of(length, sizes));
}

void compressed(const Step &step, const Sizes &sizes, at::Tensor &out, at::Tensor &indices) {
    const at::Tensor queries = step.tokens(step.query);
    std::vector<at::Tensor> results, chosen;
    for (int64_t b = 0; b < step.count(); ++b) {
        const WrittenOut found =
            written_out(step.grouped(queries, b), step.rows(step.key, b), step.rows(step.value, b), step.scale);
        results.push_back(found.out);
        const int64_t blocks = blocks_of(step.key_lengths[static_cast<size_t>(b)], sizes);
        const at::Tensor matters = importance(found.weights.unsqueeze(2), blocks, sizes).select(1, 0);
        const at::Tensor always = at::tensor(std::vector<int64_t>{0, blocks - 2, blocks - 1}, at::kLong);
        const at::Tensor others = most_important(matters.narrow(1, 1, blocks - 3), sizes.count - 3) + 1;
        chosen.push_back(at::cat({always.expand({step.groups, 3}), others}, 1));
    }
    if (step.count() == 0) return;
    out.copy_(at::stack(results).view(out.sizes()));
    indices.copy_(at::stack(chosen).view(indices.sizes()));
}

void check_chosen(const Step &step, const Operand &indices, const Sizes &sizes, const Operand &out) {
    check_step(step, {"TND", "BSND", "BSH"}, out);
    dtype(indices, {at::kInt});
    if (indices.numel() != step.count() * step.groups * sizes.count)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected {} sequences, {} heads and {} blocks",
             indices.parameter(), describe(indices), step.count(), step.groups, sizes.count);
    if (sizes.chosen <= 0)
        fail(FaultKind::InvalidArgument, "parameter selectBlockSize is {}, it must be positive", sizes.chosen);
}

void chosen(const Step &step, const at::Tensor &indices, const Sizes &sizes, at::Tensor &out) {
    const at::Tensor queries = step.tokens(step.query);
    const at::Tensor named = indices.reshape({step.count(), step.groups, sizes.count});
    at::Tensor result =
        at::zeros({step.count(), step.groups, step.heads / step.groups, step.width(step.value)}, at::kFloat);
    for (int64_t b = 0; b < step.count(); ++b) {
        const at::Tensor key = step.rows(step.key, b), value = step.rows(step.value, b);
        for (int64_t group = 0; group < step.groups; ++group) {
            const at::Tensor tokens = tokens_of(named.select(0, b).select(0, group), sizes.chosen, key.size(1));
            if (tokens.numel() == 0) continue;
            result.select(0, b).select(0, group).copy_(
                written_out(step.grouped(queries, b).select(0, group), key.select(0, group).index_select(0, tokens),
                            value.select(0, group).index_select(0, tokens), step.scale)
                    .out);
        }
    }
    out.copy_(result.view(out.sizes()));
}

}  // namespace
}  // namespace vnpu::opapi::attention

#define STEP(LENGTHS)       \
    {query,                 \
     key,                   \
     value,                 \
     blockTableOptional,    \
     actualQSeqLenOptional, \
     LENGTHS,               \
     numHeads,              \
     numKeyValueHeads,      \
     scaleValue,            \
     layoutOptional,        \
     pageBlockSize}
#define CHOICE {compressBlockSize, compressBlockStride, selectBlockSize, selectBlockCount}
OP(aclnnNsaCompressAttentionInfer,
   attention::check_compressed(STEP(actualCmpKvSeqLenOptional), topKMaskOptional, CHOICE, output, topKOutput),
   attention::compressed(STEP(actualCmpKvSeqLenOptional), CHOICE, output, topKOutput))
OP(aclnnNsaSelectedAttentionInfer,
   attention::check_chosen(STEP(actualKvSeqLenOptional), topkIndices, {0, 0, selectBlockSize, selectBlockCount},
                           output),
   attention::chosen(STEP(actualKvSeqLenOptional), topkIndices, {0, 0, selectBlockSize, selectBlockCount}, output))
