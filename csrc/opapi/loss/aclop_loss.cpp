// Losses of the old API and their gradients, in fp32 and rounded once.
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

// The labels are weights of the classes, whatever their sum is.
void check_cross_entropy(LegacyArguments &call) {
    allowed(call.in[0], kNative, "logits");
    alike(call.in[1], call.in[0], "labels");
    if (call.in[0].dim() != 2 && call.in[0].dim() != 4)
        fail(FaultKind::InvalidArgument, "the logits are {}, expected 2 or 4 dimensions", describe(call.in[0]));
    alike(call.out[1], call.in[0], "the gradient");
    const int64_t classes = call.in[0].size(call.in[0].dim() == 2 ? 1 : -1);
    holds(call.out[0], classes == 0 ? call.out[0].numel() : call.in[0].numel() / classes, "the loss");
}

at::Tensor divergence(const at::Tensor &x, const at::Tensor &target, const aclopAttr &attributes) {
    const at::Tensor each = at::where(target > 0, target * (target.log() - x), at::zeros_like(target));
    const auto reduction = attribute<std::string>(attributes, "reduction", "mean");
    if (reduction == "none") return each;
    if (reduction == "sum") return each.sum();
    if (reduction == "mean") return each.mean();
    if (reduction == "batchmean") return each.sum() / static_cast<double>(std::max<int64_t>(1, x.size(0)));
    fail(FaultKind::InvalidArgument, "attribute reduction is \"{}\"", reduction);
}

// gradient, x, target; the gradient is of one element where the loss is.
at::Tensor divergence_gradient(LegacyArguments &call) {
    const at::Tensor target = widened(call.in[2]);
    const auto reduction = attribute<std::string>(call.attributes, "reduction", "mean");
    const bool logarithm = attribute<bool>(call.attributes, "log_target", false);
    const at::Tensor share = logarithm ? target.exp() : target.clamp_min(0);
    const at::Tensor slope = -share * widened(call.in[0]);
    if (reduction == "mean") return slope / static_cast<double>(std::max<int64_t>(1, target.numel()));
    if (reduction == "batchmean") return slope / static_cast<double>(std::max<int64_t>(1, target.size(0)));
    if (reduction == "none" || reduction == "sum") return slope;
    fail(FaultKind::InvalidArgument, "attribute reduction is \"{}\"", reduction);
}

void check_mse_loss(LegacyArguments &call) {
    alike(call.in[1], call.in[0], "the target");
    holds(call.out[0], reduction(call.attributes) == at::Reduction::None ? call.in[0].numel() : 1, "the output");
}

// in: logits [batch, classes], targets, weights of the classes.
void check_nll_loss(LegacyArguments &call) {
    reduction(call.attributes);
    allowed(call.in[0], kNative, "logits");
    if (call.in[0].dim() != 1 && call.in[0].dim() != 2)
        fail(FaultKind::InvalidArgument, "logits is {}, expected 1 or 2 dimensions", describe(call.in[0]));
    const size_t target = call.in.size() > 3 ? 2 : 1;  // the gradient's operands have one more before it
    allowed(call.in[target], {at::kInt, at::kLong}, "target");
    holds(call.in[target], call.in[0].dim() == 1 ? 1 : call.in[0].size(0), "target");
    holds(call.in[target + 1], call.in[0].size(-1), "weight");
}

int64_t ignored(const aclopAttr &attributes) { return attribute<int64_t>(attributes, "ignore_index", -100); }

void nll_loss(LegacyArguments &call) {
    const auto [value, total] = at::nll_loss_forward(
        widened(call.in[0]), call.in[1].to(at::kLong).view(call.in[0].sizes().slice(0, call.in[0].dim() - 1)),
        widened(call.in[2]), reduction(call.attributes), ignored(call.attributes));
    put(call.out[0], value);
    put(call.out[1], total);
}

void nll_loss_grad(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    const at::IntArrayRef rows = x.sizes().slice(0, static_cast<size_t>(x.dim()) - 1);
    const bool each = reduction(call.attributes) == at::Reduction::None;
    const at::Tensor given = widened(call.in[1]).reshape(each ? rows : at::IntArrayRef());
    call.out[0].copy_(at::nll_loss_backward(given, widened(x), call.in[2].to(at::kLong).view(rows), widened(call.in[3]),
                                            reduction(call.attributes), ignored(call.attributes),
                                            widened(call.in[4]).reshape({})));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(SoftmaxCrossEntropyWithLogits, check_cross_entropy(arguments), const at::Tensor labels = widened(in[1]);
       const at::Tensor likelihood = at::log_softmax(widened(in[0]), -1); put(out[0], -(labels *likelihood).sum(-1));
       out[1].copy_(at::softmax(widened(in[0]), -1) - labels))
LEGACY(KLDiv, allowed(in[0], kNative, "x");
       alike(in[1], in[0], "the target"), put(out[0], divergence(widened(in[0]), widened(in[1]), attributes)))
LEGACY(KlDivLossGrad, alike(in[2], in[1], "the target"); alike(out[0], in[1], "the output");
       if (in[0].numel() != 1) alike(in[0], in[1], "the gradient"), put(out[0], divergence_gradient(arguments)))
LEGACY(MseLoss, check_mse_loss(arguments),
       put(out[0], at::mse_loss(widened(in[0]), widened(in[1]), reduction(attributes))))
LEGACY(MseLossGrad, alike(in[1], in[0], "the target"); alike(out[0], in[0], "the output");
       reduction(attributes),
       out[0].copy_(at::mse_loss_backward(widened(in[2]), widened(in[0]), widened(in[1]), reduction(attributes))))
LEGACY(NLLLoss, check_nll_loss(arguments), nll_loss(arguments))
LEGACY(NLLLossGrad, check_nll_loss(arguments); alike(out[0], in[0], "the output"), nll_loss_grad(arguments))
