// Tokens into and out of a paged cache of keys and values. Moves values, computes nothing.
// https://gitcode.com/cann/ops-transformer, attention/scatter_pa_kv_cache, attention/gather_pa_kv_cache.
#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kStored{at::kHalf,  at::kBFloat16, at::kFloat,  at::kChar,  at::kByte,
                         at::kShort, at::kInt,      at::kUInt16, at::kUInt32};

// ATen's indexing lacks the wide unsigned integers.
at::Tensor indexable(const at::Tensor &tensor) {
    if (tensor.scalar_type() == at::kUInt16) return tensor.view(at::kShort);
    return tensor.scalar_type() == at::kUInt32 ? tensor.view(at::kInt) : tensor;
}

// "Norm": [blocks, block, heads, width]; "PA_NZ": [blocks, heads * width / w, block, w]. Null is Norm.
bool in_fractals(const std::string &mode) {
    if (mode != "Norm" && mode != "PA_NZ" && !mode.empty())
        fail(FaultKind::InvalidArgument, "parameter cacheMode is \"{}\", allowed are Norm and PA_NZ", mode);
    return mode == "PA_NZ";
}

// [blocks, block, ...]
at::Tensor by_token(const at::Tensor &cache, bool fractals) { return fractals ? cache.transpose(1, 2) : cache; }

void check_cache(const Operand &tokens, const Operand &cache, bool fractals) {
    dtype(tokens, kStored);
    same_dtype(cache, tokens);
    rank(cache, {4});
    rank(tokens, {2, 3});
    const at::IntArrayRef sizes = cache.sizes();
    const int64_t width = fractals ? sizes[1] * sizes[3] : sizes[2] * sizes[3];
    const int64_t own = tokens.size(0) == 0 ? width : tokens.numel() / tokens.size(0);
    if (own != width || (!fractals && tokens.dim() == 3 && tokens.size(1) != sizes[2]))
        fail(FaultKind::InvalidArgument, "parameter {} is {}, which does not fit {} {}", tokens.parameter(),
             describe(tokens), cache.parameter(), describe(cache));
}

void check_same_tokens(const Operand &key, const Operand &value) {
    if (value.size(0) != key.size(0))
        fail(FaultKind::InvalidArgument, "parameter {} is {}, the key {}", value.parameter(), describe(value),
             describe(key));
}

void check_scatter(const Operand &key, const Operand &key_cache, const Operand &slots, const Operand &value,
                   const Operand &value_cache, std::initializer_list<const Operand *> compression,
                   const std::string &mode, const std::string &scatter) {
    const bool fractals = in_fractals(mode);
    if (scatter != "None" && !scatter.empty())
        fail(FaultKind::InvalidArgument, "parameter scatterModeOptional is \"{}\", the virtual NPU offers None",
             scatter);
    for (const Operand *operand : compression)
        if (operand->defined())
            fail(FaultKind::InvalidArgument, "parameter {} is {}: the virtual NPU does not compress what it stores",
                 operand->parameter(), describe(*operand));
    dtype(slots, {at::kInt, at::kLong});
    check_cache(key, key_cache, fractals);
    shape(slots, {key.size(0)});
    if (value.defined() != value_cache.defined())
        fail(FaultKind::NullArgument, "parameters {} and {} are given together or not at all", value.parameter(),
             value_cache.parameter());
    if (!value.defined() || (value.numel() == 0 && value_cache.numel() == 0)) return;
    same_dtype(value, key);
    check_cache(value, value_cache, fractals);
    check_same_tokens(key, value);
}

// A negative slot is padding.
void scatter(const at::Tensor &tokens, const at::Tensor &slots, bool fractals, at::Tensor &cache) {
    if (!tokens.defined() || tokens.numel() == 0) return;
    const at::Tensor all = slots.to(at::kLong), kept = all.ge(0).nonzero().squeeze(1);
    const at::Tensor own = all.index_select(0, kept), places = by_token(indexable(cache), fractals);
    at::DimVector sizes(places.sizes().slice(1));
    sizes[0] = kept.numel();
    const at::Tensor rows = indexable(tokens).index_select(0, kept).reshape(sizes);
    at::Tensor target = places;
    target.index_put_({at::floor_divide(own, places.size(1)), own.remainder(places.size(1))}, rows);
}

void check_gather(const Operand &cache, const Operand &table, const Operand &lengths, const Operand &offsets,
                  const Operand &tokens, bool fractals, bool running_totals) {
    // (ops-transformer: aclnnGatherPaKvCache.md)
    dtype(cache, {at::kChar, at::kHalf, at::kBFloat16});
    check_cache(tokens, cache, fractals);
    for (const Operand *operand : {&table, &lengths}) dtype(*operand, {at::kInt});
    rank(table, {2});
    shape(lengths, {table.size(0) + (running_totals ? 1 : 0)});
    if (!offsets.defined()) return;
    dtype(offsets, {at::kInt});
    shape(offsets, {table.size(0)});
}

// Where the table names no block, zeros.
void gather(const at::Tensor &cache, const at::Tensor &table, const at::Tensor &lengths, const at::Tensor &offsets,
            bool fractals, bool running_totals, at::Tensor &tokens) {
    const at::Tensor places = by_token(cache, fractals);
    const int64_t size = places.size(1), room = tokens.size(0);
    int64_t filled = 0;
    for (int64_t b = 0; b < table.size(0) && filled < room; ++b) {
        int64_t length = lengths[running_totals ? b + 1 : b].item<int64_t>();
        if (running_totals) length -= lengths[b].item<int64_t>();
        length = std::min(length, room - filled);
        if (length <= 0) continue;
        const int64_t first = offsets.defined() ? offsets[b].item<int64_t>() / size : 0;
        const at::Tensor at = at::arange(length, at::kLong), column = at::floor_divide(at, size) + first;
        at::Tensor block = table.select(0, b).to(at::kLong).index_select(0, column.clamp_max(table.size(1) - 1));
        block = block.masked_fill(column.ge(table.size(1)), -1);
        const at::Tensor missing = block.lt(0).logical_or(block.ge(places.size(0)));
        const at::Tensor found = places.index({block.clamp(0, places.size(0) - 1), at.remainder(size)});
        at::Tensor rows = found.flatten(1).masked_fill(missing.unsqueeze(1), 0);
        tokens.narrow(0, filled, length).copy_(rows.reshape(tokens.narrow(0, filled, length).sizes()));
        filled += length;
    }
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnScatterPaKvCache, optional(value, valueCacheRef);
   check_scatter(key, keyCacheRef, slotMapping, value, valueCacheRef,
                 {&compressLensOptional, &compressSeqOffsetOptional, &seqLensOptional}, cacheModeOptional,
                 scatterModeOptional),
   scatter(key, slotMapping, in_fractals(cacheModeOptional), keyCacheRef);
   if (valueCacheRef.defined()) scatter(value, slotMapping, in_fractals(cacheModeOptional), valueCacheRef))
OP(aclnnGatherPaKvCache,
   check_gather(keyCache, blockTables, seqLens, seqOffsetOptional, keyRef, in_fractals(cacheMode), isSeqLensCumsum);
   check_gather(valueCache, blockTables, seqLens, seqOffsetOptional, valueRef, in_fractals(cacheMode), isSeqLensCumsum);
   check_same_tokens(keyRef, valueRef),
   gather(keyCache, blockTables, seqLens, seqOffsetOptional, in_fractals(cacheMode), isSeqLensCumsum, keyRef);
   gather(valueCache, blockTables, seqLens, seqOffsetOptional, in_fractals(cacheMode), isSeqLensCumsum, valueRef))
