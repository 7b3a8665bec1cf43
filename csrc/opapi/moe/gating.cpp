// Mixture of experts: which experts a token goes to, and how much each counts.
#include <limits>

#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

void check_top_k(const Operand &x, int64_t k, const Operand &y, const Operand &expert) {
    network(x, y);
    if (x.dim() < 2) fail(FaultKind::InvalidArgument, "parameter x is {}, expected 2 or 3 dimensions", describe(x));
    if (k <= 0 || k > x.size(-1))
        fail(FaultKind::InvalidArgument, "parameter k is {}, allowed is 1 to {}, the number of experts", k, x.size(-1));
    at::DimVector sizes(x.sizes().begin(), x.sizes().end());
    sizes.back() = k;
    shape(y, sizes);
    shape(expert, sizes);
    dtype(expert, {at::kInt});
}

void check_finished(const Operand &finished, const Operand &x) {
    if (!finished.defined()) return;
    dtype(finished, {at::kBool});
    shape(finished, x.sizes().slice(0, static_cast<size_t>(x.dim() - 1)));
}

struct TopK {
    at::Tensor value, index;
};

// The largest, equal ones in the order of their experts.
TopK top_k(const at::Tensor &scores, int64_t k) {
    const auto [value, index] = at::sort(scores, true, -1, true);
    return {value.slice(-1, 0, k), index.slice(-1, 0, k)};
}

// Finished tokens go to the expert behind the last one.
void give_experts(at::Tensor &out, const at::Tensor &index, const at::Tensor &finished, int64_t experts) {
    out.copy_(finished.defined() ? index.masked_fill(finished.unsqueeze(-1), experts) : index);
}

void gating_softmax(const at::Tensor &x, const at::Tensor &finished, int64_t k, at::Tensor &y, at::Tensor &expert) {
    const TopK best = top_k(at::softmax(widened(x), -1), k);
    y.copy_(best.value);
    give_experts(expert, best.index, finished, x.size(-1));
}

// x's scores as the routing sees them: softmax (norm type 0) or sigmoid (1).
at::Tensor normed(const at::Tensor &x, int64_t type) {
    return type == 0 ? at::softmax(widened(x), -1) : at::sigmoid(widened(x));
}

struct Groups {
    int64_t count, chosen, mode;  // mode 0: a group counts by its largest score; 1: by the sum of its two largest
};

void check_gating(const Operand &x, const Operand &bias, int64_t k, Groups groups, int64_t renorm, int64_t type,
                  bool give_all, const Operand &y, const Operand &expert, const Operand &all) {
    rank(x, {2});
    check_top_k(x, k, y, expert);
    if (bias.defined()) shape(bias, {x.size(1)});
    if (groups.count <= 0 || x.size(1) % groups.count != 0)
        fail(FaultKind::InvalidArgument, "parameter groupCount is {}, expected a divisor of {}, the number of experts",
             groups.count, x.size(1));
    if (groups.chosen <= 0 || groups.chosen > groups.count || k > groups.chosen * (x.size(1) / groups.count))
        fail(FaultKind::InvalidArgument, "parameter kGroup is {}, expected 1 to {} groups with at least k = {} experts",
             groups.chosen, groups.count, k);
    if (groups.mode != 0 && (groups.mode != 1 || x.size(1) / groups.count < 2))
        fail(FaultKind::InvalidArgument, "parameter groupSelectMode is {}, allowed are 0, and 1 for groups of two",
             groups.mode);
    if (renorm != 0)
        fail(FaultKind::InvalidArgument, "parameter renorm is {}, CANN offers 0 (scores before the choice)", renorm);
    if (type != 0 && type != 1)
        fail(FaultKind::InvalidArgument, "parameter normType is {}, allowed are 0 (softmax) and 1 (sigmoid)", type);
    if (!give_all) return;
    same_shape(all, x);
    dtype(all, {at::kFloat});
}

