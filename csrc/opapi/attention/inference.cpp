// Attention without gradients: prompts, increments, and both in one operator. Each batch is a sequence of its own for
// the kernel that trains (attention.cpp): fp32, rounded once, but for what hardware's fast mode rounds of a prompt.
#include "opapi/attention/inference.h"

#include <limits>

#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/attention/max_workspace.h"

namespace vnpu::opapi::attention {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kFast = 1;         // innerPrecise: the bit that asks for speed where 0 asks for precision
constexpr int kNoBlindRows = 2;  // ... that asks for zeros where a query sees no key

// Where one batch's tokens lie in a tensor.
struct Span {
    int64_t start, length;
};

int64_t listed(const Ints &lengths, int64_t batch, int64_t otherwise) {
    if (lengths.empty()) return otherwise;
    return lengths[lengths.size() == 1 ? 0 : static_cast<size_t>(batch)];
}

Span between(const Ints &ends, int64_t batch) {
    const auto i = static_cast<size_t>(batch);
    const int64_t start = i == 0 ? 0 : ends[i - 1];
    return {start, ends[i] - start};
}

// The last `length` of `whole` tokens, without the padding behind them, where the call says how much there is.
Span padded(const Operand *padding, int64_t length, int64_t whole) {
    if (!given(padding)) return {0, length};
    return {whole - std::max<int64_t>(padding->reshape({-1})[0].item<int64_t>(), 0) - length, length};
}

// The part of a tensor [batch or 1, heads or 1, queries, keys] for a batch: [1, heads or 1, queries, keys]. Masks may
// lack dimensions, and have more rows and columns than there are queries and keys.
at::Tensor part(const at::Tensor &tensor, int64_t batch, bool one_query, Span queries, Span keys) {
    if (!tensor.defined()) return {};
    at::Tensor all = tensor;
    if (all.dim() == 2) all = one_query ? all.unsqueeze(1) : all.unsqueeze(0);
    if (all.dim() == 3) all = all.unsqueeze(1);
    all = all.narrow(0, all.size(0) == 1 ? 0 : batch, 1);
    return all.narrow(2, all.size(2) == 1 ? 0 : queries.start, std::min(queries.length, all.size(2)))
        .narrow(3, keys.start, keys.length);
}

// The result as int8, in the layout of the result. One factor, or one for each channel of [heads, width].
at::Tensor quantized(const at::Tensor &result, const at::Tensor &scale, const at::Tensor &offset) {
    const auto factors = [&](const at::Tensor &tensor) {
        const at::Tensor wide = tensor.to(at::kFloat);
        return wide.numel() == 1 ? wide.reshape({1, 1, 1, 1}) : wide.reshape({1, result.size(1), 1, result.size(3)});
    };
    at::Tensor scaled = result * factors(scale);
    if (offset.defined()) scaled = scaled + factors(offset);
    return scaled.round_().clamp_(-128, 127);
}

Antiquant antiquant(const Inference &call, const InferenceOperands &a, bool of_keys) {
    const auto half = [&](const Operand *both) {
        return given(both) ? both->select(0, of_keys ? 0 : 1) : at::Tensor();
    };
    if (!given(a.key_scale)) return {half(a.antiquant_scale), half(a.antiquant_offset), call.antiquant_mode};
    if (of_keys) return {maybe(a.key_scale), maybe(a.key_offset), call.key_antiquant_mode};
    return {maybe(a.value_scale), maybe(a.value_offset), call.value_antiquant_mode};
}

Cache cache(const Inference &call, const InferenceOperands &a, at::ArrayRef<Operand> tensors) {
    return {.tensors = tensors, .layout = call.in(), .heads = call.of_keys(), .table = maybe(a.table)};
}

int64_t prefix_length(const InferenceOperands &a) {
    return a.prefix_length != nullptr && !a.prefix_length->empty() ? a.prefix_length->front() : 0;
}

// A prompt's scores in fp16: PromptFlashAttentionTypeTraits<half, HighPerformance> has mmOutputType half, and the
// tiling takes HighPrecision where there is a pseShift (attention/prompt_flash_attention).
bool half_scores(const Inference &call, const InferenceOperands &a) {
    return call.prompt && a.query.scalar_type() == at::kHalf && (call.inner_precise & kFast) != 0 && !a.pse.defined();
}

}  // namespace

