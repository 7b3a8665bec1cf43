// More small operators of the old API that MindSpore's layers and losses call by their type: activations with their
// gradients, gradients of norms and of losses, CTC from logits. In fp32 and rounded once.
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

void pointwise(LegacyArguments &call, size_t inputs) {
    allowed(call.in[0], kNative, "an input");
    for (size_t i = 1; i < inputs; ++i) alike(call.in[i], call.in[0], "an input");
    alike(call.out[0], call.in[0], "the output");
}

at::Tensor fast_gelu_gradient(const at::Tensor &gradient, const at::Tensor &x) {
    const at::Tensor share = at::sigmoid(x * 1.702);
    return gradient * share * (1 + x * 1.702 * (1 - share));
}

// x, y = x / max(norm, root of eps), gradient. Where the norm is below, y is linear in x.
void l2_gradient(LegacyArguments &call) {
    const at::Tensor x = widened(call.in[0]), y = widened(call.in[1]), gradient = widened(call.in[2]);
    const auto over = attribute<std::vector<int64_t>>(call.attributes, "dim", {});
    const auto epsilon = attribute<float>(call.attributes, "eps", 1e-4F);
    const at::Tensor squares = x.square().sum(over, true);
    const at::Tensor along = at::where(squares > epsilon, (gradient * y).sum(over, true), at::zeros_like(squares));
    call.out[0].copy_((gradient - y * along) / squares.clamp_min(epsilon).sqrt());
}

// gradient, x, y = x / (bias + alpha * squares of neighbours)^beta.
void neighbours_gradient(LegacyArguments &call) {
    const at::Tensor gradient = widened(call.in[0]), x = widened(call.in[1]), y = widened(call.in[2]);
    const auto radius = attribute<int64_t>(call.attributes, "depth_radius", 5);
    const auto alpha = attribute<float>(call.attributes, "alpha", 1),
               beta = attribute<float>(call.attributes, "beta", 0.5F);
    const auto around = [&](const at::Tensor &values) {
        const at::Tensor wide = at::constant_pad_nd(values, {0, 0, 0, 0, radius, radius});
        at::Tensor sums = at::zeros_like(values);
        for (int64_t i = 0; i <= 2 * radius; ++i) sums += wide.narrow(1, i, values.size(1));
        return sums;
    };
    const at::Tensor base = around(x.square()) * alpha + attribute<float>(call.attributes, "bias", 1);
    call.out[0].copy_(gradient * base.pow(-beta) - x * around(gradient * y / base) * (2 * alpha * beta));
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

// --- CTC: logits [time, batch, classes], [batch, place] of each label, the labels, lengths. The last class is the
// blank.

void ctc_check(LegacyArguments &call) {
    allowed(call.in[0], at::kFloat, "the logits");
    sizes(call.in[0], {-1, -1, -1}, "the logits");
    sizes(call.in[1], {call.in[2].numel(), 2}, "the places of the labels");
    holds(call.in[3], call.in[0].size(1), "the lengths");
    holds(call.out[0], call.in[0].size(1), "the loss");
    alike(call.out[1], call.in[0], "the gradient");
    if (attribute<bool>(call.attributes, "preprocess_collapse_repeated", false) ||
        !attribute<bool>(call.attributes, "ctc_merge_repeated", true))
        fail(FaultKind::Unsupported,
             "The virtual NPU has CTCLoss with preprocess_collapse_repeated false and ctc_merge_repeated true only.");
}

void ctc(LegacyArguments &call) {
    const at::Tensor logits = widened(call.in[0]), places = call.in[1].to(at::kLong), labels = call.in[2].to(at::kLong);
    const int64_t batch = logits.size(1), blank = logits.size(2) - 1;
    const std::vector<int64_t> steps = ints(call.in[3]);
    std::vector<int64_t> lengths(static_cast<size_t>(batch), 0);
    for (int64_t i = 0; i < labels.numel(); ++i) {
        const auto row = places[i][0].item<int64_t>();
        if (row < 0 || row >= batch) fail(FaultKind::OutOfBounds, "label {} is of sequence {} of {}", i, row, batch);
        ++lengths[static_cast<size_t>(row)];
    }
    for (size_t i = 0; i < steps.size(); ++i)
        if (lengths[i] > steps[i] && !attribute<bool>(call.attributes, "ignore_longer_outputs_than_inputs", false))
            fail(FaultKind::InvalidArgument, "sequence {} has {} labels in {} steps", i, lengths[i], steps[i]);
    // Sorted by sequence and place, as a sparse tensor is.
    const at::Tensor targets = labels.index_select(0, at::argsort(places.select(1, 0), /*stable=*/true, 0, false));
    const at::Tensor chances = at::log_softmax(logits, 2);
    const auto [loss, alpha] = at::_ctc_loss(chances, targets, steps, lengths, blank, /*zero_infinity=*/true);
    call.out[0].copy_(loss);
    const at::Tensor slope = at::_ctc_loss_backward(at::ones_like(loss), chances, targets, steps, lengths, loss, alpha,
                                                    blank, /*zero_infinity=*/true);
    call.out[1].copy_(at::_log_softmax_backward_data(slope, chances, 2, at::kFloat));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(Softplus, pointwise(arguments, 1), out[0].copy_(at::softplus(widened(in[0]), 1, 88)))
LEGACY(SoftplusGrad, pointwise(arguments, 2), out[0].copy_(widened(in[0]) * at::sigmoid(widened(in[1]))))
LEGACY(Softsign, pointwise(arguments, 1), const at::Tensor x = widened(in[0]); out[0].copy_(x / (1 + x.abs())))
LEGACY(CeluV2, pointwise(arguments, 1),
       out[0].copy_(at::celu(widened(in[0]), attribute<float>(attributes, "alpha", 1))))
LEGACY(FastGelu, pointwise(arguments, 1), const at::Tensor x = widened(in[0]); out[0].copy_(x * at::sigmoid(x * 1.702)))
LEGACY(FastGeluGrad, pointwise(arguments, 2), out[0].copy_(fast_gelu_gradient(widened(in[0]), widened(in[1]))))
LEGACY(SqrtGrad, pointwise(arguments, 2), out[0].copy_(widened(in[1]) * 0.5 / widened(in[0])))
LEGACY(L2NormalizeGrad, pointwise(arguments, 3), l2_gradient(arguments))
LEGACY(LRNGrad, pointwise(arguments, 3); sizes(in[0], {-1, -1, -1, -1}, "the gradient"), neighbours_gradient(arguments))
LEGACY(KlDivLossGrad, alike(in[2], in[1], "the target"); alike(out[0], in[1], "the output");
       if (in[0].numel() != 1) alike(in[0], in[1], "the gradient"), put(out[0], divergence_gradient(arguments)))
LEGACY(CTCLoss, ctc_check(arguments), ctc(arguments))