void gating(const at::Tensor &x, const at::Tensor &bias, int64_t k, Groups groups, int64_t type, bool give_all,
            double factor, double eps, at::Tensor &y, at::Tensor &expert, at::Tensor &all) {
    const at::Tensor scores = normed(x, type);
    at::Tensor routed = bias.defined() ? scores + widened(bias) : scores;
    if (groups.count > 1) {
        const at::Tensor by_group = routed.view({x.size(0), groups.count, -1});
        const at::Tensor strength =
            groups.mode == 0 ? at::amax(by_group, -1) : std::get<0>(at::topk(by_group, 2, -1)).sum(-1);
        const at::Tensor kept = at::zeros(strength.sizes(), at::TensorOptions().dtype(at::kBool))
                                    .scatter_(1, top_k(strength, groups.chosen).index, true);
        routed = by_group.masked_fill(kept.logical_not().unsqueeze(2), -std::numeric_limits<float>::infinity())
                     .view(x.sizes());
    }
    const at::Tensor index = top_k(routed, k).index;
    at::Tensor value = scores.gather(1, index);
    if (type == 1) value = value / (value.sum(-1, true) + eps);
    y.copy_(value * factor);
    expert.copy_(index);
    if (give_all) all.copy_(scores);
}

// The gradient of gating's y with respect to its logits, from all scores.
void gating_backward(const at::Tensor &scores, const at::Tensor &grad, const at::Tensor &expert, int64_t type,
                     double factor, double eps, at::Tensor &out) {
    const at::Tensor index = expert.to(at::kLong), wide = widened(scores), each = widened(grad) * factor;
    at::Tensor slope = each;
    if (type == 1) {
        const at::Tensor value = wide.gather(1, index), total = value.sum(-1, true) + eps;
        slope = each / total - (each * value).sum(-1, true) / total.square();
    }
    const at::Tensor all = at::zeros(wide.sizes(), wide.options()).scatter_add_(1, index, slope);
    out.copy_(type == 1 ? all * wide * (1 - wide) : wide * (all - (all * wide).sum(-1, true)));
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnMoeGatingTopKSoftmax, check_top_k(x, k, yOut, expertIdxOut); check_finished(finishedOptional, x);
   same_shape(rowIdxOut, yOut);
   dtype(rowIdxOut, {at::kInt}), gating_softmax(x, finishedOptional, k, yOut, expertIdxOut);
   rowIdxOut.copy_(at::arange(rowIdxOut.numel(), at::kLong).view({k, -1}).t().reshape(rowIdxOut.sizes())))
OP(
    aclnnMoeGatingTopKSoftmaxV2, check_top_k(x, k, yOut, expertIdxOut); check_finished(finishedOptional, x);
    if (outputSoftmaxResultFlag && renorm == 0) same_shape(softmaxResultOutOptional, x),
    if (renorm == 0) {
        gating_softmax(x, finishedOptional, k, yOut, expertIdxOut);
        if (outputSoftmaxResultFlag) give(softmaxResultOutOptional, at::softmax(widened(x), -1));
    } else {
        const TopK best = top_k(widened(x), k);
        yOut.copy_(at::softmax(best.value, -1));
        give_experts(expertIdxOut, best.index, finishedOptional, x.size(-1));
    })
OP(aclnnMoeGatingTopK, optional(outOut); check_gating(x, biasOptional, k, {groupCount, kGroup, groupSelectMode}, renorm,
                                                      normType, outFlag, yOut, expertIdxOut, outOut),
                                         gating(x, biasOptional, k, {groupCount, kGroup, groupSelectMode}, normType,
                                                outFlag, routedScalingFactor, eps, yOut, expertIdxOut, outOut))
OP(aclnnMoeGatingTopKV2, optional(outOut); if (inputIdsOptional.defined() || tid2eidOptional.defined())
       fail(vnpu::FaultKind::InvalidArgument, "parameter tid2eidOptional: the virtual NPU has no routing by token id");
   check_gating(x, biasOptional, k, {groupCount, kGroup, groupSelectMode}, renorm, normType, outFlag, yOut,
                expertIdxOut, outOut),
   gating(x, biasOptional, k, {groupCount, kGroup, groupSelectMode}, normType, outFlag, routedScalingFactor, eps, yOut,
          expertIdxOut, outOut))
OP(aclnnMoeGatingTopKBackward, rank(xNorm, {2}); network(xNorm, gradY, out); same_shape(gradY, expertIdx);
   dtype(expertIdx, {at::kInt, at::kLong});
   same_shape(out, xNorm), gating_backward(xNorm, gradY, expertIdx, normType, routedScalingFactor, eps, out))