std::string Inference::out() const {
    const size_t mark = layout.find('_');
    return mark == std::string::npos ? layout : layout.substr(mark + 1);
}

Cache key_cache(const Inference &call, const InferenceOperands &a) {
    Cache found = cache(call, a, a.key);
    found.antiquant = antiquant(call, a, true);
    found.prefix = maybe(a.key_prefix);
    if (found.prefix.defined())
        found.prefix_length =
            prefix_length(a) > 0 ? prefix_length(a) : heads_first(found.prefix, call.in(), call.of_keys()).size(2);
    return found;
}

Cache value_cache(const Inference &call, const InferenceOperands &a) {
    Cache found = cache(call, a, a.value);
    found.antiquant = antiquant(call, a, false);
    found.prefix = maybe(a.value_prefix);
    if (found.prefix.defined()) found.prefix_length = key_cache(call, a).prefix_length;
    return found;
}

int64_t batches(const Inference &call, const InferenceOperands &a) {
    return call.packed() ? static_cast<int64_t>(a.query_lengths.size())
                         : heads_first(a.query, call.in(), call.heads).size(0);
}

void infer(const Inference &call, const InferenceOperands &a) {
    const at::Tensor result = heads_first(a.out, call.out(), call.heads);
    const bool narrow = a.out.scalar_type() == at::kChar;
    const at::Tensor out = narrow ? at::zeros(result.sizes(), at::kFloat) : result.zero_();
    at::Tensor lse;
    if (call.lse) {
        lse = call.packed() ? a.lse->transpose(0, 1).unsqueeze(0) : static_cast<const at::Tensor &>(*a.lse);
        lse.fill_(kInfinity);
    }
    at::Tensor query = heads_first(a.query, call.in(), call.heads);
    if (given(a.query_rope)) query = at::cat({query, heads_first(*a.query_rope, call.in(), call.heads)}, -1);
    const Cache keys = key_cache(call, a), values = value_cache(call, a);
    const Cache ropes = given(a.key_rope) ? cache(call, a, *a.key_rope) : Cache{{}, "", 1};
    const int64_t whole = query.size(2);
    const bool one_query = whole == 1 && !call.packed() && !given(a.query_rope);
    Settings settings{.scale = call.scale,
                      .keep = 1,
                      .pre_tokens = call.pre_tokens,
                      .next_tokens = call.next_tokens,
                      .heads = call.heads,
                      .layout = "BNSD",
                      .inner_precise = (call.inner_precise & kNoBlindRows) != 0 ? kNoBlindRows : 0,
                      // A mask is all that counts for one query, and beside padding the band means nothing.
                      .sparse_mode = one_query || (call.sparse_mode == kDefaultMask &&
                                                   (given(a.query_padding) || given(a.key_padding)))
                                         ? int64_t{kAllMask}
                                         : call.sparse_mode,
                      .prefix = nullptr,
                      .pse_type = 0,
                      .half_scores = half_scores(call, a)};
    const at::Tensor sink = given(a.sink) ? a.sink->to(at::kFloat).contiguous() : at::Tensor();
    for (int64_t b = 0; b < batches(call, a); ++b) {
        const Span queries = call.packed()
                                 ? between(a.query_lengths, b)
                                 : padded(a.query_padding, one_query ? 1 : listed(a.query_lengths, b, whole), whole);
        const Span own = call.packed() && !keys.paged()
                             ? between(a.key_lengths, b)
                             : padded(a.key_padding, listed(a.key_lengths, b, keys.longest(b)), keys.longest(b));
        const Span seen{own.start, keys.prefix_length + own.length};  // columns of masks and biases
        if (queries.length == 0 || seen.length == 0) continue;
        at::Tensor key = keys.rows(b, own.start, own.length, a.query.scalar_type());
        if (given(a.key_rope)) key = at::cat({key, ropes.rows(b, own.start, own.length, a.query.scalar_type())}, -1);
        const at::Tensor value = values.rows(b, own.start, own.length, a.query.scalar_type());
        const auto of_batch = [&](const at::Tensor &tensor) {
            return tensor.narrow(0, call.packed() ? 0 : b, 1).narrow(2, queries.start, queries.length);
        };
        at::Tensor mask = a.mask;
        if (mask.defined())
            mask = settings.sparse_mode >= kLeftUpCausal ? mask.reshape({mask.size(-2), mask.size(-1)}).to(at::kBool)
                                                         : part(mask, b, one_query, queries, seen);
        const at::Tensor maximum = at::empty({1, call.heads, queries.length, 1}, at::kFloat);
        const at::Tensor sum = at::empty_like(maximum);
        forward(Sequences{.query = of_batch(query),
                          .key = key.unsqueeze(0),
                          .value = value.unsqueeze(0),
                          .pse = part(a.pse, b, one_query, queries, seen),
                          .out = of_batch(out),
                          .maximum = maximum,
                          .sum = sum,
                          .sink = sink,
                          .mask = Mask(mask, settings, queries.length, seen.length, 0),
                          .dropout = {}},
                settings);
        if (call.lse)
            of_batch(lse).copy_(
                (maximum + sum.log()).masked_fill(maximum == std::numeric_limits<float>::lowest(), kInfinity));
    }
    if (narrow) result.copy_(quantized(out, *a.out_scale, maybe(a.out_offset)));
}

}  // namespace vnpu::opapi::attention

