// What comes before the attention of DeepSeek's models while they infer: queries by way of a narrow row, their part
// without positions already times the keys' own weights, and the narrow rows of keys and values into a cache. bfloat16
// products are rounded where hardware stores them; int8 ones stay in float32 until they are an operand again.
// https://gitcode.com/cann/ops-transformer, attention/mla_prolog.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "device/fault.h"
#include "opapi/aclnn/format.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"
#include "opapi/attention/mla_prolog.h"
#include "opapi/attention/rotation.h"
#include "opapi/quantization/quantization.h"

namespace vnpu::opapi {
namespace {

using quantization::saturate;

enum Weights : int64_t { kPlain, kUpQuantized, kAllQuantized };
enum Stored : int64_t { kAsComputed, kByTensor, kByChannel, kByTile };
constexpr int64_t kNarrow = 512, kTurned = 64, kTile = 128, kTiledRow = kNarrow + 2 * kTurned + 4 * (kNarrow / kTile);

struct Modes {
    int64_t weights, stored, query, joined, with_scales, tile;
    std::string cache;
    bool quantized_query() const { return stored == kByTensor; }
    bool paged() const { return cache.starts_with("PA_"); }
};

struct Prolog {
    Operand &x, &down, &up, &key, &down_kv;  // the weights: but for `key`, in FRACTAL_NZ
    const Operand &gamma_q, &gamma_kv, &sin, &cos, &index;
    Operand &kv_cache, &kr_cache;
    const Operand &scale_x, &scale_down, &scale_up, &scale_down_kv, &scale_kv, &scale_kr, &smooth, &lengths, &clip;
    double epsilon_q, epsilon_kv, factor_q, factor_kv;
    Modes modes;
    Operand &query, &turned_query, &query_scale, &normed, &normed_scale;
    bool third;          // the version
    bool first = false;  // of the old API, which has brought the weights out of FRACTAL_NZ

