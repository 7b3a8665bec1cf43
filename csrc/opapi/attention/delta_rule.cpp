// The gated delta rule, a linear attention: a state for each sequence and head, [width of a value, width of a key],
// which forgets, and learns what it does not know yet of a key's value. fp32; what is stored is rounded.
// https://gitcode.com/cann/ops-transformer, attention/recurrent_gated_delta_rule.
#include <fmt/ranges.h>

#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

struct Delta {
    const Operand &query, &key, &value, &beta, &lengths, &states, &gate, &key_gate, &accepted;
    double scale;
};

void check_delta(const Delta &a, const Operand &state, const Operand &out) {
    for (const Operand *operand : {&a.query, &a.key, &a.value, &out, &state}) dtype(*operand, {at::kBFloat16});
    for (const Operand *operand : {&a.query, &a.key, &a.value}) rank(*operand, {3});
    rank(state, {4});
    same_shape(a.key, a.query);
    const int64_t tokens = a.query.size(0), key_heads = a.query.size(1), heads = a.value.size(1);
    if (a.value.size(0) != tokens || key_heads == 0 || heads % key_heads != 0)
        fail(FaultKind::InvalidArgument,
             "parameter {} is {}, the query {}: expected as many tokens and a multiple of "
             "its heads",
             a.value.parameter(), describe(a.value), describe(a.query));
    shape(out, a.value.sizes());
    shape(state, {state.size(0), heads, a.value.size(2), a.query.size(2)});
    for (const Operand *operand : {&a.lengths, &a.states, &a.accepted})
        if (operand->defined()) dtype(*operand, {at::kInt});
    rank(a.lengths, {1});
    shape(a.states, {tokens});
    if (a.accepted.defined()) shape(a.accepted, {a.lengths.size(0)});
    if (a.beta.defined()) {
        dtype(a.beta, {at::kBFloat16});
        shape(a.beta, {tokens, heads});
    }
    if (a.gate.defined()) {
        dtype(a.gate, {at::kFloat});
        shape(a.gate, {tokens, heads});
    }
    if (a.key_gate.defined()) {
        dtype(a.key_gate, {at::kFloat});
        shape(a.key_gate, {tokens, heads, a.query.size(2)});
    }
    // (ops-transformer: aclnnRecurrentGatedDeltaRule.md)
    tiled(key_heads <= 256 && heads <= 256 && a.query.size(2) <= 512 && a.value.size(2) <= 512,
          "the query is {} and the value {}: allowed are up to 256 heads of widths of up to 512", describe(a.query),
          describe(a.value));
}

void delta(const Delta &a, at::Tensor &state, at::Tensor &out) {
    const int64_t repeats = a.value.size(1) / a.query.size(1);
    const at::Tensor query = (widened(a.query) * a.scale).repeat_interleave(repeats, 1);
    const at::Tensor key = widened(a.key).repeat_interleave(repeats, 1), value = widened(a.value);
    int64_t start = 0;
    for (int64_t b = 0; b < a.lengths.size(0); ++b) {
        const int64_t length = a.lengths[b].item<int64_t>();
        // Of tokens that were guessed, the last one that was right has left the state.
        const int64_t last = a.accepted.defined() ? a.accepted[b].item<int64_t>() - 1 : 0;
        if (length == 0) continue;
        at::Tensor own = state.select(0, a.states[start + last].item<int64_t>()).to(at::kFloat);
        for (int64_t token = start; token < start + length; ++token) {
            if (a.gate.defined()) own = own * a.gate.select(0, token).exp().view({-1, 1, 1});
            if (a.key_gate.defined()) own = own * a.key_gate.select(0, token).exp().unsqueeze(1);
            const at::Tensor of_key = key.select(0, token).unsqueeze(1);  // [heads, 1, width]
            at::Tensor news = value.select(0, token) - (own * of_key).sum(-1);
            if (a.beta.defined()) news = news * widened(a.beta.select(0, token)).unsqueeze(-1);
            own = own + news.unsqueeze(-1) * of_key;
            state.select(0, a.states[token].item<int64_t>()).copy_(own);
            out.select(0, token).copy_((own * query.select(0, token).unsqueeze(1)).sum(-1));
        }
        start += length;
    }
}

// --- the same for whole sequences, each from a state of its own, which CANN computes in chunks of tokens

