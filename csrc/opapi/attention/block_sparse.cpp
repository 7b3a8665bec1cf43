// Attention over the blocks of keys that a mask gives each block of queries. fp32, rounded once.
// https://gitcode.com/cann/ops-transformer, attention/block_sparse_attention.
#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/attention/attention.h"
#include "opapi/attention/written_out.h"

namespace vnpu::opapi::attention {
namespace {

struct BlockSparse {
    const Operand &query, &key, &value, &blocks;
    const Operand &mask;
    const Ints &block, &query_lengths, &key_lengths;  // the lengths are each batch's own
    std::string query_layout, key_layout;
    int64_t groups, mask_type;
    double scale;

    bool packed() const { return query_layout == "TND"; }
    int64_t heads() const { return query.size(1); }
    int64_t batches() const { return blocks.size(0); }
};

// One batch's, [heads, length, width], of TND or BNSD.
at::Tensor of_batch(const at::Tensor &tensor, const Ints &lengths, bool packed, int64_t batch) {
    if (!packed) {
        const at::Tensor own = tensor.select(0, batch);
        return lengths.empty() ? own : own.narrow(1, 0, lengths[static_cast<size_t>(batch)]);
    }
    int64_t start = 0;
    for (size_t i = 0; i < static_cast<size_t>(batch); ++i) start += lengths[i];
    return tensor.narrow(0, start, lengths[static_cast<size_t>(batch)]).transpose(0, 1);
}

int64_t longest(const Ints &lengths, const at::Tensor &tensor, bool packed) {
    if (!packed) return tensor.size(2);
    int64_t found = 0;
    for (const int64_t length : lengths) found = std::max(found, length);
    return found;
}

void check_lengths(const char *name, const Ints &lengths, const Operand &tensor, bool packed, int64_t batches) {
    if (lengths.empty() && !packed) return;
    int64_t sum = 0;
    bool fits = static_cast<int64_t>(lengths.size()) == batches;
    for (const int64_t length : lengths) {
        sum += length;
        fits = fits && length >= 0 && (packed || length <= tensor.size(2));
    }
    if (!fits || (packed && sum != tensor.size(0)))
        fail(FaultKind::InvalidArgument, "parameter {} does not give the lengths of {} batches of {}", name, batches,
             describe(tensor));
}

void check_blocks(const BlockSparse &a, const Operand &out) {
    dtype(a.query, {at::kHalf, at::kBFloat16});
    if (a.query_layout != a.key_layout || (a.query_layout != "TND" && a.query_layout != "BNSD"))
        fail(FaultKind::InvalidArgument,
             "qInputLayout is \"{}\" and kvInputLayout \"{}\", allowed are TND and BNSD, "
             "both the same",
             a.query_layout, a.key_layout);
    for (const Operand *operand : {&a.query, &a.key, &a.value, &out}) {
        same_dtype(*operand, a.query);
        rank(*operand, {a.packed() ? 3 : 4});
    }
    require(a.blocks);
    dtype(a.blocks, {at::kChar, at::kBool, at::kByte});
    rank(a.blocks, {4});
    if (a.mask.defined() || a.mask_type != 0)
        fail(FaultKind::InvalidArgument, "maskType is {}: the virtual NPU has the mask of blocks alone", a.mask_type);
    if (a.block.size() < 2 || a.block[0] <= 0 || a.block[1] <= 0)
        fail(FaultKind::InvalidArgument, "parameter blockShapeOptional has {} values, expected two positive ones",
             a.block.size());
    if (a.groups <= 0 || a.heads() % a.groups != 0 || a.key.size(1) != a.groups || a.value.size(1) != a.groups)
        fail(FaultKind::InvalidArgument, "numKeyValueHeads is {}, the query {}, the key {}, expected a multiple",
             a.groups, describe(a.query), describe(a.key));
    if (a.key.size(-1) != a.query.size(-1))
        fail(FaultKind::InvalidArgument, "parameter {} is {}, the query {}", a.key.parameter(), describe(a.key),
             describe(a.query));
    if (a.query_lengths.empty() != a.key_lengths.empty())
        fail(FaultKind::InvalidArgument, "actualSeqLengths and actualSeqLengthsKv are given together or not at all");
    check_lengths("actualSeqLengthsOptional", a.query_lengths, a.query, a.packed(), a.batches());
    check_lengths("actualSeqLengthsKvOptional", a.key_lengths, a.key, a.packed(), a.batches());
    const auto blocks = [](int64_t length, int64_t size) { return (length + size - 1) / size; };
    shape(a.blocks, {a.packed() ? a.batches() : a.query.size(0), a.heads(),
                     blocks(longest(a.query_lengths, a.query, a.packed()), a.block[0]),
                     blocks(longest(a.key_lengths, a.key, a.packed()), a.block[1])});
    at::DimVector expected(a.query.sizes());
    expected.back() = a.value.size(-1);
    shape(out, expected);
    // (op-plugin: npu_block_sparse_attention)
    tiled_part(a.block[1] % 128 == 0 && (a.query.size(-1) == 64 || a.query.size(-1) == 128),
               "the block is [{}, {}] and the query {}: allowed are blocks of a multiple of 128 keys and widths of 64 "
               "and 128",
               a.block[0], a.block[1], describe(a.query));
}

void check_sums(const BlockSparse &a, const Operand &lse) {
    require(lse);
    dtype(lse, at::kFloat);
    at::DimVector expected(a.query.sizes());
    expected.back() = 1;
    shape(lse, expected);
}

// What one batch's kernels read, each head with its own keys.
struct Batch {
    at::Tensor query, key, value, left_out, blind;  // blind: [heads, queries, 1], of rows that see no block

