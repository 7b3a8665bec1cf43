// Mixture of experts: tokens sorted by expert and back, with gradients. Sorting is stable.
#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

void check_tokens(const Operand &value) {
    rank(value, {2});
    network(value);
}

void check_index(const Operand &value) { dtype(value, {at::kInt, at::kLong}); }

void check_plain_mode(bool padded) {
    if (padded) fail(FaultKind::InvalidArgument, "parameter paddedMode is true, which CANN does not support either");
}

void check_needed(const Operand &operand, const char *why) {
    if (!operand.defined())
        fail(FaultKind::NullArgument, "parameter {} is null, which {} does not allow", operand.parameter(), why);
}

int64_t choices(const at::Tensor &indices) { return indices.dim() < 2 ? 1 : indices.size(1); }

void check_permute(const Operand &x, const Operand &indices, const Operand &out, const Operand &sorted) {
    check_tokens(x);
    check_index(indices);
    rank(indices, {1, 2});
    check_tokens(out);
    if (indices.size(0) != x.size(0))
        fail(FaultKind::InvalidArgument, "parameter indices is {}, expected a row for each of {} tokens",
             describe(indices), x.size(0));
    if (out.size(1) != x.size(1) || out.size(0) > indices.numel())
        fail(FaultKind::InvalidArgument, "parameter permuteTokensOut is {}, expected at most [{}, {}]", describe(out),
             indices.numel(), x.size(1));
    dtype(sorted, {at::kInt});
    shape(sorted, {indices.numel()});
}

at::Tensor long_flat(const at::Tensor &index) { return index.reshape({-1}).to(at::kLong); }

void permute(const at::Tensor &x, const at::Tensor &indices, at::Tensor &out, at::Tensor &sorted) {
    const at::Tensor order = at::argsort(long_flat(indices), true, 0, false);
    const at::Tensor source = order.slice(0, 0, out.size(0)).div(choices(indices), "floor");
    out.copy_(x.index_select(0, source));
    sorted.copy_(at::argsort(order, true, 0, false));
}

// rows[where[i]], zeros where that lies behind the end (dropped tokens).
at::Tensor picked(const at::Tensor &rows, const at::Tensor &where) {
    const at::Tensor wide = widened(rows), inside = where.lt(rows.size(0)).logical_and_(where.ge(0));
    if (rows.size(0) == 0) return at::zeros({where.size(0), rows.size(1)}, wide.options());
    return wide.index_select(0, where.clamp(0, rows.size(0) - 1)) * inside.unsqueeze(1);
}

void check_grad(const Operand &grad, const Operand &sorted, int64_t top_k, const Operand &out) {
    check_tokens(grad);
    check_index(sorted);
    check_tokens(out);
    if (top_k <= 0 || sorted.numel() != out.size(0) * top_k || out.size(1) != grad.size(1))
        fail(FaultKind::InvalidArgument, "parameter out is {}, expected [{} / numTopk, {}]", describe(out),
             sorted.numel(), grad.size(1));
}

void check_unpermute(const Operand &x, const Operand &sorted, const Operand &probs, const Operand &out) {
    check_tokens(x);
    check_index(sorted);
    check_tokens(out);
    const int64_t top_k = probs.defined() ? choices(probs) : 1;
    if (probs.defined()) network(probs);
    if (sorted.numel() != out.size(0) * top_k || out.size(1) != x.size(1))
        fail(FaultKind::InvalidArgument, "parameter out is {}, expected [{} / {}, {}]", describe(out), sorted.numel(),
             top_k, x.size(1));
}

void unpermute(const at::Tensor &x, const at::Tensor &sorted, const at::Tensor &probs, at::Tensor &out) {
    if (out.numel() == 0) return;
    at::Tensor rows = picked(x, long_flat(sorted));
    if (probs.defined()) rows = rows * widened(probs).reshape({-1, 1});
    out.copy_(rows.view({out.size(0), -1, x.size(1)}).sum(1));
}

