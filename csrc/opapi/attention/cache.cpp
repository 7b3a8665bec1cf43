// Keys and values of one batch, wherever they lie.
#include "opapi/attention/cache.h"

#include "opapi/quantization/quantization.h"

namespace vnpu::opapi::attention {
namespace {

// Paged caches are [blocks, block, heads * width], [blocks, heads, block, width], or, in NZ, [blocks, heads, width / w,
// block, w].
int64_t block_dimension(const at::Tensor &cache) { return cache.dim() == 3 ? 1 : cache.dim() == 4 ? 2 : 3; }

bool is_packed(const std::string &layout) { return layout == "TND" || layout == "NTD"; }

}  // namespace

int64_t Cache::block() const { return tensors.front().size(block_dimension(tensors.front())); }

int64_t Cache::width() const {
    const at::Tensor &first = tensors.front();
    const int64_t packed = quantization::packed(first) ? 8 : 1;
    if (paged() && first.dim() == 5) return first.size(2) * first.size(4) * packed;
    const bool heads_inside = paged() ? first.dim() == 3 : layout == "BSH";
    return first.size(-1) * packed / (heads_inside ? heads : 1);
}

at::Tensor Cache::own(int64_t batch) const {
    if (is_packed(layout)) return heads_first(tensors.front(), layout, heads).select(0, 0);
    const bool shared = tensors.size() == 1;
    return heads_first(tensors[shared ? 0 : static_cast<size_t>(batch)], layout, heads).select(0, shared ? batch : 0);
}

int64_t Cache::longest(int64_t batch) const { return paged() ? table.size(1) * block() : own(batch).size(1); }

// [heads, length, width]
at::Tensor Cache::blocks_of(const at::Tensor &cache, int64_t batch, int64_t length) const {
    const int64_t size = block();
    const at::Tensor chosen =
        cache.index_select(0, table.select(0, batch).narrow(0, 0, (length + size - 1) / size).to(at::kLong));
    if (cache.dim() == 3)
        return chosen.flatten(0, 1).unflatten(1, {heads, chosen.size(2) / heads}).transpose(0, 1).narrow(1, 0, length);
    if (cache.dim() == 4) return chosen.transpose(0, 1).flatten(1, 2).narrow(1, 0, length);
    return chosen.permute({1, 0, 3, 2, 4}).flatten(3, 4).flatten(1, 2).narrow(1, 0, length);
}

// Scales or offsets, as they broadcast to [heads, length, width].
at::Tensor Cache::factors(const at::Tensor &factor, int64_t batch, int64_t start, int64_t length) const {
    const at::Tensor wide = factor.to(at::kFloat);
    switch (antiquant.mode) {
        case kByToken:
            return wide.reshape({-1, wide.size(-1)})
                .select(0, batch)
                .narrow(0, start, length)
                .unsqueeze(0)
                .unsqueeze(-1);
        case kByHead:
            return wide.reshape({heads, 1, 1});
        case kByTokenAndHead:
            return wide.reshape({-1, heads, wide.size(-1)}).select(0, batch).narrow(1, start, length).unsqueeze(-1);
        case kPagedByToken:
        case kPagedByTokenAndHead: {
            const at::Tensor by_head = antiquant.mode == kPagedByToken ? wide.unsqueeze(1) : wide;
            return blocks_of(by_head.unsqueeze(-1), batch, length);
        }
        default:
            return wide.numel() == 1 ? wide.reshape({1, 1, 1}) : wide.reshape({heads, 1, -1});
    }
}

// The kernels restore what was quantised to the query's dtype before they multiply.
at::Tensor Cache::restored(const at::Tensor &stored, int64_t batch, int64_t start, int64_t length,
                           at::ScalarType dtype) const {
    if (!antiquant.scale.defined()) return stored;
    at::Tensor wide = stored.to(at::kFloat);
    if (antiquant.offset.defined()) wide = wide + factors(antiquant.offset, batch, start, length);
    return (wide * factors(antiquant.scale, batch, start, length)).to(dtype);
}

at::Tensor Cache::rows(int64_t batch, int64_t start, int64_t length, at::ScalarType dtype) const {
    const auto unpacked = [](const at::Tensor &tensor) {
        return quantization::packed(tensor) ? quantization::unpacked_int4(tensor.contiguous()) : tensor;
    };
    const at::Tensor stored = paged() ? blocks_of(tensors.front(), batch, length) : own(batch).narrow(1, start, length);
    const at::Tensor found = restored(unpacked(stored), batch, start, length, dtype);
    if (!prefix.defined()) return found;
    const at::Tensor before = heads_first(prefix, layout, heads).select(0, 0).narrow(1, 0, prefix_length);
    // By channel: factors of tokens belong to the batches' own.
    return at::cat({restored(unpacked(before), batch, start, length, dtype), found}, 1);
}

}  // namespace vnpu::opapi::attention
