// Attention without gradients: prompts (many queries) and increments (one query, keys from a cache). fp32, rounded
// once. Quantised caches are refused.
#include <limits>

#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

struct Call {
    int64_t heads, key_heads;  // key_heads 0: as many as heads
    double scale;
    std::string layout;  // BSH, BSND, BNSD, BNSD_BSND
    int64_t sparse_mode = 0, pre_tokens = 0, next_tokens = 0;

    int64_t of_keys() const { return key_heads > 0 ? key_heads : heads; }
};

void refuse(std::initializer_list<const Operand *> operands) {
    for (const Operand *operand : operands)
        if (operand->defined() && operand->numel() > 0)
            fail(FaultKind::InvalidArgument, "parameter {} is {}: the virtual NPU has no quantised or padded caches",
                 operand->parameter(), describe(*operand));
}

void check_call(const Call &call, const Operand &query, const Operand &out) {
    if (call.layout != "BSH" && call.layout != "BSND" && call.layout != "BNSD" && call.layout != "BNSD_BSND")
        fail(FaultKind::InvalidArgument,
             "parameter inputLayout is \"{}\", the virtual NPU offers BSH, BSND, BNSD and BNSD_BSND", call.layout);
    rank(query, {call.layout == "BSH" ? 3 : 4});
    network(query, out);
    if (call.heads <= 0 || call.heads % call.of_keys() != 0)
        fail(FaultKind::InvalidArgument, "numHeads is {} and numKeyValueHeads {}, expected a multiple", call.heads,
             call.key_heads);
    if (call.sparse_mode < 0 || call.sparse_mode > 4)
        fail(FaultKind::InvalidArgument, "parameter sparseMode is {}, allowed are 0 to 4", call.sparse_mode);
    if (out.numel() != query.numel())
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected the elements of {}", out.parameter(),
             describe(out), describe(query));
}

void check_mask(const Operand &mask) {
    if (mask.defined()) dtype(mask, {at::kBool, at::kChar, at::kByte});
}

// [batch, heads, length, width]
at::Tensor heads_first(const at::Tensor &tensor, const std::string &layout, int64_t heads) {
    if (layout == "BSH") return tensor.unflatten(2, {heads, -1}).transpose(1, 2);
    return layout == "BSND" ? tensor.transpose(1, 2) : tensor;
}

// Scores that do not count, [queries, keys], from the sparse mode alone; undefined where the mask says it all.
at::Tensor triangle(const Call &call, int64_t queries, int64_t keys) {
    if (call.sparse_mode < 2) return {};
    const at::Tensor i = at::arange(queries, at::kLong).unsqueeze(1), j = at::arange(keys, at::kLong);
    const int64_t shift = call.sparse_mode == 2 ? 0 : keys - queries;
    const int64_t next = call.sparse_mode == 4 ? call.next_tokens : 0;
    at::Tensor out = j.gt(i + shift + next);
    if (call.sparse_mode == 4) out = out.logical_or(j.lt(i + shift - call.pre_tokens));
    return out;
}

// The part of a mask that is for batch b: [queries, keys] or [heads or 1, queries, keys].
at::Tensor of_batch(const at::Tensor &mask, int64_t batch, int64_t queries, int64_t keys) {
    at::Tensor part = mask;
    if (part.dim() >= 3) part = part.select(0, part.size(0) == 1 ? 0 : batch);
    if (part.dim() == 1) part = part.unsqueeze(0);
    const int64_t rows = std::min(queries, part.size(-2));
    return part.narrow(-2, 0, rows).narrow(-1, 0, std::min(keys, part.size(-1)));
}

// One batch: query [heads, queries, width], key and value [key heads, keys, width].
at::Tensor attend(const Call &call, const at::Tensor &query, at::Tensor key, at::Tensor value, const at::Tensor &pse,
                  const at::Tensor &mask, int64_t batch) {
    const int64_t repeats = call.heads / call.of_keys(), queries = query.size(1), keys = key.size(1);
    key = widened(key).repeat_interleave(repeats, 0);
    value = widened(value).repeat_interleave(repeats, 0);
    at::Tensor scores = at::matmul(widened(query), key.transpose(1, 2)) * call.scale;
    if (pse.defined()) scores = scores + widened(of_batch(pse, batch, queries, keys));
    at::Tensor out = triangle(call, queries, keys);
    if (!out.defined() && mask.defined()) out = of_batch(mask, batch, queries, keys).to(at::kBool);
    if (out.defined()) scores = scores.masked_fill(out, -std::numeric_limits<float>::infinity());
    return at::matmul(at::softmax(scores, -1).nan_to_num_(0), value);  // a query without keys gives zeros
}

int64_t length(const Ints &lengths, int64_t batch, int64_t otherwise) {
    if (lengths.empty()) return otherwise;
    return lengths[lengths.size() == 1 ? 0 : static_cast<size_t>(batch)];
}

void check_lengths(const Ints &lengths, int64_t batches, int64_t longest, const char *name) {
    if (!lengths.empty() && lengths.size() != 1 && static_cast<int64_t>(lengths.size()) < batches)
        fail(FaultKind::InvalidArgument, "parameter {} has {} values, expected 1 or {}", name, lengths.size(), batches);
    for (const int64_t value : lengths)
        if (value < 0 || value > longest)
            fail(FaultKind::InvalidArgument, "parameter {} has the value {}, allowed is 0 to {}", name, value, longest);
}

void check_prompt(const Call &call, const Operand &query, const Operand &key, const Operand &value, const Operand &mask,
                  const Ints &queries, const Ints &keys, const Operand &out) {
    check_call(call, query, out);
    check_mask(mask);
    same_dtype(key, query);
    same_dtype(value, query);
    same_shape(value, key);
    rank(key, {query.dim()});
    const int dim = call.layout.starts_with("BNSD") ? 2 : 1;
    check_lengths(queries, query.size(0), query.size(dim), "actualSeqLengths");
    check_lengths(keys, query.size(0), key.size(dim), "actualSeqLengthsKv");
}

