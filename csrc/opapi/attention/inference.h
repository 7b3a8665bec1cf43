// Attention without gradients: one call with many faces. FusedInferAttentionScore takes all that there is, prompts
// (many queries) and increments (one query, keys from a cache) part of it. https://gitcode.com/cann/ops-transformer,
// attention/fused_infer_attention_score.
#pragma once

#include <string>

#include "opapi/attention/cache.h"

namespace vnpu::opapi::attention {

// What a call asks for, besides tensors.
struct Inference {
    int64_t heads, key_heads;  // key_heads 0: as many as heads
    double scale;
    std::string layout;  // of what is read; behind an underscore that of the result, where it is another
    int64_t sparse_mode = 0, pre_tokens = 0, next_tokens = 0, inner_precise = 0;
    int64_t block = 0;
    int64_t antiquant_mode = kByChannel, key_antiquant_mode = kByChannel, value_antiquant_mode = kByChannel;
    bool lse = false;
    bool prompt = false;  // asked for by PromptFlashAttention itself

    int64_t of_keys() const { return key_heads > 0 ? key_heads : heads; }
    std::string in() const { return layout.substr(0, layout.find('_')); }
    std::string out() const;
    // Sequences lie one behind another: lengths are running totals.
    bool packed() const { return in() == "TND" || in() == "NTD"; }
};

// The operands. Null: the face has no such parameter.
struct InferenceOperands {
    const Operand &query;
    at::ArrayRef<Operand> key, value;
    const Operand &pse, &mask;
    const Ints &query_lengths, &key_lengths;
    const Operand &out;
    const Operand *lse = nullptr;
    const Operand *out_scale = nullptr, *out_offset = nullptr;
    const Operand *antiquant_scale = nullptr, *antiquant_offset = nullptr;  // keys' first, then values'
    const Operand *key_scale = nullptr, *key_offset = nullptr, *value_scale = nullptr, *value_offset = nullptr;
    const Operand *table = nullptr;
    const Operand *query_padding = nullptr, *key_padding = nullptr;
    const Operand *key_prefix = nullptr, *value_prefix = nullptr;
    const Ints *prefix_length = nullptr;
    const Operand *query_rope = nullptr, *key_rope = nullptr;
    const Operand *sink = nullptr;
};

inline at::Tensor maybe(const Operand *operand) {
    return given(operand) ? static_cast<const at::Tensor &>(*operand) : at::Tensor();
}

Cache key_cache(const Inference &call, const InferenceOperands &operands);
Cache value_cache(const Inference &call, const InferenceOperands &operands);
int64_t batches(const Inference &call, const InferenceOperands &operands);

// Refuses layouts other than these, which an older face has.
void check_face(const Inference &call, std::initializer_list<std::string_view> layouts);
// Refuses what quantises the products themselves.
void check_only_floats(std::initializer_list<const Operand *> factors);
// What version 5 of the fused operator adds.
void check_added(int64_t pse_type, const Ints &query_start, const Ints &key_start);
void check_inference(const Inference &call, const InferenceOperands &operands);
void infer(const Inference &call, const InferenceOperands &operands);

}  // namespace vnpu::opapi::attention
