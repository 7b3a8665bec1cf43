// What attention without gradients refuses.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/number.h"
#include "opapi/attention/inference.h"
#include "opapi/quantization/quantization.h"

namespace vnpu::opapi::attention {
namespace {

constexpr int64_t kCompressed = 2048;  // edge of a compressed mask

// (ops-transformer: fused_infer_attention_score_tiling.cpp, CheckOutShape; torch_npu asks for no others)
constexpr std::array<std::string_view, 14> kLayouts{"BSH",       "BSND",      "BNSD",      "TND",     "NTD",
                                                    "BNSD_BSND", "BSH_BNSD",  "BSND_BNSD", "NTD_TND", "BSH_NBSD",
                                                    "BSND_NBSD", "BNSD_NBSD", "TND_NTD",   "NSD"};

void refuse(const Operand &tensor, const std::string &why) {
    fail(FaultKind::InvalidArgument, "parameter {} is {}, {}", tensor.parameter(), describe(tensor), why);
}

void check_heads(const Inference &call) {
    if (call.heads <= 0 || call.key_heads < 0 || call.heads % call.of_keys() != 0)
        fail(FaultKind::InvalidArgument, "numHeads is {} and numKeyValueHeads {}, expected a multiple", call.heads,
             call.key_heads);
    // (ops-transformer: prompt_flash_attention_tiling.cpp, CheckInputDimAndHeadNum; incre_flash_attention_tiling.cpp)
    tiled(call.heads <= 256, "the query's heads num({}) should not be more than 256!", call.heads);
    tiled(call.heads / call.of_keys() <= 64, "numHeads / numKeyValueHeads = {}, cannot be larger than 64",
          call.heads / call.of_keys());
}

void check_listed(const char *name, const Ints &lengths, int64_t count, int64_t longest) {
    if (!lengths.empty() && lengths.size() != 1 && static_cast<int64_t>(lengths.size()) < count)
        fail(FaultKind::InvalidArgument, "parameter {} has {} values, expected 1 or {}", name, lengths.size(), count);
    for (const int64_t value : lengths)
        if (value < 0 || value > longest)
            fail(FaultKind::InvalidArgument, "parameter {} has the value {}, allowed is 0 to {}", name, value, longest);
}

void check_ends(const char *name, const Ints &ends, int64_t tokens) {
    if (ends.empty())
        fail(FaultKind::InvalidArgument, "parameter {} is empty, which layouts TND and NTD do not allow", name);
    if (!std::ranges::is_sorted(ends) || ends.front() < 0 || ends.back() != tokens)
        fail(FaultKind::InvalidArgument, "parameter {} must grow to {}, the tokens that there are", name, tokens);
}

// Keys, values and what belongs to them.
void check_caches(const Inference &call, const InferenceOperands &a, int64_t count) {
    if (a.key.size() != a.value.size() || a.key.empty() ||
        (a.key.size() != 1 && static_cast<int64_t>(a.key.size()) != count))
        fail(FaultKind::InvalidArgument, "key has {} tensors and value {}, expected 1 or {}, one for each batch",
             a.key.size(), a.value.size(), count);
    const bool paged = given(a.table);
    for (size_t i = 0; i < a.key.size(); ++i) {
        const Operand &key = a.key[i], &value = a.value[i];
        same_dtype(value, key);
        if (paged)
            rank(key, {3, 4, 5});
        else
            rank(key, {a.query.dim()});
        rank(value, {key.dim()});
        const bool quantised = key.scalar_type() == at::kChar || key.scalar_type() == at::kInt;
        if (!quantised) same_dtype(key, a.query);
        if (quantised && !given(a.antiquant_scale) && !given(a.key_scale))
            refuse(key, "which needs antiquantScale or keyAntiquantScale and valueAntiquantScale");
        if (a.key.size() > 1 && !call.packed() && key.size(0) != 1) refuse(key, "a tensor for each batch holds one");
    }
    if (given(a.key_scale) != given(a.value_scale))
        fail(FaultKind::InvalidArgument, "keyAntiquantScale and valueAntiquantScale are given together or not at all");
    if (given(a.key_rope) != given(a.query_rope))
        fail(FaultKind::InvalidArgument, "queryRope and keyRope are given together or not at all");
    if (given(a.key_rope)) same_dtype(*a.key_rope, *a.query_rope);
    const Cache keys = key_cache(call, a), values = value_cache(call, a);
    const Operand &first = a.key.front();
    if (!paged) {
        const int64_t heads = heads_first(first, call.in(), call.of_keys()).size(1);
        if (heads != call.of_keys() || (call.in() == "BSH" && first.size(2) % call.of_keys() != 0))
            refuse(first, fmt::format("which has not the {} heads of numKeyValueHeads", call.of_keys()));
        if (a.key.size() == 1 && !call.packed() && heads_first(first, call.in(), call.of_keys()).size(0) != count)
            refuse(first, fmt::format("the query has {} batches", count));
        for (int64_t b = 0; b < (call.packed() ? 1 : count); ++b)
            if (keys.longest(b) != values.longest(b))
                refuse(a.value.front(), fmt::format("the key is {}", describe(first)));
    }
    const at::Tensor query = heads_first(a.query, call.in(), call.heads);
    if (keys.width() != query.size(3))
        refuse(first, fmt::format("a head's width is {}, that of the query {}", keys.width(), query.size(3)));
    tiled(query.size(3) <= 512, "D should be less than or equal to 512 of Q/KV shape! but now D = {}", query.size(3));
    if (!paged) return;
    dtype(*a.table, {at::kInt});
    rank(*a.table, {2});
    if (call.block <= 0 || keys.block() != call.block || a.key_lengths.empty() || a.table->size(0) != count)
        fail(FaultKind::InvalidArgument,
             "parameter {} is {}: it needs the lengths of the keys, a row for each batch, and a cache of blocks of {}",
             a.table->parameter(), describe(*a.table), call.block);
    // (ops-transformer: prompt_flash_attention_tiling.cpp, CheckPATypeAndShape)
    const int64_t most = call.packed() ? 1024 : 512;
    tiled(call.block % 16 == 0 && call.block <= most,
          "block size({}) should be a multiple of {}, and can't greater than {} when PA enable", call.block, 16, most);
    if (a.key.size() != 1) refuse(first, "a paged cache is one tensor");
    for (const Operand *padding : {a.query_padding, a.key_padding})
        if (given(padding)) refuse(*padding, "which a paged cache does not allow");
}

void check_mask(const Inference &call, const InferenceOperands &a, int64_t count, int64_t queries) {
    if (call.sparse_mode < 0 || call.sparse_mode > kBand)
        fail(FaultKind::InvalidArgument, "parameter sparseMode is {}, allowed are 0 to 4", call.sparse_mode);
    const bool one_query = queries == 1 && !call.packed() && !given(a.query_rope);
    const bool compressed = call.sparse_mode >= kLeftUpCausal && !one_query;
    if (!a.mask.defined()) {
        if (compressed || (call.sparse_mode == kAllMask && !one_query))
            fail(FaultKind::TilingRefused, "attenMask is null, which sparseMode {} does not allow", call.sparse_mode);
        return;
    }
    dtype(a.mask, {at::kBool, at::kChar, at::kByte});
    rank(a.mask, {2, 3, 4});
    const at::IntArrayRef sizes = a.mask.sizes(), edges = sizes.slice(sizes.size() - 2);
    if (compressed) {
        if (edges != at::IntArrayRef({kCompressed, kCompressed}) || a.mask.numel() != kCompressed * kCompressed)
            fail(FaultKind::TilingRefused,
                 "attenMask shape must be (2048, 2048) or (1, 2048, 2048) or (1, 1, 2048, 2048) when sparse mode = {}: "
                 "parameter {} is {}",
                 call.sparse_mode, a.mask.parameter(), describe(a.mask));
        return;
    }
    const Cache keys = key_cache(call, a);
    int64_t columns = 0;
    for (int64_t b = 0; b < count; ++b) columns = std::max(columns, keys.prefix_length + keys.longest(b));
    const bool by_row = a.mask.dim() == 2 && one_query;  // [batch, keys]
    const int64_t of_batches = by_row || a.mask.dim() > 2 ? sizes[0] : 1, rows = by_row ? 1 : edges[0];
    if ((of_batches != 1 && of_batches != count) || (a.mask.dim() == 4 && sizes[1] != 1) || rows < queries ||
        edges[1] < columns)
        fail(FaultKind::TilingRefused,
             "attenMask batch({}) must be 1 or {}, attenMask Q_S({}) must be larger than sQ({}), attenMask KV_S({}) "
             "must be larger than sK({}), please check: parameter {} is {}",
             of_batches, count, rows, queries, edges[1], columns, a.mask.parameter(), describe(a.mask));
}

void check_pse(const Inference &call, const InferenceOperands &a, int64_t count, int64_t queries) {
    if (!a.pse.defined()) return;
    same_dtype(a.pse, a.query);
    if (call.packed()) refuse(a.pse, "which layouts TND and NTD do not allow");
    rank(a.pse, {4});
    const Cache keys = key_cache(call, a);
    int64_t columns = 0;
    for (int64_t b = 0; b < count; ++b) columns = std::max(columns, keys.prefix_length + keys.longest(b));
    if ((a.pse.size(0) != 1 && a.pse.size(0) != count) || a.pse.size(1) != call.heads || a.pse.size(2) < queries ||
        a.pse.size(3) < columns)
        fail(FaultKind::TilingRefused, "pse shift shape must be [1 or {}, {}, >={}, >={}]: parameter {} is {}", count,
             call.heads, queries, columns, a.pse.parameter(), describe(a.pse));
}

// Sequences behind one another have kernels of a few widths only
// (ops-transformer: prompt_flash_attention_tiling.cpp, CheckTNDLayoutParams, CheckVarLenPFA)
void check_packed_widths(const Inference &call, const InferenceOperands &a) {
    const int64_t width = a.query.size(2), value = value_cache(call, a).width();
    if (given(a.query_rope)) {
        tiled(a.query_rope->size(-1) == 64 && ((width == 128 && value == 128) || width == 512),
              "When layout is {} and queryRope/keyRope is not nullptr, queryRopeD({}) must be 64, queryD({}) and "
              "valueD({}) must be 128, or queryD 512",
              call.layout, a.query_rope->size(-1), width, value);
        return;
    }
    const bool equal = width == value && (width == 192 || width == 128 || width == 64);
    tiled(equal || (width == 192 && value == 128),
          "When layout is {}, queryD({}), keyD({}) and valueD({}) must be same equal 192/128/64, or queryD and keyD "
          "equal 192 and valueD equal 128.",
          call.layout, width, width, value);
    tiled(value != 192 || call.heads == call.of_keys(),
          "When layout is {}, When G({}) not 1, valueD({}) should not be 192.", call.layout,
          call.heads / call.of_keys(), value);
}

void check_result(const Inference &call, const InferenceOperands &a, const at::Tensor &query) {
    if (given(a.out_scale)) {
        dtype(a.out, {at::kChar});
        const int64_t channels = call.heads * value_cache(call, a).width();
        for (const Operand *factor : {a.out_scale, a.out_offset})
            if (given(factor) && factor->numel() != 1 && factor->numel() != channels)
                refuse(*factor, fmt::format("expected 1 or {} values", channels));
    } else {
        same_dtype(a.out, a.query);
    }
    rank(a.out, {call.out() == "BSH" || call.out().size() == 3 ? 3 : 4});
    const int64_t width = value_cache(call, a).width();
    const at::Tensor out = heads_first(a.out, call.out(), call.heads);
    if (out.sizes() != at::IntArrayRef({query.size(0), query.size(1), query.size(2), width}))
        refuse(a.out, fmt::format("the query is {}, the width of values {}, the layout {}", describe(a.query), width,
                                  call.layout));
    if (!call.lse) return;
    if (a.lse == nullptr || !a.lse->defined())
        fail(FaultKind::NullArgument, "parameter softmaxLse is null, which softmaxLseFlag does not allow");
    dtype(*a.lse, at::kFloat);
    if (call.packed())
        shape(*a.lse, {query.size(2), call.heads, 1});
    else
        shape(*a.lse, {query.size(0), call.heads, query.size(2), 1});
}

}  // namespace

void check_face(const Inference &call, std::initializer_list<std::string_view> layouts) {
    if (std::ranges::count(layouts, std::string_view(call.layout)) == 0)
        fail(FaultKind::InvalidArgument, "parameter inputLayout is \"{}\", allowed are {}", call.layout,
             fmt::join(layouts, ", "));
}

void check_only_floats(std::initializer_list<const Operand *> factors) {
    for (const Operand *factor : factors)
        if (given(factor)) refuse(*factor, "the virtual NPU does not quantise the products of attention");
}

void check_added(int64_t pse_type, const Ints &query_start, const Ints &key_start) {
    if (pse_type != 0 || !query_start.empty() || !key_start.empty())
        fail(
            FaultKind::InvalidArgument,
            "parameter pseType is {}, qStartIdxOptional has {} values and kvStartIdxOptional {}: the virtual NPU takes "
            "a pseShift as it is given only (pseType 0)",
            pse_type, query_start.size(), key_start.size());
}

void check_inference(const Inference &call, const InferenceOperands &a) {
    if (!a.query.defined() || !a.out.defined()) return;  // required() says so
    if (std::ranges::count(kLayouts, std::string_view(call.layout)) == 0)
        fail(FaultKind::InvalidArgument, "parameter inputLayout is \"{}\", allowed are {}", call.layout,
             fmt::join(kLayouts, ", "));
    dtype(a.query, {at::kHalf, at::kBFloat16, at::kChar});
    if (a.query.scalar_type() == at::kChar) refuse(a.query, "the virtual NPU has no attention of int8 queries");
    rank(a.query, {call.in() == "BSH" || call.in().size() == 3 ? 3 : 4});
    in_float_range(call.scale, "scaleValue");
    check_heads(call);
    if (call.in() == "BSH" && a.query.size(2) % call.heads != 0)
        refuse(a.query, fmt::format("its last size must be a multiple of numHeads {}", call.heads));
    const at::Tensor query = heads_first(a.query, call.in(), call.heads);
    if (query.size(1) != call.heads) refuse(a.query, fmt::format("numHeads is {}", call.heads));
    const int64_t count = batches(call, a), queries = query.size(2);
    check_caches(call, a, count);
    const Cache keys = key_cache(call, a);
    if (call.packed()) {
        check_ends("actualSeqLengths", a.query_lengths, queries);
        if (a.key_lengths.size() != a.query_lengths.size())
            fail(FaultKind::InvalidArgument, "parameter actualSeqLengthsKv has {} values, actualSeqLengths {}",
                 a.key_lengths.size(), a.query_lengths.size());
        if (!keys.paged()) check_ends("actualSeqLengthsKv", a.key_lengths, keys.longest(0));
        check_packed_widths(call, a);
        // (ops-transformer: aclnnFusedInferAttentionScoreV4.md)
        tiled(call.sparse_mode == kDefaultMask ? !a.mask.defined()
                                               : call.sparse_mode == kRightDownCausal || call.sparse_mode == kBand,
              "When Layout is {}, sparseMode only support 0 without a mask, 3 or 4, but sparseMode = {}", call.layout,
              call.sparse_mode);
    } else if (queries > 1) {
        check_listed("actualSeqLengths", a.query_lengths, count, queries);
    }
    if (!call.packed() || keys.paged())
        for (int64_t b = 0; b < count; ++b) check_listed("actualSeqLengthsKv", a.key_lengths, count, keys.longest(b));
    for (const Operand *padding : {a.query_padding, a.key_padding}) {
        if (!given(padding)) continue;
        dtype(*padding, at::kLong);
        one_element(*padding);
        if (call.packed()) refuse(*padding, "which layouts TND and NTD do not allow");
        const bool of_query = padding == a.query_padding;
        if ((of_query ? a.query_lengths : a.key_lengths).empty())
            refuse(*padding, of_query ? "which needs actualSeqLengths" : "which needs actualSeqLengthsKv");
    }
    check_mask(call, a, count, queries);
    check_pse(call, a, count, queries);
    if (given(a.sink)) {
        shape(*a.sink, {call.heads});
        const int64_t width = value_cache(call, a).width();
        tiled(
            call.packed() && (width == 64 || width == 128),
            "Only layout TND/NTD_TND and valueD = 128/64 supported learnable_sink, but actual layout is {} and D = {}!",
            call.layout, width);
    }
    check_result(call, a, query);
}

}  // namespace vnpu::opapi::attention