void prompt(const Call &call, const at::Tensor &query, const at::Tensor &key, const at::Tensor &value,
            const at::Tensor &pse, const at::Tensor &mask, const Ints &query_lengths, const Ints &key_lengths,
            at::Tensor &out) {
    const at::Tensor q = heads_first(query, call.layout, call.heads);
    const at::Tensor k = heads_first(key, call.layout, call.of_keys());
    const at::Tensor v = heads_first(value, call.layout, call.of_keys());
    const at::Tensor result = heads_first(out, call.layout == "BNSD_BSND" ? "BSND" : call.layout, call.heads);
    result.zero_();  // queries behind the actual lengths
    for (int64_t b = 0; b < q.size(0); ++b) {
        const int64_t queries = length(query_lengths, b, q.size(2)), keys = length(key_lengths, b, k.size(2));
        if (queries == 0 || keys == 0) continue;
        result.select(0, b)
            .narrow(1, 0, queries)
            .copy_(attend(call, q.select(0, b).narrow(1, 0, queries), k.select(0, b).narrow(1, 0, keys),
                          v.select(0, b).narrow(1, 0, keys), pse, mask, b));
    }
}

// --- increments

void check_increment(const Call &call, const Operand &query, const Operands &key, const Operands &value,
                     const Operand &mask, const Ints &lengths, const Operand &table, int64_t block,
                     const Operand &out) {
    check_call(call, query, out);
    check_mask(mask);
    if (key.size() != value.size() || (key.size() != 1 && static_cast<int64_t>(key.size()) != query.size(0)))
        fail(FaultKind::InvalidArgument, "key has {} tensors and value {}, expected 1 or {}, one for each batch",
             key.size(), value.size(), query.size(0));
    for (size_t i = 0; i < key.size(); ++i) {
        same_dtype(key[i], query);
        same_shape(value[i], key[i]);
    }
    if (!table.defined()) return;
    dtype(table, {at::kInt});
    rank(table, {2});
    rank(key.front(), {3});
    if (block <= 0 || key.front().size(1) != block || lengths.empty() || table.size(0) != query.size(0))
        fail(FaultKind::InvalidArgument,
             "parameter blocktable is {}: it needs actualSeqLengths, a row for each batch, and a cache of blocks of {}",
             describe(table), block);
}

// A batch's keys [key heads, length, width], from the blocks that its row of the table names.
at::Tensor from_blocks(const at::Tensor &cache, const at::Tensor &row, int64_t length, int64_t block, int64_t heads) {
    const at::Tensor blocks = row.narrow(0, 0, (length + block - 1) / block).to(at::kLong);
    return cache.index_select(0, blocks).flatten(0, 1).narrow(0, 0, length).unflatten(1, {heads, -1}).transpose(0, 1);
}

void increment(const Call &call, const at::Tensor &query, const Operands &key, const Operands &value,
               const at::Tensor &pse, const at::Tensor &mask, const Ints &lengths, const at::Tensor &table,
               int64_t block, at::Tensor &out) {
    const at::Tensor q = heads_first(query, call.layout, call.heads);
    const at::Tensor result = heads_first(out, call.layout, call.heads);
    for (int64_t b = 0; b < q.size(0); ++b) {
        const auto of = [&](const Operands &list) {
            if (table.defined())
                return from_blocks(list.front(), table.select(0, b), length(lengths, b, 0), block, call.of_keys());
            const bool shared = list.size() == 1;
            return heads_first(list[shared ? 0 : static_cast<size_t>(b)], call.layout, call.of_keys())
                .select(0, shared ? b : 0);
        };
        at::Tensor k = of(key), v = of(value);
        const int64_t keys = length(lengths, b, k.size(1));
        if (keys == 0) {
            result.select(0, b).zero_();
            continue;
        }
        result.select(0, b).copy_(
            attend(call, q.select(0, b), k.narrow(1, 0, keys), v.narrow(1, 0, keys), pse, mask, b));
    }
}

}  // namespace
}  // namespace vnpu::opapi

#define PROMPT {numHeads, numKeyValueHeads, scaleValue, inputLayout, sparseMode, preTokens, nextTokens}
OP(aclnnPromptFlashAttentionV3,
   optional(pseShift, attenMask, deqScale1, quantScale1, deqScale2, quantScale2, quantOffset2);
   refuse({&deqScale1, &quantScale1, &deqScale2, &quantScale2, &quantOffset2});
   check_prompt(PROMPT, query, key, value, attenMask, actualSeqLengths, actualSeqLengthsKv, attentionOut),
   prompt(PROMPT, query, key, value, pseShift, attenMask, actualSeqLengths, actualSeqLengthsKv, attentionOut))
#define INCREMENT {numHeads, numKeyValueHeads, scaleValue, inputLayout}
OP(aclnnIncreFlashAttentionV4, optional(pseShift, attenMask, dequantScale1, quantScale1, dequantScale2, quantScale2,
                                        quantOffset2, antiquantScale, antiquantOffset, blocktable, kvPaddingSize);
   refuse({&dequantScale1, &quantScale1, &dequantScale2, &quantScale2, &quantOffset2, &antiquantScale, &antiquantOffset,
           &kvPaddingSize});
   check_increment(INCREMENT, query, key, value, attenMask, actualSeqLengths, blocktable, blockSize, attentionOut),
   increment(INCREMENT, query, key, value, pseShift, attenMask, actualSeqLengths, blocktable, blockSize, attentionOut))