#define PROMPT                      \
    {.heads = numHeads,             \
     .key_heads = numKeyValueHeads, \
     .scale = scaleValue,           \
     .layout = inputLayout,         \
     .sparse_mode = sparseMode,     \
     .pre_tokens = preTokens,       \
     .next_tokens = nextTokens,     \
     .inner_precise = innerPrecise, \
     .prompt = true}
#define PROMPT_OPERANDS {query, key, value, pseShift, attenMask, actualSeqLengths, actualSeqLengthsKv, attentionOut}
OP(aclnnPromptFlashAttentionV3,
   optional(pseShift, attenMask, deqScale1, quantScale1, deqScale2, quantScale2, quantOffset2);
   attention::check_only_floats({&deqScale1, &quantScale1, &deqScale2, &quantScale2, &quantOffset2});
   attention::check_face(PROMPT, {"BSH", "BSND", "BNSD", "BNSD_BSND"});
   attention::check_inference(PROMPT, PROMPT_OPERANDS), attention::infer(PROMPT, PROMPT_OPERANDS))

#define INCREMENT                   \
    {.heads = numHeads,             \
     .key_heads = numKeyValueHeads, \
     .scale = scaleValue,           \
     .layout = inputLayout,         \
     .inner_precise = innerPrecise, \
     .block = blockSize}
#define INCREMENT_OPERANDS                 \
    {.query = query,                       \
     .key = key,                           \
     .value = value,                       \
     .pse = pseShift,                      \
     .mask = attenMask,                    \
     .query_lengths = nullptr,             \
     .key_lengths = actualSeqLengths,      \
     .out = attentionOut,                  \
     .out_scale = &quantScale2,            \
     .out_offset = &quantOffset2,          \
     .antiquant_scale = &antiquantScale,   \
     .antiquant_offset = &antiquantOffset, \
     .table = &blocktable,                 \
     .key_padding = &kvPaddingSize}
OP(aclnnIncreFlashAttentionV4, optional(pseShift, attenMask, dequantScale1, quantScale1, dequantScale2, quantScale2,
                                        quantOffset2, antiquantScale, antiquantOffset, blocktable, kvPaddingSize);
   attention::check_only_floats({&dequantScale1, &quantScale1, &dequantScale2});
   attention::check_face(INCREMENT, {"BSH", "BSND", "BNSD"});
   attention::check_inference(INCREMENT, INCREMENT_OPERANDS), attention::infer(INCREMENT, INCREMENT_OPERANDS))