    int64_t tokens() const { return x.numel() / std::max<int64_t>(x.size(-1), 1); }
    int64_t heads() const { return key.size(0); }
    int64_t width() const { return key.size(1); }
    int64_t wide() const { return down.size(1); }
};

// What the dtypes of the second version's operands say.
Modes modes_of(const Operand &x, const Operand &up, const Operand &kv_cache, const std::string &cache) {
    const auto integers = [](const Operand &operand) {
        return operand.defined() && operand.scalar_type() == at::kChar;
    };
    const int64_t weights = integers(x) ? kAllQuantized : integers(up) ? kUpQuantized : kPlain;
    const int64_t stored = !integers(kv_cache) ? kAsComputed : weights == kAllQuantized ? kByTensor : kByChannel;
    return {weights, stored, stored == kByTensor, 0, 0, kTile, cache.empty() ? "PA_BSND" : cache};
}

void check_modes(const Modes &m, bool third) {
    tiled(m.weights >= kPlain && m.weights <= kAllQuantized, "parameter weightQuantMode is {}, allowed are 0, 1 and 2",
          m.weights);
    const bool together = m.stored == kAsComputed || (m.stored == kByTensor && m.weights == kAllQuantized) ||
                          (m.stored == kByChannel && m.weights == kUpQuantized) ||
                          (m.stored == kByTile && m.weights != kPlain);
    if (!together)
        fail(FaultKind::TilingRefused,
             "parameters weightQuantMode and kvCacheQuantMode are {} and {}, which do not go together", m.weights,
             m.stored);
    const int64_t tiles = m.stored == kByTile;
    tiled(m.query == m.quantized_query(), "parameter queryQuantMode is {}, expected {} with kvCacheQuantMode {}",
          m.query, static_cast<int>(m.quantized_query()), m.stored);
    tiled(m.joined == tiles && m.with_scales == tiles,
          "parameters ckvkrRepoMode and quantScaleRepoMode are {} and {}, expected {} with kvCacheQuantMode {}",
          m.joined, m.with_scales, tiles, m.stored);
    tiled(m.tile == kTile, "parameter tileSize is {}, allowed is {}", m.tile, kTile);
    const bool pages = m.cache == "PA_BSND" || m.cache == "PA_NZ";
    const bool others = m.cache == "PA_BLK_BSND" || m.cache == "PA_BLK_NZ" || m.cache == "BSND" || m.cache == "TND";
    if (!pages && !(third && others))
        fail(FaultKind::TilingRefused, "parameter cacheModeOptional is \"{}\", allowed are {}", m.cache,
             third ? "PA_BSND, PA_NZ, PA_BLK_BSND, PA_BLK_NZ, BSND and TND" : "PA_BSND and PA_NZ");
    tiled(!tiles || m.cache == "PA_BSND" || m.cache == "BSND" || m.cache == "TND",
          "parameter cacheModeOptional is \"{}\", which kvCacheQuantMode 3 does not allow", m.cache);
}

void is(const Operand &operand, at::ScalarType dtype, at::IntArrayRef sizes) {
    if (!operand.defined()) fail(FaultKind::TilingRefused, "parameter {} is null", operand.parameter());
    if (operand.scalar_type() != dtype || operand.sizes() != sizes)
        fail(FaultKind::TilingRefused, "parameter {} is {}, expected {}[{}]", operand.parameter(), describe(operand),
             c10::toString(dtype), fmt::join(sizes, ", "));
}

// Given where it is needed, and nowhere else.
void only_if(bool needed, const Operand &operand, at::ScalarType dtype, at::IntArrayRef sizes) {
    if (needed) return is(operand, dtype, sizes);
    tiled(!operand.defined() || operand.numel() == 0, "parameter {} is given, which these modes do not allow",
          operand.parameter());
}

at::DimVector followed(const Operand &x, std::initializer_list<int64_t> by) {
    at::DimVector sizes(x.sizes().begin(), x.sizes().end() - 1);
    sizes.append(by.begin(), by.end());
    return sizes;
}

void check_sizes(const Prolog &p) {
    for (const Operand *matrix : {&p.down, &p.up, &p.down_kv}) {
        require(*matrix);
        tiled(matrix->dim() == 2 && (p.first || static_cast<bool>(matrix->layout())),
              "parameter {} is {}, expected a matrix in FRACTAL_NZ", matrix->parameter(), describe(*matrix));
    }
    required(p.x, p.key, p.kv_cache, p.kr_cache, p.query, p.turned_query);
    tiled(p.x.dim() == 2 || p.x.dim() == 3, "parameter tokenX is {}, expected 2 or 3 dimensions", describe(p.x));
    tiled(p.key.dim() == 3, "parameter weightUk is {}, expected 3 dimensions", describe(p.key));
    const auto one_of = [](const Operand &operand, int64_t size, std::initializer_list<int64_t> allowed) {
        tiled(std::ranges::count(allowed, size) != 0, "parameter {} is {}: one of its sizes is {}, allowed are {}",
              operand.parameter(), describe(operand), size, fmt::join(allowed, ", "));
    };
    one_of(p.x, p.x.size(-1), {1024, 2048, 3072, 4096, 5120, 6144, 7168, 7680, 8192});
    one_of(p.key, p.heads(), {1, 2, 4, 8, 16, 32, 64, 128});
    if (p.third) {
        one_of(p.down, p.wide(), {1536, 2048});
        one_of(p.key, p.width(), {128, 192});
    } else {
        one_of(p.down, p.wide(), {1536});
        one_of(p.key, p.width(), {128});
    }
}

void check_cache(const Prolog &p) {
    const Modes &m = p.modes;
    const bool tiles = m.stored == kByTile, bytes = m.stored != kAsComputed;
    const int64_t row = tiles ? kTiledRow : kNarrow;
    at::DimVector before;  // of a row
    if (m.paged()) {
        tiled(p.kv_cache.dim() == 4, "parameter kvCacheRef is {}, expected 4 dimensions", describe(p.kv_cache));
        const int64_t size = p.kv_cache.size(1);
        tiled(size >= 16 && size <= 1024 && size % 16 == 0,
              "parameter kvCacheRef is {}: allowed are blocks of a multiple of 16 tokens, up to 1024",
              describe(p.kv_cache));
        before = {p.kv_cache.size(0), size, 1};
    } else {
        tiled(p.x.dim() == (m.cache == "TND" ? 2 : 3),
              "parameter tokenX is {}, which cacheModeOptional {} does not allow", describe(p.x), m.cache);
        before = followed(p.x, {1});
    }
    const auto with = [&](int64_t last) {
        at::DimVector sizes = before;
        sizes.push_back(last);
        return sizes;
    };
    is(p.kv_cache, bytes ? at::kChar : at::kBFloat16, with(row));
    if (tiles)
        tiled(p.kr_cache.numel() == 0, "parameter krCacheRef is {}, expected an empty one", describe(p.kr_cache));
    else
        is(p.kr_cache, m.stored == kByChannel ? at::kChar : at::kBFloat16, with(kTurned));
    for (const Operand *cache : {&p.kv_cache, &p.kr_cache})
        tiled(cache->is_contiguous(), "parameter {} is {} and not contiguous", cache->parameter(), describe(*cache));
    if (!m.paged()) return;
    if (m.cache.starts_with("PA_BLK")) {
        if (!p.index.defined()) fail(FaultKind::TilingRefused, "parameter {} is null", p.index.parameter());
        if (p.x.dim() == 2) {
            if (!p.lengths.defined()) fail(FaultKind::TilingRefused, "parameter {} is null", p.lengths.parameter());
            tiled(p.lengths.dim() == 1 && p.lengths.scalar_type() == at::kInt && p.index.dim() == 1,
                  "parameters actualSeqLenOptional and cacheIndexOptional are {} and {}, expected one dimension",
                  describe(p.lengths), describe(p.index));
        } else {
            const int64_t size = p.kv_cache.size(1);
            is(p.index, at::kLong, {p.x.size(0), (p.x.size(1) + size - 1) / size});
        }
    } else {
        is(p.index, at::kLong, followed(p.x, {}));
    }
}

void check_prolog(const Prolog &p) {
    const Modes &m = p.modes;
    check_modes(m, p.third);
    check_sizes(p);
    const bool all = m.weights == kAllQuantized, up = m.weights != kPlain;
    const at::ScalarType outer = all ? at::kChar : at::kBFloat16;
    const int64_t hidden = p.x.size(-1), tokens = p.tokens(), heads = p.heads();
    const int64_t upper = heads * (p.width() + kTurned);
    is(p.x, outer, p.x.sizes());
    is(p.down, outer, {hidden, p.wide()});
    is(p.up, up ? at::kChar : at::kBFloat16, {p.wide(), upper});
    is(p.key, at::kBFloat16, {heads, p.width(), kNarrow});
    is(p.down_kv, outer, {hidden, kNarrow + kTurned});
    is(p.gamma_q, at::kBFloat16, {p.wide()});
    is(p.gamma_kv, at::kBFloat16, {kNarrow});
    for (const Operand *angle : {&p.sin, &p.cos}) is(*angle, at::kBFloat16, followed(p.x, {kTurned}));
    check_cache(p);
    only_if(all, p.scale_x, at::kFloat, {tokens, 1});
    only_if(all, p.scale_down, at::kFloat, {1, p.wide()});
    only_if(all, p.scale_down_kv, at::kFloat, {1, kNarrow + kTurned});
    only_if(up, p.scale_up, at::kFloat, {1, upper});
    if (p.smooth.defined()) only_if(up, p.smooth, at::kFloat, {1, p.wide()});
    if (m.stored == kByTensor && p.third)
        is(p.scale_kv, at::kFloat, {1});
    else
        only_if(m.stored == kByTensor || m.stored == kByChannel, p.scale_kv, at::kFloat, {1, kNarrow});
    only_if(m.stored == kByChannel, p.scale_kr, at::kFloat, {1, kTurned});
    if (p.clip.defined()) only_if(m.stored == kByTile, p.clip, at::kFloat, {1});
    is(p.query, m.quantized_query() ? at::kChar : at::kBFloat16, followed(p.x, {heads, kNarrow}));
    is(p.turned_query, at::kBFloat16, followed(p.x, {heads, kTurned}));
    only_if(m.quantized_query(), p.query_scale, at::kFloat, {tokens, heads, 1});
    if (!p.normed.defined() || p.normed.numel() == 0) return;
    is(p.normed, up ? at::kChar : at::kBFloat16, followed(p.x, {p.wide()}));
    only_if(up, p.normed_scale, at::kFloat, {tokens, 1});
}

at::Tensor as_stored(const at::Tensor &value) { return value.to(at::kBFloat16).to(at::kFloat); }

// Sums of int8 products are exact in double.
at::Tensor product(const at::Tensor &x, const at::Tensor &weight, const at::Tensor &rows, const at::Tensor &columns) {
    if (x.scalar_type() != at::kChar) return as_stored(at::mm(widened(x), widened(weight)));
    return at::mm(x.to(at::kDouble), weight.to(at::kDouble)).to(at::kFloat) * rows * columns;
}

at::Tensor normalised(const at::Tensor &x, const at::Tensor &gamma, double epsilon, double factor) {
    return x / at::sqrt(x.square().mean({-1}, true) + epsilon) * widened(gamma) * factor;
}

// The pairs that are turned lie side by side; then the first ones come before the second ones.
at::Tensor turned_pairs(const at::Tensor &x, const at::Tensor &cos, const at::Tensor &sin) {
    const at::Tensor apart = x.unflatten(-1, {-1, 2}).transpose(-1, -2).flatten(-2);
    return turned(apart, cos, sin);
}

struct Rounded {
    at::Tensor values, scale;
};

Rounded by_largest(const at::Tensor &x) {
    const at::Tensor largest = x.abs().amax({-1}, true);
    return {at::round(x * (127.0 / largest)).nan_to_num_(0), largest / 127.0};
}

// Where the rows go: a place in the cache each, negative ones nowhere. Undefined: one behind another.
at::Tensor places(const Prolog &p) {
    if (!p.modes.paged()) return {};
    const at::Tensor index = p.index.to(at::kLong).contiguous().view({-1});
    if (!p.modes.cache.starts_with("PA_BLK")) return index;
    const int64_t size = p.kv_cache.size(1);
    std::vector<int64_t> ends;
    if (p.x.dim() == 3) {
        for (int64_t b = 1; b <= p.x.size(0); ++b) ends.push_back(b * p.x.size(1));
    } else {
        const at::Tensor totals = p.lengths.to(at::kLong).contiguous();
        ends.assign(totals.const_data_ptr<int64_t>(), totals.const_data_ptr<int64_t>() + totals.numel());
    }
    at::Tensor found = at::full({p.tokens()}, -1, at::kLong);
    int64_t token = 0, page = 0;
    for (const int64_t end : ends) {
        const int64_t start = token;
        for (; token < std::min(end, found.size(0)); ++token) {
            const int64_t named = index[page + (token - start) / size].item<int64_t>();
            if (named >= 0) found[token].fill_(named * size + (token - start) % size);
        }
        page += (end - start + size - 1) / size;
    }
    return found;
}

void into_cache(at::Tensor &cache, const at::Tensor &rows, const at::Tensor &places, bool in_columns) {
    if (cache.numel() == 0 || rows.numel() == 0) return;
    at::Tensor stored = at::empty(rows.sizes(), cache.options());
    if (cache.scalar_type() == at::kChar)
        saturate(stored, rows);
    else
        stored.copy_(rows);
    const int64_t width = rows.size(1);
    if (!places.defined()) {
        cache.view({-1, width}).copy_(stored);
        return;
    }
    const int64_t block = 32 / cache.element_size(), size = cache.size(1);
    at::Tensor lies =
        in_columns ? cache.view({cache.size(0), width / block, size, block}) : cache.view({cache.size(0), size, width});
    for (int64_t row = 0; row < rows.size(0); ++row) {
        const int64_t place = places[row].item<int64_t>();
        if (place < 0) continue;
        TORCH_CHECK_INDEX(place < cache.size(0) * size, "index ", place, " is past the end of the cache");
        const at::Tensor page = lies[place / size];
        if (in_columns)
            page.select(1, place % size).copy_(stored[row].view({-1, block}));
        else
            page[place % size].copy_(stored[row]);
    }
}

// int8 tiles of the row, bfloat16 of what is turned and the tiles' scales, as bytes one behind another.
at::Tensor joined_rows(const at::Tensor &row, const at::Tensor &turned_key, const at::Tensor &clip) {
    const at::Tensor tiles = row.unflatten(-1, {-1, kTile});
    const at::Tensor most = tiles.abs().amax({-1}, true) * (clip.defined() ? clip.item<float>() : 1.0F);
    const at::Tensor scale = most / 127.0;
    const at::Tensor whole =
        at::round(at::minimum(at::maximum(tiles, -most), most) / scale).nan_to_num_(0).clamp_(-128, 127);
    const auto bytes = [](const at::Tensor &values) { return values.contiguous().view(at::kChar).flatten(1); };
    return at::cat({whole.to(at::kChar).flatten(1), bytes(turned_key.to(at::kBFloat16)), bytes(scale.squeeze(-1))}, 1);
}

// Of all tokens, by head.
void queries(const Prolog &p, const at::Tensor &up_product, const at::Tensor &cos, const at::Tensor &sin) {
    const at::Tensor by_head = up_product.view({-1, p.heads(), p.width() + kTurned});
    const at::Tensor own = as_stored(by_head.narrow(-1, 0, p.width())).transpose(0, 1);
    const at::Tensor narrow = as_stored(at::bmm(own, widened(p.key)).transpose(0, 1));
    at::Tensor positions = turned_pairs(by_head.narrow(-1, p.width(), kTurned), cos.unsqueeze(1), sin.unsqueeze(1));
    if (p.modes.quantized_query()) {
        const Rounded rounded = by_largest(narrow);
        p.query_scale.copy_(rounded.scale);
        p.query.copy_(rounded.values.view(p.query.sizes()));
        positions = as_stored(positions) * p.scale_kv.flatten()[0] / rounded.scale;
    } else {
        p.query.copy_(narrow.view(p.query.sizes()));
    }
    p.turned_query.copy_(positions.view(p.turned_query.sizes()));
}

void keys(const Prolog &p, const at::Tensor &down_product, const at::Tensor &cos, const at::Tensor &sin) {
    at::Tensor row = normalised(down_product.narrow(-1, 0, kNarrow), p.gamma_kv, p.epsilon_kv, p.factor_kv);
    at::Tensor positions = turned_pairs(down_product.narrow(-1, kNarrow, kTurned), cos, sin);
    const at::Tensor at = places(p);
    const bool in_columns = p.modes.cache.ends_with("_NZ");
    if (p.modes.stored == kByTile) return into_cache(p.kv_cache, joined_rows(row, positions, p.clip), at, false);
    if (p.modes.stored == kByTensor) row = row * p.scale_kv.flatten()[0];
    if (p.modes.stored == kByChannel) {
        row = row * p.scale_kv;
        positions = positions * p.scale_kr;
    }
    into_cache(p.kv_cache, row, at, in_columns);
    into_cache(p.kr_cache, positions, at, in_columns);
}

void prolog(const Prolog &p) {
    const int64_t tokens = p.tokens();
    if (tokens == 0) return;
    const at::Tensor x = p.x.reshape({tokens, -1});
    const at::Tensor cos = widened(p.cos).reshape({tokens, kTurned}), sin = widened(p.sin).reshape({tokens, kTurned});
    const at::Tensor wide =
        normalised(product(x, unpacked(p.down), p.scale_x, p.scale_down), p.gamma_q, p.epsilon_q, p.factor_q);
    const bool norm = p.normed.defined() && p.normed.numel() != 0;
    const at::Tensor up = unpacked(p.up);
    if (p.modes.weights == kPlain) {
        if (norm) p.normed.copy_(wide.view(p.normed.sizes()));
        queries(p, product(wide.to(at::kBFloat16), up, {}, {}), cos, sin);
    } else {
        const Rounded rounded = by_largest(p.smooth.defined() && p.smooth.numel() != 0 ? wide * p.smooth : wide);
        if (norm) {
            p.normed.copy_(rounded.values.view(p.normed.sizes()));
            p.normed_scale.copy_(rounded.scale);
        }
        queries(p, product(rounded.values.to(at::kChar), up, rounded.scale, p.scale_up), cos, sin);
    }
    keys(p, product(x, unpacked(p.down_kv), p.scale_x, p.scale_down_kv), cos, sin);
}

}  // namespace

void first_mla_prolog(Phase phase, const std::vector<at::Tensor> &in, const std::vector<at::Tensor> &out,
                      double epsilon_q, double epsilon_kv, const std::string &cache) {
    static constexpr std::array kNames{"token_x",
                                       "weight_dq",
                                       "weight_uq_qr",
                                       "weight_uk",
                                       "weight_dkv_kr",
                                       "rmsnorm_gamma_cq",
                                       "rmsnorm_gamma_ckv",
                                       "rope_sin",
                                       "rope_cos",
                                       "cache_index",
                                       "kv_cache",
                                       "kr_cache",
                                       "dequant_scale_x",
                                       "dequant_scale_w_dq",
                                       "dequant_scale_w_uq_qr",
                                       "dequant_scale_w_dkv_kr",
                                       "quant_scale_ckv",
                                       "quant_scale_ckr",
                                       "smooth_scales_cq",
                                       "query",
                                       "query_rope",
                                       "kv_cache_out",
                                       "kr_cache_out"};
    std::vector<Operand> all;
    all.reserve(kNames.size());
    const auto take = [&](const std::vector<at::Tensor> &tensors, size_t count) {
        for (size_t i = 0; i < count; ++i) {
            Operand &operand = all.emplace_back(nullptr, kNames[all.size()]);
            if (i < tensors.size() && tensors[i].defined()) operand = tensors[i];
        }
    };
    take(in, 19);
    take(out, 4);
    for (const size_t cache_of : {10, 11})  // before the modes are known by the cache's dtype
        if (!all[cache_of].defined()) fail(FaultKind::NullArgument, "parameter {} is null", all[cache_of].parameter());
    Operand none(nullptr, "none");
    const Prolog call{all[0],     all[1],
                      all[2],     all[3],
                      all[4],     all[5],
                      all[6],     all[7],
                      all[8],     all[9],
                      all[21],    all[22],
                      all[12],    all[13],
                      all[14],    all[15],
                      all[16],    all[17],
                      all[18],    none,
                      none,       epsilon_q,
                      epsilon_kv, 1,
                      1,          modes_of(all[0], all[2], all[10], cache),
                      all[19],    all[20],
                      none,       none,
                      none,       false,
                      true};
    if (phase == Phase::Check) {
        check_prolog(call);
        for (const size_t cache_of : {10, 11}) {
            same_shape(all[cache_of], all[cache_of + 11]);
            same_dtype(all[cache_of], all[cache_of + 11]);
        }
        return;
    }
    for (const size_t cache_of : {10, 11}) all[cache_of + 11].copy_(all[cache_of]);
    prolog(call);
}
}  // namespace vnpu::opapi

