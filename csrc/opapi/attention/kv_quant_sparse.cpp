// Attention over named keys that are stored in 8 bits: a token is its int8 part, which is key and value, its rotary
// part in the query's dtype, and a float32 factor for each tile of the first, byte behind byte.
// https://gitcode.com/cann/ops-transformer, attention/kv_quant_sparse_flash_attention.
#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/attention/token_sets.h"
#include "opapi/attention/written_out.h"

namespace vnpu::opapi::attention {
namespace {

struct Stored {
    const Operand &query, &key, &indices;
    double scale;
    Sight sight;
    int64_t tile, rope;

    int64_t width() const { return query.size(-1) - rope; }  // of the part in 8 bits
    int64_t bytes() const { return width() + 2 * rope + 4 * (width() / tile); }
};

void check_stored(const Stored &a, const Operand &value, std::initializer_list<const Operand *> reserved,
                  std::initializer_list<int64_t> modes, int64_t attention_mode, int64_t repository,
                  const Operand &out) {
    dtype(a.query, {at::kHalf, at::kBFloat16});
    same_dtype(out, a.query);
    for (const Operand *operand : {&a.key, &value}) dtype(*operand, {at::kChar});
    for (const Operand *operand : reserved)
        if (operand->defined())
            fail(FaultKind::InvalidArgument, "parameter {} is {}, CANN takes null here", operand->parameter(),
                 describe(*operand));
    for (const int64_t mode : modes)
        if (mode != 2) fail(FaultKind::InvalidArgument, "a quantisation mode is {}, allowed is 2: by tile", mode);
    if (attention_mode != 2 || repository != 1)
        fail(FaultKind::InvalidArgument, "attention_mode is {} and quant_scale_repo_mode {}, allowed are 2 and 1",
             attention_mode, repository);
    check_mode(a.sight.mode, {kAll, kRightDown});
    if (a.tile <= 0 || a.rope < 0 || a.sight.block <= 0 || a.width() <= 0 || a.width() % a.tile != 0)
        fail(FaultKind::InvalidArgument,
             "tile_size is {}, rope_head_dim {} and sparse_block_size {}, which do not fit the query {}", a.tile,
             a.rope, a.sight.block, describe(a.query));
    if (a.key.size(-1) != a.bytes() || a.key.size(-2) != 1)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected one head of {} bytes", a.key.parameter(),
             describe(a.key), a.bytes());
    same_shape(value, a.key);
    dtype(a.indices, {at::kInt});
    at::DimVector expected(a.query.sizes());
    expected.back() = a.width();
    shape(out, expected);
    expected.back() = a.indices.size(-1);
    expected[expected.size() - 2] = 1;
    shape(a.indices, expected);
    // (op-plugin: npu_kv_quant_sparse_flash_attention)
    tiled(a.query.size(-1) == 576 && a.rope == 64 && a.tile == 128,
          "the query is {}, rope_head_dim {} and tile_size {}: allowed are a width of 576, 64 and 128",
          describe(a.query), a.rope, a.tile);
}

// As the kernels restore it, in the query's dtype: [tokens, width], and with the rotary part behind it.
std::pair<at::Tensor, at::Tensor> restored(const Stored &a, const at::Tensor &tokens) {
    const at::Tensor bytes = tokens.select(1, 0);
    const auto part = [&](int64_t start, int64_t length, at::ScalarType dtype) {
        return bytes.narrow(1, start, length).contiguous().view(dtype);
    };
    const at::Tensor rope = part(a.width(), 2 * a.rope, a.query.scalar_type());
    const at::Tensor factors = part(a.width() + 2 * a.rope, 4 * (a.width() / a.tile), at::kFloat);
    const at::Tensor value =
        (bytes.narrow(1, 0, a.width()).to(at::kFloat) * factors.repeat_interleave(a.tile, 1)).to(a.query.scalar_type());
    return {value, at::cat({value, rope}, 1)};
}

void attend_stored(const Stored &a, const TokenSets &queries, const TokenSets &keys, at::Tensor &out) {
    out.zero_();
    for (int64_t b = 0; b < queries.batches(a.query); ++b) {
        const at::Tensor query = queries.of(a.query, b), indices = queries.of(a.indices, b).select(1, 0);
        const auto [value, key] = restored(a, keys.of(a.key, b));
        const at::Tensor own = queries.of(out, b);
        for (int64_t row = 0; row < query.size(0); ++row) {
            const at::Tensor tokens =
                a.sight.tokens(indices.select(0, row), row + key.size(0) - query.size(0), key.size(0));
            if (tokens.numel() == 0) continue;
            own.select(0, row).copy_(
                written_out(query.select(0, row), key.index_select(0, tokens), value.index_select(0, tokens), a.scale)
                    .out);
        }
    }
}

}  // namespace
}  // namespace vnpu::opapi::attention

// Its parameters have no names in public: in torch_npu's order, query, key, value, sparse_indices, key_dequant_scale,
// value_dequant_scale, block_table, the lengths of queries and keys, scale_value, the two quantisation modes,
// sparse_block_size, the two layouts, sparse_mode, pre_tokens, next_tokens, attention_mode, quant_scale_repo_mode,
// tile_size, rope_head_dim, out.
#define STORED {a0, a1, a3, a9, {a12, a15, a16, a17}, a20, a21}
OP(aclnnKvQuantSparseFlashAttention, optional(a4, a5, a6, a7, a8); attention::check_sets(a0, a7, a13, a1, a8, a14, a6);
   attention::check_stored(STORED, a2, {&a4, &a5}, {a10, a11}, a18, a19, a22),
   attention::attend_stored(STORED, attention::TokenSets(a7, a13), attention::TokenSets(a8, a14, a6), a22))