// The gradient of unpermute: every permuted row got its token's, times its probability.
void unpermute_grad(const at::Tensor &x, const at::Tensor &grad, const at::Tensor &where, const at::Tensor &weights,
                    at::Tensor &x_grad, at::Tensor &weights_grad) {
    const int64_t top_k = where.size(0) / std::max<int64_t>(grad.size(0), 1);
    const at::Tensor each = widened(grad).repeat_interleave(top_k, 0);
    const at::Tensor inside = where.lt(x_grad.size(0)), kept = where.masked_select(inside);
    const at::Tensor rows = weights.defined() ? each * widened(weights).reshape({-1, 1}) : each;
    const at::Tensor kept_rows = rows.index({inside});
    x_grad.copy_(at::zeros(x_grad.sizes(), rows.options()).index_add_(0, kept, kept_rows));
    if (weights.defined()) weights_grad.copy_((picked(x, where) * each).sum(1).reshape(weights_grad.sizes()));
}

// --- with a map [tokens, experts] of who goes where

void check_map(const Operand &map, int64_t rows) {
    rank(map, {2});
    dtype(map, {at::kBool, at::kChar});
    if (map.size(0) != rows)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected a row for each of {} tokens", map.parameter(),
             describe(map), rows);
}

at::Tensor by_expert(const at::Tensor &map) { return map.to(at::kBool).t().contiguous(); }

void check_permute_map(const Operand &x, const Operand &map, const Operand &probs, const Operand &out,
                       const Operand &out_probs, const Operand &sorted) {
    check_tokens(x);
    check_map(map, x.size(0));
    check_tokens(out);
    dtype(sorted, {at::kInt});
    shape(sorted, {out.size(0)});
    if (!probs.defined()) return;
    network(probs);
    same_shape(probs, map);
    shape(out_probs, {out.size(0)});
}

void permute_map(const at::Tensor &x, const at::Tensor &map, const at::Tensor &probs, bool pad, at::Tensor &out,
                 at::Tensor &out_probs, at::Tensor &sorted) {
    const at::Tensor routes = by_expert(map);
    at::Tensor token, expert;
    if (pad) {  // as many places for each expert
        const int64_t experts = map.size(1), capacity = out.size(0) / experts;
        token = at::argsort(routes.to(at::kChar), true, -1, true).slice(1, 0, capacity).reshape({-1});
        expert = at::arange(experts, token.options()).repeat_interleave(capacity);
        sorted.copy_(token);
    } else {
        const at::Tensor places = routes.nonzero();
        TORCH_CHECK(places.size(0) == out.size(0), "parameter routingMap has ", places.size(0),
                    " routes, but numOutTokens is ", out.size(0));
        expert = places.select(1, 0);
        token = places.select(1, 1);
        sorted.copy_(at::argsort(token, true, 0, false));
    }
    out.copy_(x.index_select(0, token));
    if (probs.defined()) out_probs.copy_(probs.index({token, expert}));
}

void check_permute_map_grad(const Operand &grad, const Operand &probs_grad, const Operand &sorted, const Operand &map,
                            int64_t rows, int64_t experts, const Operand &out, const Operand &out_probs) {
    check_tokens(grad);
    check_index(sorted);
    shape(sorted, {grad.size(0)});
    shape(out, {rows, grad.size(1)});
    if (!probs_grad.defined()) return;
    shape(probs_grad, {grad.size(0)});
    shape(out_probs, {rows, experts});
    if (map.defined()) check_map(map, rows);
}

