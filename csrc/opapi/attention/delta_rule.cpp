// The gated delta rule, a linear attention: a state for each sequence and head, [width of a value, width of a key],
// which forgets, and learns what it does not know yet of a key's value. fp32; what is stored is rounded.
// https://gitcode.com/cann/ops-transformer, attention/recurrent_gated_delta_rule.
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

}  // namespace
}  // namespace vnpu::opapi

#define DELTA {query, key, value, beta, actualSeqLengths, ssmStateIndices, g, gk, numAcceptedTokens, scaleValue}
OP(aclnnRecurrentGatedDeltaRule, optional(beta, g, gk, numAcceptedTokens); required(actualSeqLengths, ssmStateIndices);
   check_delta(DELTA, stateRef, out), delta(DELTA, stateRef, out))