// (ops-transformer: aclnn_chunk_gated_delta_rule.cpp and chunk_gated_delta_rule_tiling.cpp)
void check_sequences(std::initializer_list<const Operand *> given, const Operand &gate, const Operand &state,
                     const Operand &last, const Operand &out) {
    for (const Operand *operand : given)
        if (!operand->defined()) fail(FaultKind::InvalidArgument, "parameter {} is null", operand->parameter());
    const auto operand = given.begin();
    const Operand &query = *operand[0], &key = *operand[1], &value = *operand[2], &beta = *operand[3];
    const Operand &lengths = *operand[4];
    tiled(state.scalar_type() == at::kBFloat16, "parameter {} is {}, expected bfloat16", state.parameter(),
          describe(state));
    tiled(last.scalar_type() == state.scalar_type(), "parameters {} and {} are {} and {}, expected one dtype",
          state.parameter(), last.parameter(), describe(state), describe(last));
    const auto has = [](const Operand &tensor, at::IntArrayRef sizes) {
        if (tensor.sizes() != sizes)
            fail(FaultKind::TilingRefused, "parameter {} is {}, expected [{}]", tensor.parameter(), describe(tensor),
                 fmt::join(sizes, ", "));
    };
    for (const Operand *tensor : {&query, &value})
        if (tensor->dim() != 3)
            fail(FaultKind::TilingRefused, "parameter {} is {}, expected 3 dimensions", tensor->parameter(),
                 describe(*tensor));
    const int64_t tokens = query.size(0), key_heads = query.size(1), width = query.size(2);
    const int64_t heads = value.size(1), value_width = value.size(2);
    tiled(query.numel() > 0 && value.numel() > 0 && lengths.numel() > 0,
          "parameters {}, {} and {} are {}, {} and {}, of which none may be empty", query.parameter(),
          value.parameter(), lengths.parameter(), describe(query), describe(value), describe(lengths));
    tiled(heads <= 64 && key_heads <= 64 && width <= 128 && value_width <= 128,
          "the query is {} and the value {}: allowed are up to 64 heads of widths of up to 128", describe(query),
          describe(value));
    if (heads % std::max<int64_t>(key_heads, 1) != 0)
        fail(FaultKind::TilingRefused, "parameter {} is {}, expected a multiple of {} heads", value.parameter(),
             describe(value), key_heads);
    has(key, {tokens, key_heads, width});
    has(value, {tokens, heads, value_width});
    has(beta, {tokens, heads});
    has(lengths, {lengths.numel()});
    for (const Operand *states : {&state, &last}) has(*states, {lengths.numel(), heads, value_width, width});
    if (gate.defined()) has(gate, {tokens, heads});
    has(out, {tokens, heads, value_width});
}

void sequences(const Delta &a, const at::Tensor &initial, at::Tensor &last, at::Tensor &out) {
    const int64_t repeats = a.value.size(1) / a.query.size(1);
    const at::Tensor query = (widened(a.query) * a.scale).repeat_interleave(repeats, 1).unsqueeze(-1);
    const at::Tensor key = widened(a.key).repeat_interleave(repeats, 1).unsqueeze(2);
    const at::Tensor value = widened(a.value), beta = widened(a.beta).unsqueeze(-1);
    const at::Tensor decay = a.gate.defined() ? a.gate.exp().unsqueeze(-1).unsqueeze(-1) : at::Tensor();
    int64_t token = 0;
    for (int64_t b = 0; b < a.lengths.size(0); ++b) {
        at::Tensor own = initial[b].to(at::kFloat, false, true);
        for (const int64_t end = token + a.lengths[b].item<int64_t>(); token < end; ++token) {
            if (decay.defined()) own.mul_(decay[token]);
            const at::Tensor news = value[token] - own.matmul(key[token].mT()).squeeze(-1);
            own.baddbmm_((news * beta[token]).unsqueeze(-1), key[token]);
            out[token].copy_(own.matmul(query[token]).squeeze(-1));
        }
        last[b].copy_(own);
    }
}

}  // namespace
}  // namespace vnpu::opapi

#define DELTA {query, key, value, beta, actualSeqLengths, ssmStateIndices, g, gk, numAcceptedTokens, scaleValue}
OP(aclnnRecurrentGatedDeltaRule, optional(beta, g, gk, numAcceptedTokens); required(actualSeqLengths, ssmStateIndices);
   check_delta(DELTA, stateRef, out), delta(DELTA, stateRef, out))
OP(aclnnChunkGatedDeltaRule, optional(query, key, value, beta, initialState, actualSeqLengths, out, finalState);
   check_sequences({&query, &key, &value, &beta, &actualSeqLengths, &initialState, &out, &finalState}, gOptional,
                   initialState, finalState, out),
   sequences({query, key, value, beta, actualSeqLengths, Operand(nullptr, "none"), gOptional, Operand(nullptr, "none"),
              Operand(nullptr, "none"), scaleValue},
             initialState, finalState, out))