void permute_map_grad(const at::Tensor &grad, const at::Tensor &probs_grad, const at::Tensor &sorted,
                      const at::Tensor &map, bool pad, at::Tensor &out, at::Tensor &out_probs) {
    const at::Tensor where = long_flat(sorted);
    at::Tensor token, expert;
    if (pad) {
        const int64_t experts = out_probs.defined() ? out_probs.size(1) : 1;
        token = where;
        expert = at::arange(experts, where.options()).repeat_interleave(where.size(0) / experts);
    } else {
        const at::Tensor places = by_expert(map).nonzero();
        expert = places.select(1, 0);
        token = places.select(1, 1);
    }
    const at::Tensor wide = widened(grad);
    out.copy_(at::zeros(out.sizes(), wide.options()).index_add_(0, token, wide));
    if (probs_grad.defined())
        out_probs.copy_(at::zeros(out_probs.sizes(), probs_grad.options()).index_put_({token, expert}, probs_grad));
}

// Padded: the permuted rows in the order of their tokens, and these tokens. Else: where each route's row lies.
struct Routes {
    at::Tensor row, token, weight;  // weight of each permuted row (padded), or of each route
};
Routes routes(const at::Tensor &sorted, const at::Tensor &map, const at::Tensor &probs, bool pad, int64_t count) {
    const at::Tensor where = long_flat(sorted);
    Routes found;
    if (pad) {
        const auto [token, row] = at::sort(where, true, 0, false);
        found = {row, token, {}};
        if (probs.defined()) {
            const int64_t experts = probs.size(1);
            const at::Tensor expert = at::arange(experts, where.options()).repeat_interleave(where.size(0) / experts);
            found.weight = probs.index({where, expert});
        }
    } else {
        const int64_t top_k = where.size(0) / std::max<int64_t>(count, 1);
        found = {where, at::arange(count, where.options()).repeat_interleave(top_k), {}};
        if (probs.defined()) found.weight = probs.masked_select(map.to(at::kBool));
    }
    return found;
}

void check_unpermute_map(const Operand &x, const Operand &sorted, const Operand &map, const Operand &probs, bool pad,
                         const Operand &out, const Operand &out_index, const Operand &token) {
    check_tokens(x);
    check_index(sorted);
    check_tokens(out);
    if (map.defined()) check_map(map, out.size(0));
    if (probs.defined()) network(probs);
    if (!pad && probs.defined()) check_needed(map, "a call with probabilities");
    same_shape(out_index, sorted);
    same_shape(token, sorted);
}

void unpermute_map(const at::Tensor &x, const at::Tensor &sorted, const at::Tensor &map, const at::Tensor &probs,
                   bool pad, at::Tensor &out, at::Tensor &out_index, at::Tensor &token, at::Tensor &weight) {
    const Routes found = routes(sorted, map, probs, pad, out.size(0));
    at::Tensor rows = widened(x).index_select(0, found.row);
    if (found.weight.defined()) {
        const at::Tensor of_row = pad ? found.weight.index_select(0, found.row) : found.weight;
        rows = rows * widened(of_row).unsqueeze(1);
        give(weight, found.weight);
    }
    out.copy_(at::zeros(out.sizes(), rows.options()).index_add_(0, found.token, rows));
    out_index.copy_(found.row);
    token.copy_(found.token);
}

void unpermute_map_grad(const at::Tensor &grad, const at::Tensor &out_index, const at::Tensor &token,
                        const at::Tensor &map, const at::Tensor &x, const at::Tensor &probs, bool pad,
                        at::Tensor &x_grad, at::Tensor &probs_grad) {
    // Not padded, torch_npu passes the sorted indices for the tokens, too: these follow from the order of the routes.
    const at::Tensor row = long_flat(out_index);
    const at::Tensor of = pad ? long_flat(token)
                              : at::arange(grad.size(0), row.options())
                                    .repeat_interleave(row.size(0) / std::max<int64_t>(grad.size(0), 1));
    const at::Tensor each = widened(grad).index_select(0, of);
    at::Tensor expert, weight;
    if (probs.defined()) {
        if (pad)
            expert = row.div(row.size(0) / probs.size(1), "floor");
        else
            expert = map.to(at::kBool).nonzero().select(1, 1);
        weight = widened(probs).index({of, expert}).unsqueeze(1);
        const at::Tensor slopes = (each * widened(x).index_select(0, row)).sum(1);
        probs_grad.copy_(at::zeros(probs_grad.sizes(), slopes.options()).index_put_({of, expert}, slopes));
    }
    const at::Tensor rows = weight.defined() ? each * weight : each;
    x_grad.copy_(at::zeros(x_grad.sizes(), rows.options()).index_copy_(0, row, rows));
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnMoeTokenPermute, check_plain_mode(paddedMode);
   check_permute(tokens, indices, permuteTokensOut, sortedIndicesOut),
   permute(tokens, indices, permuteTokensOut, sortedIndicesOut))
