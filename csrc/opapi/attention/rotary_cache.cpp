// Rotary position embeddings from a table, and those that write keys and values into a cache in the same kernel. In
// float32, rounded once.
#include "opapi/aclnn/limits.h"
#include "opapi/attention/rotation.h"
#include "opapi/quantization/quantization.h"

namespace vnpu::opapi {
namespace {

using quantization::saturate;

// Halves that lie interleaved, one behind the other.
at::Tensor parted(const at::Tensor &x) { return x.unflatten(-1, {-1, 2}).transpose(-1, -2).flatten(-2); }

constexpr int64_t kRotated = 64;

// ops-transformer: interleave_rope_tiling.cpp
void check_interleave(const Operand &x, const Operand &cos, const Operand &sin, const Operand &out) {
    for (const Operand *each : {&x, &cos, &sin, &out}) {
        require(*each);
        dtype(*each, {at::kHalf, at::kBFloat16});
        same_dtype(*each, x);
        tiled(each->dim() == 4, "parameter {} is {}, expected 4 dimensions", each->parameter(), describe(*each));
    }
    tiled(x.numel() > 0 && x.size(3) == kRotated, "parameter x is {}, expected [..., 64]", describe(x));
    tiled(sin.sizes() == cos.sizes(), "parameter sin is {}, expected the shape of cos, {}", describe(sin),
          describe(cos));
    tiled(cos.size(0) == x.size(0) && cos.size(1) == 1 && (cos.size(2) == 1 || cos.size(2) == x.size(2)) &&
              cos.size(3) == kRotated,
          "parameter cos is {}, expected [{}, 1, {} or 1, 64]", describe(cos), x.size(0), x.size(2));
    same_shape(out, x);
}

// ops-transformer: aclnn_rope_with_sin_cos_cache.cpp
void check_table(const Operand &positions, const Operand &query, const Operand &key, const Operand &table,
                 const Ints &sections, int64_t head, const Operand &query_out, const Operand &key_out) {
    for (const Operand *each : {&positions, &query, &key, &table, &query_out, &key_out}) require(*each);
    for (const Operand *each : {&query, &key, &table}) {
        rank(*each, {2});
        dtype(*each, kNative);
    }
    dtype(positions, {at::kInt, at::kLong});
    same_shape(query_out, query);
    same_shape(key_out, key);
    if (key.size(0) != query.size(0))
        fail(FaultKind::InvalidArgument, "parameter keyIn is {}, expected as many rows as queryIn, {}", describe(key),
             describe(query));
    if (head < 1 || query.size(1) % head != 0 || key.size(1) % head != 0 || table.size(1) > head ||
        table.size(1) % 2 != 0)
        fail(FaultKind::InvalidArgument,
             "parameter headSize is {}, expected a divisor of the rows of queryIn, {}, and keyIn, {}, not less than "
             "those of cosSinCache, {}",
             head, describe(query), describe(key), describe(table));
    const bool three = positions.dim() == 2 && positions.size(0) == 3;
    if ((positions.dim() != 1 && !three) || positions.size(-1) != query.size(0))
        fail(FaultKind::InvalidArgument, "parameter positions is {}, expected [{}] or [3, {}]", describe(positions),
             query.size(0), query.size(0));
    if (three && sections.size() != 3)
        fail(FaultKind::InvalidArgument, "parameter mropeSection has {} values, expected 3", sections.size());
}

// Each pair's angle is that of one of three positions (text, height, width): by parts, or in turns.
at::Tensor sectioned(const at::Tensor &three, const Ints &sections, bool in_turns) {
    if (in_turns) {
        at::Tensor result = three[0].clone();
        for (const int64_t which : {1, 2}) {
            const int64_t end = std::min(sections[1] * 3, result.size(-1));
            if (which < end) result.slice(-1, which, end, 3).copy_(three[which].slice(-1, which, end, 3));
        }
        return result;
    }
    std::vector<at::Tensor> parts;
    int64_t begin = 0;
    for (int64_t i = 0; i < 3; ++i) {
        parts.push_back(three[i].slice(-1, begin, begin + sections[static_cast<size_t>(i)]));
        begin += sections[static_cast<size_t>(i)];
    }
    return at::cat(parts, -1);
}

void from_table(const at::Tensor &positions, const at::Tensor &query, const at::Tensor &key, const at::Tensor &table,
                const Ints &sections, int64_t head, bool halves, bool in_turns, at::Tensor &query_out,
                at::Tensor &key_out) {
    const at::Tensor rows =
        widened(table).index_select(0, positions.to(at::kLong).reshape({-1})).view({-1, query.size(0), table.size(1)});
    const at::Tensor angles = positions.dim() == 2 ? at::cat({sectioned(rows.chunk(2, -1)[0], sections, in_turns),
                                                              sectioned(rows.chunk(2, -1)[1], sections, in_turns)},
                                                             -1)
                                                   : rows[0];
    const at::Tensor cos = angles.chunk(2, -1)[0].unsqueeze(1), sin = angles.chunk(2, -1)[1].unsqueeze(1);
    const int64_t width = cos.size(-1) * 2;
    const auto rotate = [&](const at::Tensor &x, at::Tensor &out) {
        const at::Tensor wide = widened(x).reshape({x.size(0), -1, head}), part = wide.narrow(-1, 0, width);
        const at::Tensor pairs = halves ? part : parted(part);
        const at::Tensor a = pairs.chunk(2, -1)[0], b = pairs.chunk(2, -1)[1];
        const at::Tensor c = a * cos - b * sin, d = b * cos + a * sin;
        const at::Tensor result = halves ? at::cat({c, d}, -1) : at::stack({c, d}, -1).flatten(-2);
        out.copy_(at::cat({result, wide.narrow(-1, width, head - width)}, -1).reshape(x.sizes()));
    };
    rotate(query, query_out);
    rotate(key, key_out);
}

at::Tensor normalised(const at::Tensor &x, const at::Tensor &gamma, double epsilon) {
    return x / at::sqrt(x.square().mean({-1}, true) + epsilon) * widened(gamma);
}

// Where a cache of pages takes the rows of a batch: at a row each, or at a page for as many as fit into one; its rows
// one behind another, or in columns of 32 bytes (NZ).
struct Pages {
    bool plain, by_page, laid_out;  // plain: no pages, a cache for each batch
};

Pages pages(const std::string &mode) {
    const std::string name = mode.empty() ? "Norm" : mode;
    const bool known = name == "Norm" || name == "PA" || name == "PA_BNSD" || name == "PA_NZ" ||
                       name == "PA_BLK_BNSD" || name == "PA_BLK_NZ";
    tiled(known, "parameter cacheModeOptional is \"{}\", allowed are Norm, PA, PA_BNSD, PA_NZ, PA_BLK_BNSD, PA_BLK_NZ",
          mode);
    return {name == "Norm", name.starts_with("PA_BLK"), name.ends_with("_NZ")};
}

// `rows` is [batch, tokens, width]. Negative places are left out.
void into_cache(at::Tensor &cache, const at::Tensor &rows, const at::Tensor &index, const Pages &how) {
    const at::Tensor places = index.to(at::kLong).contiguous().view({-1});
    const int64_t batch = rows.size(0), tokens = rows.size(1), width = rows.size(2);
    at::Tensor stored = at::empty(rows.sizes(), cache.options());
    if (cache.scalar_type() == at::kChar)
        saturate(stored, rows);
    else
        stored.copy_(rows);
    at::Tensor lies = cache;
    const int64_t size = how.plain ? cache.size(2) : cache.size(1);  // of a page
    if (how.laid_out) {
        const int64_t block = 32 / cache.element_size();
        lies = cache.view({cache.size(0), width / block, size, block});
    }
    const int64_t each = how.by_page ? (tokens + size - 1) / size : tokens;
    for (int64_t b = 0; b < batch; ++b)
        for (int64_t t = 0; t < tokens; ++t) {
            const int64_t place = places.const_data_ptr<int64_t>()[b * each + (how.by_page ? t / size : t)];
            if (place < 0) continue;
            const int64_t page = how.plain ? b : place / size;
            const int64_t row = how.by_page ? t % size : how.plain ? place : place % size;
            TORCH_CHECK_INDEX(page < cache.size(0) && row < size, "index ", place, " is past the end of the cache");
            if (how.laid_out)
                lies.select(0, page).select(1, row).copy_(stored[b][t].view({lies.size(1), lies.size(3)}));
            else if (how.plain)
                cache[page][0][row].copy_(stored[b][t]);
            else
                cache[page][row].copy_(stored[b][t].view(cache[page][row].sizes()));
        }
}

struct Cached {
    Operand &kv, &gamma, &cos, &sin, &index, &keys, &values, &key_scale, &value_scale, &key_offset, &value_offset;
    double epsilon;
    const std::string &mode;
    bool wanted;
    Operand &key_out, &value_out;
};

// op-plugin: KvRmsNormRopeCacheNpuOpApi.cpp and torch_npu-npu_kv_rmsnorm_rope_cache.md. With v the whole of kv is
// normalised, and its first 64 values are turned; without it the rest of kv is the value.
void check_cached(const Cached &c, const Operand &v) {
    for (const Operand *each : {&c.kv, &c.gamma, &c.cos, &c.sin, &c.index, &c.keys, &c.values}) require(*each);
    for (const Operand *each : {&c.kv, &c.gamma, &c.cos, &c.sin}) dtype(*each, {at::kHalf, at::kBFloat16});
    dtype(c.index, {at::kLong});
    const Pages how = pages(c.mode);
    tiled(c.kv.dim() == 4 && c.kv.size(1) == 1, "parameter kv is {}, expected [batch, 1, tokens, width]",
          describe(c.kv));
    const int64_t turned_width = v.defined() ? kRotated : c.kv.size(3) - c.gamma.numel();
    const int64_t key_width = v.defined() ? c.kv.size(3) : turned_width;
    const int64_t value_width = v.defined() ? v.size(-1) : c.gamma.numel();
    tiled(c.gamma.dim() == 1 && turned_width == kRotated && (!v.defined() || c.gamma.numel() == c.kv.size(3)),
          "parameter gamma is {}, which leaves no 64 values of kv, {}", describe(c.gamma), describe(c.kv));
    for (const Operand *each : {&c.cos, &c.sin})
        tiled(each->dim() == 4 && each->size(0) == c.kv.size(0) && each->size(1) == 1 &&
                  (each->size(2) == c.kv.size(2) || each->size(2) == 1) && each->size(3) == kRotated,
              "parameter {} is {}, expected [{}, 1, {}, 64]", each->parameter(), describe(*each), c.kv.size(0),
              c.kv.size(2));
    const auto cache = [&](const Operand &each, const Operand &scale, int64_t width) {
        dtype(each, {at::kHalf, at::kBFloat16, at::kChar});
        tiled(each.dim() == 4 && each.size(3) == width && each.size(how.plain ? 1 : 2) == 1,
              "parameter {} is {}, expected 4 dimensions, one of them 1, of {} values", each.parameter(),
              describe(each), width);
        if (scale.defined())
            tiled(scale.numel() == width || scale.numel() == 1, "parameter {} is {}, expected {} values",
                  scale.parameter(), describe(scale), width);
        tiled((each.scalar_type() == at::kChar) == scale.defined(), "parameter {} is {} beside {}", scale.parameter(),
              describe(scale), describe(each));
    };
    cache(c.keys, c.key_scale, key_width);
    cache(c.values, c.value_scale, value_width);
    const int64_t size = how.plain ? 1 : c.keys.size(1);
    const int64_t each = how.by_page ? (c.kv.size(2) + size - 1) / size : c.kv.size(2);
    tiled(c.index.numel() == c.kv.size(0) * each, "parameter index is {}, expected {} values", describe(c.index),
          c.kv.size(0) * each);
}

void cached(const Cached &c, const at::Tensor &v) {
    const at::Tensor wide = widened(c.kv);
    const int64_t width = c.gamma.numel();
    at::Tensor key, value;
    if (v.defined()) {
        const at::Tensor all = normalised(wide, c.gamma, c.epsilon);
        key = at::cat(
            {turned(parted(all.narrow(-1, 0, kRotated)), c.cos, c.sin), all.narrow(-1, kRotated, width - kRotated)},
            -1);
        value = widened(v);
    } else {
        value = normalised(wide.narrow(-1, 0, width), c.gamma, c.epsilon);
        key = turned(parted(wide.narrow(-1, width, wide.size(-1) - width)), c.cos, c.sin);
    }
    if (c.wanted) {
        if (c.key_out.defined()) c.key_out.copy_(key);
        if (c.value_out.defined()) c.value_out.copy_(value);
    }
    const Pages how = pages(c.mode);
    const auto stored = [&](const at::Tensor &rows, const at::Tensor &scale, const at::Tensor &offset, Operand &cache) {
        at::Tensor scaled = scale.defined() ? rows * scale : rows;
        if (offset.defined()) scaled = scaled + offset;
        into_cache(cache, scaled.squeeze(1), c.index, how);
    };
    stored(key, c.key_scale, c.key_offset, c.keys);
    stored(value, c.value_scale, c.value_offset, c.values);
}

// --- queries, keys and values of several heads (op-plugin: QkvRmsNormRopeCacheNpuOpApi.cpp and its test)

struct Heads {
    Operand &qkv, &query_gamma, &key_gamma, &cos, &sin, &index, &query, &keys, &values, &key_scale, &value_scale,
        &key_offset, &value_offset;
    const Ints &sizes, &counts;
    double epsilon;
    const std::string &mode;
    Operand &query_out, &key_out, &value_out;
};

void check_heads(const Heads &h) {
    for (const Operand *each :
         {&h.qkv, &h.query_gamma, &h.key_gamma, &h.cos, &h.sin, &h.index, &h.query, &h.keys, &h.values})
        require(*each);
    for (const Operand *each : {&h.qkv, &h.query_gamma, &h.key_gamma, &h.cos, &h.sin, &h.query}) {
        dtype(*each, {at::kHalf, at::kBFloat16});
        same_dtype(*each, h.qkv);
    }
    dtype(h.index, {at::kLong});
    tiled(h.mode == "PA_NZ", "parameter cacheModeOptional is \"{}\", allowed is PA_NZ", h.mode);
    tiled(h.sizes.size() == 4 && h.counts.size() == 3 && h.counts[0] + h.counts[1] + h.counts[2] == h.sizes[2],
          "qkvSize has {} values and headNums {}, expected [batch, tokens, heads, width] and three that come to the "
          "heads",
          h.sizes.size(), h.counts.size());
    const int64_t rows = h.sizes[0] * h.sizes[1], width = h.sizes[3];
    tiled(h.qkv.dim() == 2 && h.qkv.size(0) == rows && h.qkv.size(1) == h.sizes[2] * width,
          "parameter qkv is {}, expected [{}, {}]", describe(h.qkv), rows, h.sizes[2] * width);
    for (const Operand *each : {&h.query_gamma, &h.key_gamma})
        tiled(each->dim() == 1 && each->size(0) == width, "parameter {} is {}, expected [{}]", each->parameter(),
              describe(*each), width);
    for (const Operand *each : {&h.cos, &h.sin})
        tiled(each->dim() == 2 && each->size(0) == rows && each->size(1) == width,
              "parameter {} is {}, expected [{}, {}]", each->parameter(), describe(*each), rows, width);
    tiled(h.index.numel() == rows, "parameter index is {}, expected {} values", describe(h.index), rows);
    tiled(h.query.numel() == rows * h.counts[0] * width, "parameter qOut is {}, expected [{}, {}]", describe(h.query),
          rows, h.counts[0] * width);
    const auto cache = [&](const Operand &each, const Operand &scale, int64_t heads) {
        tiled(
            each.dim() == 4 && each.size(3) * each.element_size() == 32 && each.size(1) * each.size(3) == heads * width,
            "parameter {} is {}, expected [pages, {} in blocks of 32 bytes, rows, block]", each.parameter(),
            describe(each), heads * width);
        tiled((each.scalar_type() == at::kChar) == scale.defined(), "parameter {} is {} beside {}", scale.parameter(),
              describe(scale), describe(each));
        if (scale.defined())
            tiled(scale.numel() == heads * width, "parameter {} is {}, expected {} values", scale.parameter(),
                  describe(scale), heads * width);
    };
    cache(h.keys, h.key_scale, h.counts[1]);
    cache(h.values, h.value_scale, h.counts[2]);
}

void heads(Heads h) {
    const int64_t rows = h.qkv.size(0), width = h.sizes[3];
    const std::vector<at::Tensor> parts =
        widened(h.qkv).view({rows, -1, width}).split_with_sizes({h.counts[0], h.counts[1], h.counts[2]}, 1);
    const at::Tensor cos = h.cos.unsqueeze(1), sin = h.sin.unsqueeze(1);
    const at::Tensor query = turned(normalised(parts[0], h.query_gamma, h.epsilon), cos, sin).flatten(1);
    const at::Tensor key = turned(normalised(parts[1], h.key_gamma, h.epsilon), cos, sin).flatten(1);
    const at::Tensor value = parts[2].flatten(1);
    h.query.copy_(query.view(h.query.sizes()));
    give(h.query_out, query);
    give(h.key_out, key);
    give(h.value_out, value);
    const auto stored = [&](const at::Tensor &from, const at::Tensor &scale, const at::Tensor &offset, Operand &cache) {
        at::Tensor scaled = scale.defined() ? from / scale.reshape({-1}) : from;
        if (offset.defined()) scaled = scaled + offset.reshape({-1});
        // Pages of columns, as into_cache lays rows out.
        at::Tensor pages = cache.view({cache.size(0), cache.size(2), 1, -1});
        into_cache(pages, scaled.unsqueeze(0), h.index, {false, false, true});
    };
    stored(key, h.key_scale, h.key_offset, h.keys);
    stored(value, h.value_scale, h.value_offset, h.values);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnInterleaveRope, check_interleave(x, cos, sin, out), out.copy_(turned(parted(widened(x)), cos, sin)))
OP(aclnnRopeWithSinCosCache,
   check_table(positions, queryIn, keyIn, cosSinCache, mropeSection, headSize, queryOut, keyOut),
   from_table(positions, queryIn, keyIn, cosSinCache, mropeSection, headSize, isNeoxStyle, false, queryOut, keyOut))
OP(aclnnRopeWithSinCosCacheV2,
   if (cacheMode != 0 && cacheMode != 1)
       fail(vnpu::FaultKind::InvalidArgument, "parameter cacheMode is {}, allowed are 0 (by parts) and 1 (in turns)",
            cacheMode);
   check_table(positions, queryIn, keyIn, cosSinCache, mropeSection, headSize, queryOut, keyOut),
   from_table(positions, queryIn, keyIn, cosSinCache, mropeSection, headSize, isNeoxStyle, cacheMode == 1, queryOut,
              keyOut))

#define CACHED            \
    {kv,                  \
     gamma,               \
     cos,                 \
     sin,                 \
     index,               \
     kCacheRef,           \
     ckvCacheRef,         \
     kRopeScaleOptional,  \
     cKvScaleOptional,    \
     kRopeOffsetOptional, \
     cKvOffsetOptional,   \
     epsilon,             \
     cacheModeOptional,   \
     isOutputKv,          \
     kRopeOut,            \
     cKvOut}

OP(aclnnKvRmsNormRopeCache, optional(kRopeOut, cKvOut);
   check_cached(CACHED, Operand(nullptr, "v")), cached(CACHED, at::Tensor()))
OP(aclnnKvRmsNormRopeCacheV2, optional(kRopeOut, cKvOut); check_cached(CACHED, vOptional), cached(CACHED, vOptional))

#define HEADS           \
    {qkv,               \
     qGamma,            \
     kGamma,            \
     cos,               \
     sin,               \
     index,             \
     qOut,              \
     kCache,            \
     vCache,            \
     kScaleOptional,    \
     vScaleOptional,    \
     kOffsetOptional,   \
     vOffsetOptional,   \
     qkvSize,           \
     headNums,          \
     epsilon,           \
     cacheModeOptional, \
     qOutBeforeQuant,   \
     kOutBeforeQuant,   \
     vOutBeforeQuant}

OP(aclnnQkvRmsNormRopeCache, optional(qOutBeforeQuant, kOutBeforeQuant, vOutBeforeQuant);
   check_heads(HEADS), heads(HEADS))