#define OPERANDS(INDEX, LENGTHS, CLIP)                                                                             \
    tokenX, weightDq, weightUqQr, weightUk, weightDkvKr, rmsnormGammaCq, rmsnormGammaCkv, ropeSin, ropeCos, INDEX, \
        kvCacheRef, krCacheRef, dequantScaleXOptional, dequantScaleWDqOptional, dequantScaleWUqQrOptional,         \
        dequantScaleWDkvKrOptional, quantScaleCkvOptional, quantScaleCkrOptional, smoothScalesCqOptional, LENGTHS, \
        CLIP
#define SECOND(NONE)                                                                             \
    Prolog {                                                                                     \
        OPERANDS(cacheIndex, NONE, NONE), rmsnormEpsilonCq, rmsnormEpsilonCkv, 1, 1,             \
            modes_of(tokenX, weightUqQr, kvCacheRef, cacheModeOptional), queryOut, queryRopeOut, \
            dequantScaleQNopeOutOptional, NONE, NONE, false                                      \
    }
#define THIRD                                                                                                         \
    Prolog {                                                                                                          \
        OPERANDS(cacheIndexOptional, actualSeqLenOptional, kNopeClipAlphaOptional), rmsnormEpsilonCq,                 \
            rmsnormEpsilonCkv, qcQrScale, kcScale,                                                                    \
            Modes{weightQuantMode,                                                                                    \
                  kvCacheQuantMode,                                                                                   \
                  queryQuantMode,                                                                                     \
                  ckvkrRepoMode,                                                                                      \
                  quantScaleRepoMode,                                                                                 \
                  tileSize,                                                                                           \
                  cacheModeOptional.empty() ? "PA_BSND" : cacheModeOptional},                                         \
            queryOut, queryRopeOut, dequantScaleQNopeOutOptional, queryNormOutOptional, dequantScaleQNormOutOptional, \
            true                                                                                                      \
    }
#define IN_FRACTALS         \
    fractal_nz(weightDq);   \
    fractal_nz(weightUqQr); \
    fractal_nz(weightDkvKr)

OP(aclnnMlaPrologV2WeightNz, IN_FRACTALS; Operand none(nullptr, "none");
   check_prolog(SECOND(none)), Operand none(nullptr, "none"); prolog(SECOND(none)))
OP(aclnnMlaPrologV3WeightNz, IN_FRACTALS; check_prolog(THIRD), prolog(THIRD))
