// Queries, keys and values of one product: scaled, turned, and the last two quantised into a cache (ops-transformer:
// dequant_rope_quant_kvcache_tiling.cpp).
#include "opapi/aclnn/limits.h"
#include "opapi/attention/rotation.h"
#include "opapi/quantization/quantization.h"

namespace vnpu::opapi {
namespace {

using quantization::saturate;

struct Joined {
    Operand &x, &cos, &sin, &keys, &values, &places, &key_scale, &value_scale, &key_offset, &value_offset, &weight,
        &row, &bias;
    const Ints &widths;
    const std::string &quant, &layout, &mode;
    bool wanted;
    Operand &query_out, &key_out, &value_out;
};

void check_joined(const Joined &j) {
    for (const Operand *each :
         {&j.x, &j.cos, &j.sin, &j.keys, &j.values, &j.places, &j.key_scale, &j.value_scale, &j.query_out})
        require(*each);
    dtype(j.x, {at::kInt, at::kHalf, at::kBFloat16});
    dtype(j.cos, {at::kHalf, at::kBFloat16});
    same_dtype(j.sin, j.cos);
    dtype(j.keys, {at::kChar});
    dtype(j.values, {at::kChar});
    dtype(j.places, {at::kInt});
    for (const Operand *each : {&j.key_scale, &j.value_scale, &j.key_offset, &j.value_offset, &j.weight, &j.row})
        if (each->defined()) dtype(*each, {at::kFloat});
    if (j.bias.defined()) dtype(j.bias, kNative | at::kInt);
    const bool integers = j.x.scalar_type() == at::kInt, paged = j.mode == "page";
    tiled(j.quant.empty() || j.quant == "static", "parameter quantModeOptional is \"{}\", allowed is static", j.quant);
    tiled(j.layout.empty() || j.layout == "BSND", "parameter layoutOptional is \"{}\", allowed is BSND", j.layout);
    tiled(paged || j.mode.empty() || j.mode == "contiguous",
          "parameter cacheModeOptional is \"{}\", allowed are contiguous and page", j.mode);
    tiled(j.widths.size() == 3 && j.widths[0] >= 0 && j.widths[1] >= 0 && j.widths[1] == j.widths[2],
          "parameter sizeSplits has {} values, expected 3, of which the last two are equal", j.widths.size());
    tiled(j.x.dim() == 2 || j.x.dim() == 3, "parameter x is {}, expected 2 or 3 dimensions", describe(j.x));
    const int64_t total = j.widths[0] + 2 * j.widths[1], rows = j.x.numel() / std::max<int64_t>(total, 1);
    tiled(j.x.size(-1) == total, "parameter x is {}, expected rows of {}", describe(j.x), total);
    tiled(j.keys.dim() == 4 && j.values.sizes() == j.keys.sizes(),
          "kCacheRef is {} and vCacheRef {}, expected 4 "
          "dimensions and the same shape",
          describe(j.keys), describe(j.values));
    const int64_t width = j.keys.size(3);
    tiled(j.keys.size(2) * width == j.widths[1] && width % 16 == 0 && j.widths[0] % width == 0,
          "parameter kCacheRef is {}, which does not fit rows of {} and {}, multiples of 16", describe(j.keys),
          j.widths[0], j.widths[1]);
    for (const Operand *each : {&j.cos, &j.sin})
        tiled(each->numel() == rows * width && each->dim() == (j.x.dim() == 2 ? 2 : 4) && each->size(-1) == width,
              "parameter {} is {}, expected a row of {} for each of x, {}", each->parameter(), describe(*each), width,
              describe(j.x));
    tiled(j.places.dim() == 1 && j.places.size(0) == (paged ? rows : j.x.size(0)),
          "parameter indices is {}, expected {} values", describe(j.places), paged ? rows : j.x.size(0));
    tiled(paged || j.keys.size(0) >= j.x.size(0), "parameter kCacheRef is {}, expected at least {} batches",
          describe(j.keys), j.x.size(0));
    for (const Operand *each : {&j.key_scale, &j.value_scale, &j.key_offset, &j.value_offset})
        if (each->defined())
            tiled(each->numel() == j.widths[1], "parameter {} is {}, expected {} values", each->parameter(),
                  describe(*each), j.widths[1]);
    tiled(integers == j.weight.defined(), "parameter weightScaleOptional is {} beside x, {}: int32 needs it",
          describe(j.weight), describe(j.x));
    for (const auto &[each, count] : {std::pair{&j.weight, total}, {&j.row, rows}, {&j.bias, total}})
        if (each->defined())
            tiled(each->numel() == count, "parameter {} is {}, expected {} values", each->parameter(), describe(*each),
                  count);
}

void joined(const Joined &j) {
    const int64_t total = j.widths[0] + 2 * j.widths[1], width = j.keys.size(3);
    at::Tensor value = j.x.reshape({-1, total});
    const bool before = j.bias.defined() && j.bias.scalar_type() == at::kInt;
    if (before) value = value + j.bias.reshape({-1});
    value = value.to(at::kFloat);
    if (j.weight.defined()) value = value * j.weight.reshape({-1});
    if (j.row.defined()) value = value * j.row.reshape({-1, 1});
    if (j.bias.defined() && !before) value = value + widened(j.bias).reshape({-1});
    const int64_t rows = value.size(0);
    const auto part = [&](int64_t begin, int64_t length) {
        return value.narrow(1, begin, length).reshape({rows, -1, width});
    };
    const at::Tensor cos = j.cos.reshape({rows, 1, width}), sin = j.sin.reshape({rows, 1, width});
    const at::Tensor query = turned(part(0, j.widths[0]), cos, sin);
    const at::Tensor key = turned(part(j.widths[0], j.widths[1]), cos, sin);
    const at::Tensor plain = part(j.widths[0] + j.widths[1], j.widths[1]);
    j.query_out.copy_(query.reshape(j.query_out.sizes()));
    if (j.wanted) {
        j.key_out.copy_(key.reshape(j.key_out.sizes()));
        j.value_out.copy_(plain.reshape(j.value_out.sizes()));
    }
    const at::Tensor places = j.places.to(at::kLong).contiguous();
    const int64_t each = j.mode == "page" ? 1 : rows / std::max<int64_t>(places.size(0), 1), size = j.keys.size(1);
    const auto store = [&](Operand &cache, const at::Tensor &from, const at::Tensor &scale, const at::Tensor &offset) {
        at::Tensor scaled = from * scale.reshape({1, -1, width});
        if (offset.defined()) scaled = scaled + offset.reshape({1, -1, width});
        at::Tensor whole = at::empty(from.sizes(), at::kChar);
        saturate(whole, scaled);
        for (int64_t row = 0; row < rows; ++row) {
            const int64_t place = places.const_data_ptr<int64_t>()[row / each] + row % each;
            const int64_t page = j.mode == "page" ? place / size : row / each;
            const int64_t at = j.mode == "page" ? place % size : place;
            TORCH_CHECK_INDEX(place >= 0 && page < cache.size(0) && at < size, "index ", place,
                              " is past the end of the cache");
            cache[page][at].copy_(whole[row]);
        }
    };
    store(j.keys, key, j.key_scale, j.key_offset);
    store(j.values, plain, j.value_scale, j.value_offset);
}

}  // namespace
}  // namespace vnpu::opapi

#define JOINED                \
    {x,                       \
     cos,                     \
     sin,                     \
     kCacheRef,               \
     vCacheRef,               \
     indices,                 \
     scaleK,                  \
     scaleV,                  \
     offsetKOptional,         \
     offsetVOptional,         \
     weightScaleOptional,     \
     activationScaleOptional, \
     biasOptional,            \
     sizeSplits,              \
     quantModeOptional,       \
     layoutOptional,          \
     cacheModeOptional,       \
     kvOutput,                \
     qOut,                    \
     kOut,                    \
     vOut}

OP(aclnnDequantRopeQuantKvcache, optional(kOut, vOut); check_joined(JOINED), joined(JOINED))