#define FUSED                                    \
    {.heads = numHeads,                          \
     .key_heads = numKeyValueHeads,              \
     .scale = scaleValue,                        \
     .layout = inputLayout,                      \
     .sparse_mode = sparseMode,                  \
     .pre_tokens = preTokens,                    \
     .next_tokens = nextTokens,                  \
     .inner_precise = innerPrecise,              \
     .block = blockSize,                         \
     .antiquant_mode = antiquantMode,            \
     .key_antiquant_mode = keyAntiquantMode,     \
     .value_antiquant_mode = valueAntiquantMode, \
     .lse = softmaxLseFlag}
#define FUSED_OPERANDS(...)                           \
    {.query = query,                                  \
     .key = key,                                      \
     .value = value,                                  \
     .pse = pseShiftOptional,                         \
     .mask = attenMaskOptional,                       \
     .query_lengths = actualSeqLengthsOptional,       \
     .key_lengths = actualSeqLengthsKvOptional,       \
     .out = attentionOut,                             \
     .lse = &softmaxLse,                              \
     .out_scale = &quantScale2Optional,               \
     .out_offset = &quantOffset2Optional,             \
     .antiquant_scale = &antiquantScaleOptional,      \
     .antiquant_offset = &antiquantOffsetOptional,    \
     .key_scale = &keyAntiquantScaleOptional,         \
     .key_offset = &keyAntiquantOffsetOptional,       \
     .value_scale = &valueAntiquantScaleOptional,     \
     .value_offset = &valueAntiquantOffsetOptional,   \
     .table = &blockTableOptional,                    \
     .query_padding = &queryPaddingSizeOptional,      \
     .key_padding = &kvPaddingSizeOptional,           \
     .key_prefix = &keySharedPrefixOptional,          \
     .value_prefix = &valueSharedPrefixOptional,      \
     .prefix_length = &actualSharedPrefixLenOptional, \
     __VA_ARGS__}
#define FUSED_ROPE .query_rope = &queryRopeOptional, .key_rope = &keyRopeOptional
#define FUSED_SINK FUSED_ROPE, .sink = &learnableSinkOptional
// What all versions of the operator check of a call, and the versions' own.
#define FUSED_CHECK(...)                                                                          \
    optional(softmaxLse);                                                                         \
    attention::check_only_floats({&deqScale1Optional, &quantScale1Optional, &deqScale2Optional}); \
    attention::check_inference(FUSED, FUSED_OPERANDS(__VA_ARGS__))
#define FUSED_CHECK_V2 FUSED_CHECK()
#define FUSED_CHECK_V3 FUSED_CHECK(FUSED_ROPE)
#define FUSED_CHECK_V4                                          \
    attention::check_only_floats({&dequantScaleQueryOptional}); \
    FUSED_CHECK(FUSED_SINK)
#define FUSED_CHECK_V5                                                      \
    attention::check_added(pseType, qStartIdxOptional, kvStartIdxOptional); \
    FUSED_CHECK_V4

OP(aclnnFusedInferAttentionScoreV2, FUSED_CHECK_V2, attention::infer(FUSED, FUSED_OPERANDS()))
OP(aclnnFusedInferAttentionScoreV3, FUSED_CHECK_V3, attention::infer(FUSED, FUSED_OPERANDS(FUSED_ROPE)))
OP(aclnnFusedInferAttentionScoreV4, FUSED_CHECK_V4, attention::infer(FUSED, FUSED_OPERANDS(FUSED_SINK)))
OP(aclnnFusedInferAttentionScoreV5, FUSED_CHECK_V5, attention::infer(FUSED, FUSED_OPERANDS(FUSED_SINK)))

MAX_WORKSPACE(aclnnFusedInferAttentionScoreV3GetMaxWorkspaceSize, FUSED_CHECK_V3)
MAX_WORKSPACE(aclnnFusedInferAttentionScoreV4GetMaxWorkspaceSize, FUSED_CHECK_V4)
MAX_WORKSPACE(aclnnFusedInferAttentionScoreV5GetMaxWorkspaceSize, FUSED_CHECK_V5)