OP(aclnnMoeTokenPermuteGrad, check_plain_mode(paddedMode);
   check_grad(permutedOutputGrad, sortedIndices, numTopk, out),
   out.copy_(picked(permutedOutputGrad, long_flat(sortedIndices)).view({out.size(0), numTopk, out.size(1)}).sum(1)))
OP(aclnnMoeTokenUnpermute, check_plain_mode(paddedMode);
   check_unpermute(permutedTokens, sortedIndices, probsOptional, out),
   unpermute(permutedTokens, sortedIndices, probsOptional, out))
OP(
    aclnnMoeTokenUnpermuteGrad, check_plain_mode(paddedMode); optional(probsGradOut);
    check_tokens(unpermutedTokensGrad); check_index(sortedIndices); check_tokens(permutedTokensGradOut);
    if (probsOptional.defined()) {
        check_needed(permuteTokensOptional, "a call with probabilities");
        same_shape(probsGradOut, probsOptional);
    },
    unpermute_grad(permuteTokensOptional, unpermutedTokensGrad, long_flat(sortedIndices), probsOptional,
                   permutedTokensGradOut, probsGradOut))
OP(aclnnMoeTokenPermuteWithRoutingMap,
   check_permute_map(tokens, routingMap, probsOptional, permuteTokensOut, permuteProbsOutOptional, sortedIndicesOut),
   permute_map(tokens, routingMap, probsOptional, dropAndPad, permuteTokensOut, permuteProbsOutOptional,
               sortedIndicesOut))
OP(aclnnMoeTokenPermuteWithRoutingMapGrad, if (!dropAndPad) check_needed(routingMapOptional, "dropAndPad=false");
   check_permute_map_grad(permutedTokenOutputGrad, permutedProbsOutputGradOptional, sortedIndices, routingMapOptional,
                          tokensNum, numExperts, tokensGradOut, probsGradOutOptional),
   permute_map_grad(permutedTokenOutputGrad, permutedProbsOutputGradOptional, sortedIndices, routingMapOptional,
                    dropAndPad, tokensGradOut, probsGradOutOptional))
OP(aclnnMoeTokenUnpermuteWithRoutingMap, optional(permuteProbs);
   check_unpermute_map(permutedTokens, sortedIndices, routingMapOptional, probsOptional, paddedMode, unpermutedTokens,
                       outIndex, permuteTokenId),
   unpermute_map(permutedTokens, sortedIndices, routingMapOptional, probsOptional, paddedMode, unpermutedTokens,
                 outIndex, permuteTokenId, permuteProbs))
OP(
    aclnnMoeTokenUnpermuteWithRoutingMapGrad, check_tokens(unpermutedTokensGrad); check_index(outIndex);
    same_shape(permuteTokenId, outIndex);
    shape(permutedTokensGradOut, {outIndex.size(0), unpermutedTokensGrad.size(1)});
    if (probsOptional.defined()) {
        check_needed(permutedTokensOptional, "a call with probabilities");
        same_shape(probsGradOutOptional, probsOptional);
    } if (probsOptional.defined() && !dropAndPad) check_needed(routingMapOptional, "dropAndPad=false"),
    unpermute_map_grad(unpermutedTokensGrad, outIndex, permuteTokenId, routingMapOptional, permutedTokensOptional,
                       probsOptional, dropAndPad, permutedTokensGradOut, probsGradOutOptional))