    Batch(const BlockSparse &a, int64_t batch) {
        const int64_t repeats = a.heads() / a.groups;
        query = of_batch(a.query, a.query_lengths, a.packed(), batch);
        key = of_batch(a.key, a.key_lengths, a.packed(), batch).repeat_interleave(repeats, 0);
        value = of_batch(a.value, a.key_lengths, a.packed(), batch).repeat_interleave(repeats, 0);
        left_out = a.blocks.select(0, batch)
                       .eq(0)
                       .repeat_interleave(a.block[0], 1)
                       .repeat_interleave(a.block[1], 2)
                       .narrow(1, 0, query.size(1))
                       .narrow(2, 0, key.size(1));
        blind = left_out.all(-1, true);
    }
    bool empty() const { return query.size(1) == 0 || key.size(1) == 0; }
};

void block_sparse(const BlockSparse &a, bool with_sums, at::Tensor &out, at::Tensor &lse) {
    out.zero_();
    if (with_sums) lse.fill_(std::numeric_limits<float>::lowest());
    for (int64_t b = 0; b < a.batches(); ++b) {
        const Batch own(a, b);
        if (own.empty()) continue;
        const WrittenOut found = written_out(own.query, own.key, own.value, a.scale, own.left_out);
        of_batch(out, a.query_lengths, a.packed(), b).copy_(found.out.masked_fill(own.blind, 0));
        if (with_sums)
            of_batch(lse, a.query_lengths, a.packed(), b)
                .copy_((found.maximum + found.sum.log()).masked_fill(own.blind, std::numeric_limits<float>::lowest()));
    }
}

struct BlockGradients {
    const Operand &grad, &out, &lse;
    Operand &query, &key, &value;
};

void check_block_gradients(const BlockSparse &a, const BlockGradients &g) {
    check_blocks(a, g.out);
    check_sums(a, g.lse);
    same_shape(g.grad, g.out);
    same_dtype(g.grad, g.out);
    for (const auto &[gradient, of] :
         {std::pair<const Operand &, const Operand &>{g.query, a.query}, {g.key, a.key}, {g.value, a.value}}) {
        same_shape(gradient, of);
        same_dtype(gradient, of);
    }
}

void block_sparse_backward(const BlockSparse &a, const BlockGradients &g) {
    for (Operand *gradient : {&g.query, &g.key, &g.value}) gradient->zero_();
    for (int64_t b = 0; b < a.batches(); ++b) {
        const Batch own(a, b);
        if (own.empty()) continue;
        const auto of_query = [&](const at::Tensor &tensor) {
            return of_batch(tensor, a.query_lengths, a.packed(), b);
        };
        // A row that sees nothing has no gradient, and neither has its way into keys and values.
        const at::Tensor grad = widened(of_query(g.grad)).masked_fill(own.blind, 0);
        const at::Tensor lse = of_query(g.lse).masked_fill(own.blind, 0);
        const WrittenOutGradients found =
            gradients_written_out(own.query, own.key, own.value, a.scale, own.left_out, lse, at::ones_like(lse), grad,
                                  (grad * widened(of_query(g.out))).sum(-1, true));
        of_query(g.query).copy_(found.query);
        const auto to_group = [&](const at::Tensor &gradient, const at::Tensor &of_heads) {
            of_batch(gradient, a.key_lengths, a.packed(), b)
                .copy_(of_heads.unflatten(0, {a.groups, a.heads() / a.groups}).sum(1));
        };
        to_group(g.key, found.key);
        to_group(g.value, found.value);
    }
}

}  // namespace
}  // namespace vnpu::opapi::attention

#define BLOCKS                   \
    {query,                      \
     key,                        \
     value,                      \
     blockSparseMaskOptional,    \
     attenMaskOptional,          \
     blockShapeOptional,         \
     actualSeqLengthsOptional,   \
     actualSeqLengthsKvOptional, \
     qInputLayout,               \
     kvInputLayout,              \
     numKeyValueHeads,           \
     maskType,                   \
     scaleValue}
OP(aclnnBlockSparseAttention, attention::check_blocks(BLOCKS, attentionOut);
   if (softmaxLseFlag != 0) attention::check_sums(BLOCKS, softmaxLseOptional);
   if (blockTableOptional.defined())
       vnpu::fail(vnpu::FaultKind::InvalidArgument, "parameter blockTableOptional is {}, CANN takes null here",
                  describe(blockTableOptional)),
   attention::block_sparse(BLOCKS, softmaxLseFlag != 0, attentionOut, softmaxLseOptional))
#define BLOCK_GRADIENTS {dout, attentionOut, softmaxLse, dq, dk, dv}
OP(aclnnBlockSparseAttentionGrad, attention::check_block_gradients(BLOCKS, BLOCK_GRADIENTS),
   attention::block_sparse_backward(BLOCKS, BLOCK_GRADIENTS))
