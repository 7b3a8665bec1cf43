// CANN's attention operands: layouts, what the first phase refuses, and the form in which the kernels see them.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <string_view>

#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/number.h"
#include "opapi/aclnn/precision.h"
#include "opapi/attention/attention.h"

namespace vnpu::opapi::attention {
namespace {

constexpr int64_t kStatistics = 8;         // the row maximum and sum are stored eight times: one 32-byte block
constexpr int64_t kCompressed = 2048;      // edge of a compressed mask
constexpr int64_t kCompressedRows = 3072;  // of the one with a prefix
constexpr int64_t kScoresAtOnce = int64_t{1} << 17;  // 512 KiB: half of a core's second cache
constexpr int64_t kRowsAtOnce = 1024, kFewestRows = 32;

constexpr std::array<std::string_view, 5> kLayouts{"BSH", "SBH", "BSND", "BNSD", "TND"};

// Sizes of a call, from the query and key.
struct Sizes {
    int64_t batch, queries, keys, key_heads, width, value_width;
};

at::Tensor statistics_first(const at::Tensor &statistics, const Settings &settings, int64_t heads, int64_t length) {
    if (!settings.packed()) return statistics;
    return settings.softmax_like_input ? statistics.transpose(0, 1) : statistics.view({heads, length, kStatistics});
}

void refuse(const Operand &tensor, const std::string &why) {
    fail(FaultKind::InvalidArgument, "parameter {} is {}, {}", tensor.parameter(), describe(tensor), why);
}

// What the kernel has no plan for, in CANN's words (ops-transformer: flash_attention_score_tiling_general.cpp,
// AnalyzeOptionalInput).
void refuse_plan(const Operand &tensor, const std::string &theirs) {
    fail(FaultKind::PartRefused, "{}: parameter {} is {}", theirs, tensor.parameter(), describe(tensor));
}

void check_ends(const char *name, const Ints &ends, const Operand &tensor) {
    if (ends.empty()) fail(FaultKind::InvalidArgument, "parameter {} is empty, which TND does not allow", name);
    if (!std::ranges::is_sorted(ends) || ends.front() < 0 || ends.back() > tensor.size(0))
        fail(FaultKind::InvalidArgument, "parameter {} must grow from 0 to at most {}, the first size of {}", name,
             tensor.size(0), tensor.parameter());
}

void check_mask(const Operand &mask, const Settings &settings, const Sizes &sizes) {
    dtype(mask, {at::kBool, at::kByte});
    if (mask.dim() != 2 && mask.dim() != 4)
        refuse_plan(mask, fmt::format("atten mask dim should be 2 or 4, but got {}", mask.dim()));
    const at::IntArrayRef edges = mask.sizes().slice(static_cast<size_t>(mask.dim() - 2));
    const auto is = [&](int64_t rows, int64_t columns) { return edges == at::IntArrayRef({rows, columns}); };
    const bool compressed = settings.sparse_mode >= kLeftUpCausal && settings.sparse_mode != kPrefix;
    const bool whole = is(sizes.queries, sizes.keys), by_batch = mask.size(0) == sizes.batch;
    const bool fits =
        mask.dim() == 4
            ? whole && (mask.size(1) == 1 ? by_batch || mask.size(0) == 1 : by_batch && mask.size(1) == settings.heads)
            : compressed || whole || (settings.packed() && is(settings.query_ends.back(), settings.key_ends.back()));
    if (!fits)
        refuse_plan(mask, fmt::format("get unsupported atten_mask shape, B=[{}], N=[{}], Sq=[{}], Skv=[{}], supported "
                                      "atten_mask shape can be [B, N, Sq, Skv], [B, 1, Sq, Skv], [1, 1, Sq, Skv] and "
                                      "[Sq, Skv]",
                                      sizes.batch, settings.heads, sizes.queries, sizes.keys));
    const int64_t rows = settings.sparse_mode == kPrefixCompressed ? kCompressedRows : kCompressed;
    if (compressed && !is(rows, kCompressed))
        refuse_plan(mask, fmt::format("In the attenmask compression, please set the atten_mask_shape to [{},{}]", rows,
                                      kCompressed));
}

void check_pse(const Operand &pse, const Operand &query, const Settings &settings, const Sizes &sizes) {
    same_dtype(pse, query);
    if (settings.packed()) refuse(pse, "which the virtual NPU does not offer with layout TND");
    rank(pse, {4});
    const bool fits = (pse.size(0) == 1 || pse.size(0) == sizes.batch) && pse.size(1) == settings.heads &&
                      (pse.size(2) == 1 || pse.size(2) == sizes.queries) && pse.size(3) == sizes.keys;
    if (!fits)
        refuse_plan(pse,
                    fmt::format("get unsupported pse shape, the virtual NPU takes [{0}, {1}, {2}, {3}], [{0}, {1}, "
                                "1, {3}] or [1, {1}, {2}, {3}]",
                                sizes.batch, settings.heads, sizes.queries, sizes.keys));
}

std::vector<Lengths> lengths(const Settings &settings) {
    std::vector<Lengths> all;
    int64_t query_start = 0, key_start = 0;
    for (size_t i = 0; i < settings.query_ends.size(); ++i) {
        all.push_back({settings.query_ends[i] - query_start, settings.key_ends[i] - key_start});
        query_start = settings.query_ends[i];
        key_start = settings.key_ends[i];
    }
    return all;
}

Sizes sizes_of(const Arguments &a, const Settings &settings) {
    const int64_t key_count = key_heads(a.query, a.key, settings);
    if (settings.packed()) {
        int64_t queries = 0, keys = 0;
        for (const Lengths &one : lengths(settings)) {
            queries = std::max(queries, one.queries);
            keys = std::max(keys, one.keys);
        }
        const int64_t batch = static_cast<int64_t>(settings.query_ends.size());
        return {batch, queries, keys, key_count, a.query.size(2), a.value.size(2)};
    }
    const at::Tensor query = heads_first(a.query, settings.layout, settings.heads);
    const at::Tensor value = heads_first(a.value, settings.layout, key_count);
    return {query.size(0), query.size(2), value.size(2), key_count, query.size(3), value.size(3)};
}

// The rotary part of a query or key beside the rest.
at::Tensor whole_width(const Operand &rest, const Operand *rope, const Settings &settings, int64_t heads) {
    const at::Tensor first = heads_first(rest, settings.layout, heads);
    return given(rope) ? at::cat({first, heads_first(*rope, settings.layout, heads)}, -1) : first;
}

// (ops-transformer: aclnn_flash_attention_score.cpp, isSupportMultiInput)
void check_ropes(const Arguments &a, const Settings &settings, const Sizes &sizes) {
    if (a.query_rope != nullptr) optional(*a.query_rope, *a.key_rope);
    if (given(a.query_rope) != given(a.key_rope))
        fail(FaultKind::NullArgument, "parameters {} and {} are given together or not at all",
             a.query_rope->parameter(), a.key_rope->parameter());
    if (!given(a.query_rope)) return;
    dtype(a.query, at::kBFloat16);
    for (const Operand *operand : {a.query_rope, a.key_rope}) dtype(*operand, at::kBFloat16);
    if (!a.mask.defined())
        fail(FaultKind::NullArgument, "only support query_rope and key_rope when attentionMask is given: {} is null",
             a.mask.parameter());
    for (const Operand *operand : {&a.pse, &a.drop_mask})
        if (operand->defined()) refuse(*operand, "which query_rope and key_rope do not allow");
    if (settings.keep < 1)
        fail(FaultKind::InvalidArgument, "parameter keepProb is {}, query_rope and key_rope allow 1 only",
             settings.keep);
    if (!settings.packed() || settings.sparse_mode == kPrefixCompressed)
        fail(FaultKind::InvalidArgument,
             "query_rope and key_rope need layout TND and a sparseMode other than 6: they are \"{}\" and {}",
             settings.layout, settings.sparse_mode);
    const int64_t width = a.query_rope->size(-1);
    shape(*a.query_rope, {a.query.size(0), settings.heads, width});
    shape(*a.key_rope, {a.key.size(0), sizes.key_heads, width});
    on_chip(width <= sizes.width && sizes.width % 16 == 0 && width % 16 == 0,
            "parameter {} is {}: allowed is a width of up to that of the query, {}, both multiples of 16",
            a.query_rope->parameter(), describe(*a.query_rope), sizes.width);
}

int64_t scores_to_drop(const Settings &settings, const Sizes &sizes) {
    if (!settings.packed()) return sizes.batch * settings.heads * sizes.queries * sizes.keys;
    int64_t count = 0;
    for (const Lengths &one : lengths(settings)) count += one.queries * one.keys;
    return count * settings.heads;
}

}  // namespace

at::Tensor heads_first(const at::Tensor &tensor, const std::string &layout, int64_t heads) {
    if (!tensor.defined()) return {};
    if (layout == "BNSD") return tensor;
    if (layout == "BSND") return tensor.transpose(1, 2);
    if (layout == "TND") return tensor.transpose(0, 1).unsqueeze(0);
    if (layout == "NTD" || layout == "NSD") return tensor.unsqueeze(0);
    if (layout == "NBSD") return tensor.transpose(0, 1);
    const at::Tensor split = tensor.unflatten(2, {heads, heads == 0 ? 0 : tensor.size(2) / heads});
    return layout == "BSH" ? split.transpose(1, 2) : split.permute({1, 2, 0, 3});
}

int64_t key_heads(const at::Tensor &query, const at::Tensor &key, const Settings &settings) {
    if (settings.layout == "BNSD") return key.size(1);
    if (settings.layout == "BSND") return key.size(2);
    if (settings.layout == "TND") return key.size(1);
    const int64_t width = query.size(2) / settings.heads;
    return width == 0 ? settings.heads : key.size(2) / width;
}

Settings normalized(Settings settings) {
    std::ranges::transform(settings.layout, settings.layout.begin(), [](unsigned char c) { return std::toupper(c); });
    return settings;
}

void check_attention(const Arguments &a, Settings settings) {
    settings = normalized(std::move(settings));
    for (const Operand *operand : {&a.query, &a.key, &a.value, &a.out}) {
        dtype(*operand, kNative);
        same_dtype(*operand, a.query);
    }
    if (std::ranges::count(kLayouts, settings.layout) == 0)
        fail(FaultKind::InvalidArgument, "parameter inputLayout is \"{}\", allowed are BSH, SBH, BSND, BNSD and TND",
             settings.layout);
    const int64_t dimensions = settings.layout.size() == 4 ? 4 : 3;
    for (const Operand *operand : {&a.query, &a.key, &a.value, &a.out}) rank(*operand, {dimensions});
    if (settings.heads <= 0)
        fail(FaultKind::InvalidArgument, "parameter headNum is {}, it must be positive", settings.heads);
    in_float_range(settings.scale, "scaleValue");
    if (settings.keep <= 0 || settings.keep > 1)
        fail(FaultKind::InvalidArgument, "parameter keepProb is {}, allowed is (0, 1]", settings.keep);
    const int64_t last_mode = settings.packed() ? kBandThenLeftUp : kPrefixCompressed;
    if (settings.sparse_mode < 0 || settings.sparse_mode > last_mode ||
        (settings.packed() && settings.sparse_mode == kPrefix))
        fail(FaultKind::InvalidArgument, "parameter sparseMode is {}, which layout {} does not have",
             settings.sparse_mode, settings.layout);
    if (settings.pse_type != 0 && settings.pse_type != 1)
        fail(FaultKind::InvalidArgument, "parameter pseType is {}, the virtual NPU offers 0 and 1", settings.pse_type);
    if (settings.packed()) {
        check_ends("actualSeqQLenOptional", settings.query_ends, a.query);
        check_ends("actualSeqKvLenOptional", settings.key_ends, a.key);
        if (settings.query_ends.size() != settings.key_ends.size())
            fail(FaultKind::InvalidArgument, "parameter actualSeqKvLenOptional has {} values, actualSeqQLenOptional {}",
                 settings.key_ends.size(), settings.query_ends.size());
    } else if (settings.layout.size() == 3 && a.query.size(2) % settings.heads != 0) {
        refuse(a.query, fmt::format("its last size must be a multiple of headNum {}", settings.heads));
    }
    const Sizes sizes = sizes_of(a, settings);
    if (sizes.key_heads == 0 || settings.heads % sizes.key_heads != 0)
        refuse(a.key, fmt::format("headNum {} must be a multiple of its heads, {}", settings.heads, sizes.key_heads));
    const at::Tensor query = heads_first(a.query, settings.layout, settings.heads);
    const at::Tensor key = heads_first(a.key, settings.layout, sizes.key_heads);
    const at::Tensor value = heads_first(a.value, settings.layout, sizes.key_heads);
    if (query.size(1) != settings.heads) refuse(a.query, fmt::format("headNum is {}", settings.heads));
    if (key.size(0) != query.size(0) || key.size(3) != query.size(3))
        refuse(a.key, fmt::format("the query is {}", describe(a.query)));
    if (value.sizes().slice(0, 3) != key.sizes().slice(0, 3))
        refuse(a.value, fmt::format("the key is {}", describe(a.key)));
    // (ops-transformer: aclnn_flash_attention_score.cpp, AnalysisInput, which a call without any result does not reach)
    on_chip(query.size(3) <= 768 || a.out.numel() == 0, "Head dim must <= 768, but got {}: parameter {} is {}",
            query.size(3), a.query.parameter(), describe(a.query));
    on_chip(value.size(3) <= query.size(3) || a.out.numel() == 0,
            "only support kD >= vD: parameter {} is {}, the key {}", a.value.parameter(), describe(a.value),
            describe(a.key));
    const at::Tensor out = heads_first(a.out, settings.layout, settings.heads);
    if (out.sizes() != at::IntArrayRef({query.size(0), query.size(1), query.size(2), value.size(3)}))
        refuse(a.out, fmt::format("the query is {}, the value {}", describe(a.query), describe(a.value)));
    for (const Operand *statistics : {&a.maximum, &a.sum}) {
        dtype(*statistics, at::kFloat);
        if (settings.packed())
            shape(*statistics, {a.query.size(0), settings.heads, kStatistics});
        else
            shape(*statistics, {sizes.batch, settings.heads, sizes.queries, kStatistics});
    }
    if (a.mask.defined()) {
        check_mask(a.mask, settings, sizes);
        check_band(settings, settings.packed() ? lengths(settings) : std::vector<Lengths>{{sizes.queries, sizes.keys}},
                   sizes.batch);
    }
    check_ropes(a, settings, sizes);
    if (given(a.sink)) {
        dtype(*a.sink, at::kFloat);
        shape(*a.sink, {settings.heads});
    }
    if (a.pse.defined()) check_pse(a.pse, a.query, settings, sizes);
    if (a.padding_mask.defined()) refuse(a.padding_mask, "CANN takes null here");
    if (a.drop_mask.defined()) {
        dtype(a.drop_mask, at::kByte);
        if (a.drop_mask.numel() * 8 < scores_to_drop(settings, sizes))
            refuse_plan(a.drop_mask, fmt::format("Input dropMask shapeSize is invalid, there are {} scores to drop",
                                                 scores_to_drop(settings, sizes)));
    }
}

std::vector<Sequences> sequences(const Arguments &a, const Settings &settings) {
    const int64_t key_count = key_heads(a.query, a.key, settings);
    const at::Tensor query = whole_width(a.query, a.query_rope, settings, settings.heads);
    const at::Tensor key = whole_width(a.key, a.key_rope, settings, key_count);
    const at::Tensor value = heads_first(a.value, settings.layout, key_count);
    const at::Tensor out = heads_first(a.out, settings.layout, settings.heads);
    const at::Tensor sink = given(a.sink) ? a.sink->contiguous() : at::Tensor();
    const at::Tensor maximum = statistics_first(a.maximum, settings, settings.heads, a.query.size(0));
    const at::Tensor sum = statistics_first(a.sum, settings, settings.heads, a.query.size(0));
    const at::Tensor bits = a.drop_mask.defined() && settings.keep < 1 ? a.drop_mask.contiguous() : at::Tensor();
    if (!settings.packed()) {
        return {Sequences{.query = query,
                          .key = key,
                          .value = value,
                          .pse = a.pse,
                          .out = out,
                          .maximum = maximum,
                          .sum = sum,
                          .sink = sink,
                          .mask = Mask(a.mask, settings, query.size(2), key.size(2), 0),
                          .dropout = {bits}}};
    }
    std::vector<Sequences> all;
    int64_t query_start = 0, key_start = 0, bit = 0;
    for (size_t i = 0; i < settings.query_ends.size(); ++i) {
        const int64_t queries = settings.query_ends[i] - query_start, keys = settings.key_ends[i] - key_start;
        const auto of_query = [&](const at::Tensor &tensor, int64_t dim) {
            return tensor.narrow(dim, query_start, queries);
        };
        const auto of_key = [&](const at::Tensor &tensor) { return tensor.narrow(2, key_start, keys); };
        all.push_back(Sequences{.query = of_query(query, 2),
                                .key = of_key(key),
                                .value = of_key(value),
                                .out = of_query(out, 2),
                                .maximum = of_query(maximum, 1).unsqueeze(0),
                                .sum = of_query(sum, 1).unsqueeze(0),
                                .sink = sink,
                                .mask = Mask(a.mask, settings, queries, keys, static_cast<int64_t>(i)),
                                .dropout = {bits, bit}});
        bit += settings.heads * queries * keys;
        query_start = settings.query_ends[i];
        key_start = settings.key_ends[i];
    }
    return all;
}

std::vector<std::vector<Block>> blocks(const Sequences &s) {
    // Few enough rows that a causal mask leaves out almost half of the scores, and that all threads find work.
    const int64_t most = s.mask.leaves_out() ? std::clamp<int64_t>(s.queries() / 4, kFewestRows, 128) : kRowsAtOnce;
    const int64_t shares = 2 * at::get_num_threads() / std::max<int64_t>(s.batch() * s.heads(), 1);
    const int64_t share = shares > 1 ? s.queries() / shares : s.queries();
    const int64_t rows = std::clamp(std::min(kScoresAtOnce / std::max<int64_t>(s.keys(), 1), share), kFewestRows, most);
    std::vector<std::vector<Block>> all;
    for (int64_t batch = 0; batch < (s.mask.by_batch() ? s.batch() : 1); ++batch) {
        std::vector<Block> &own = all.emplace_back();
        for (int64_t first = 0; first < s.queries(); first += rows) {
            const int64_t last = std::min(first + rows, s.queries());
            own.push_back({first, last, s.mask.window(batch, first, last)});
        }
    }
    return all;
}

}  // namespace vnpu::opapi::attention
