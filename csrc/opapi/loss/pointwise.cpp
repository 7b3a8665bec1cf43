// Losses between two tensors of one (broadcast) shape. reduction: 0 none, 1 mean, 2 sum; they are computed in fp32.
#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

constexpr int64_t kBatchMean = 3;  // KlDiv only: the sum over the first size

void check_reduces_to(const Operand &out, const Operand &self, const Operand &target, int64_t reduction,
                      int64_t last = at::Reduction::Sum) {
    if (reduction < 0 || reduction > last)
        fail(FaultKind::InvalidArgument, "parameter reduction is {}, allowed is 0 to {}", reduction, last);
    if (reduction == at::Reduction::None) return broadcasts(out, {&self, &target});
    if (!at::are_expandable(self.sizes(), target.sizes()))
        fail(FaultKind::InvalidArgument, "parameter target is {}, which does not broadcast with self, {}",
             describe(target), describe(self));
    if (out.dim() != 1 || out.size(0) != 1)  // CANN documents [1], torch_npu gives []
        shape(out, {});
}

void check_loss(const Operand &self, const Operand &target, int64_t reduction, const Operand &out,
                int64_t last = at::Reduction::Sum) {
    network(self, target, out);
    check_reduces_to(out, self, target, reduction, last);
}

// The one loss of integers, which have no mean (ops-nn: aclnn_l1_loss.cpp).
void check_distance(const Operand &self, const Operand &target, int64_t reduction, const Operand &out) {
    for (const Operand *tensor : {&self, &target, &out}) dtype(*tensor, kNative | at::kLong);
    const bool reals = target.is_floating_point();
    if (!self.is_floating_point() && reals == (reduction == at::Reduction::None) && reduction != at::Reduction::Sum)
        fail(FaultKind::InvalidArgument,
             "Input dtype should be either floating point or complex dtypes. Got {} of self beside {} of target",
             describe(self), describe(target));
    promotes(out, {&self, &target});
    check_reduces_to(out, self, target, reduction);
}

void check_gradient(const Operand &grad, const Operand &self, const Operand &target, const Operand &out) {
    network(grad, self, target);
    broadcasts(out, {&grad, &self, &target});
}

// Weights are of the target's shape or broadcast to it.
void check_weights(const Operand &target, std::initializer_list<Operand *> given) {
    for (Operand *weight : given) {
        weight->allow_null();
        if (!weight->defined()) continue;
        network(*weight);
        expands(target, *weight);
    }
}

void reduced(at::Tensor &out, const at::Tensor &values, int64_t reduction) {
    switch (reduction) {
        case at::Reduction::Mean:
            return void(out.copy_(values.mean().reshape(out.sizes())));
        case at::Reduction::Sum:
            return void(out.copy_(values.sum().reshape(out.sizes())));
        default:
            return void(out.copy_(values));
    }
}

// d loss / d value, times the gradient of the loss, which is one number unless reduction is none.
void chained(at::Tensor &out, const at::Tensor &slope, const at::Tensor &grad, int64_t reduction) {
    at::Tensor gradient = slope * widened(grad);
    if (reduction == at::Reduction::Mean) gradient.div_(static_cast<double>(out.numel()));
    out.copy_(gradient);
}

at::Tensor difference(const at::Tensor &self, const at::Tensor &target) { return widened(self) - widened(target); }

at::Tensor smooth(const at::Tensor &self, const at::Tensor &target, double beta) {
    return at::smooth_l1_loss(widened(self), widened(target), at::Reduction::None, beta);
}

void check_beta(float beta) {
    if (!(beta >= 0)) fail(FaultKind::InvalidArgument, "parameter beta is {}, allowed are 0 and more", beta);
}

at::Tensor smooth_slope(const at::Tensor &self, const at::Tensor &target, double beta) {
    const at::Tensor d = difference(self, target);
    return beta == 0 ? d.sign() : d.div(beta).clamp_(-1, 1);
}

// A target of 0 adds 0, as torch defines it. (CANN's page says NaN.)
at::Tensor divergence(const at::Tensor &self, const at::Tensor &target, bool log_target) {
    const at::Tensor t = widened(target);
    return log_target ? t.exp() * (t - widened(self)) : at::xlogy(t, t) - t * widened(self);
}

void kl_div(at::Tensor &out, const at::Tensor &self, const at::Tensor &target, int64_t reduction, bool log_target) {
    const at::Tensor values = divergence(self, target, log_target);
    if (reduction != kBatchMean) return reduced(out, values, reduction);
    out.copy_(values.sum().div_(self.dim() == 0 ? 1 : self.size(0)).reshape(out.sizes()));
}

void kl_div_backward(at::Tensor &out, const at::Tensor &grad, const at::Tensor &self, const at::Tensor &target,
                     int64_t reduction, bool log_target) {
    const at::Tensor t = widened(target);
    const at::Tensor slope = (log_target ? t.exp() : t).neg().expand_as(self);
    if (reduction != kBatchMean) return chained(out, slope, grad, reduction);
    out.copy_(slope.mul(widened(grad)).div_(self.dim() == 0 ? 1 : self.size(0)));
}

// The loss's slope in the target, for a mean over all or over the first size, or a sum.
void kl_div_target_backward(at::Tensor &out, const at::Tensor &grad, const at::Tensor &self, const at::Tensor &target,
                            int64_t reduction, bool log_target) {
    const at::Tensor x = widened(self), t = widened(target);
    at::Tensor slope = log_target ? t.exp() * (t - x + 1) : (t.log() - x + 1).masked_fill(t.eq(0), 0);
    slope = slope * widened(grad);
    if (reduction == at::Reduction::Mean) slope = slope / std::max<int64_t>(slope.numel(), 1);
    if (reduction == kBatchMean) slope = slope / (self.dim() == 0 ? 1 : self.size(0));
    out.copy_(slope.sum_to_size(out.sizes()));
}

// With p = sigmoid(x), y the target and w the positive weight: -(w y log p + (1 - y) log(1 - p))
at::Tensor logits_slope(const at::Tensor &self, const at::Tensor &target, const at::Tensor &weight,
                        const at::Tensor &positive) {
    const at::Tensor p = widened(self).sigmoid(), y = widened(target);
    at::Tensor slope = p - y;
    if (positive.defined()) {
        const at::Tensor wy = y * widened(positive);
        slope = p.mul(wy.add(1).sub_(y)).sub_(wy);
    }
    return weight.defined() ? slope.mul_(widened(weight)) : slope;
}

std::optional<at::Tensor> wide(const Operand &tensor) {
    return tensor.defined() ? std::optional(widened(tensor)) : std::nullopt;
}

// ATen stops at what is no probability; hardware goes on with its logarithm.
at::Tensor probabilities_entropy(const at::Tensor &self, const at::Tensor &target,
                                 const std::optional<at::Tensor> &weight) {
    if (bugs_hidden()) {
        const auto logarithm = [](const at::Tensor &x) { return x.log().clamp_min_(-100); };
        const at::Tensor loss = (target - 1).mul_(logarithm(1 - self)).sub_(target * logarithm(self));
        return weight ? loss * *weight : loss;
    }
    at::Tensor loss;
    noticing("between 0 and 1", "the logarithm of what is no probability is nan",
             [&] { loss = at::binary_cross_entropy(self, target, weight, at::Reduction::None); });
    return loss;
}

}  // namespace
}  // namespace vnpu::opapi

#define LOSS(NAME, OUT, ...) OP(NAME, check_loss(self, target, reduction, OUT), reduced(OUT, __VA_ARGS__, reduction))
#define LOSS_BACKWARD(NAME, GRAD, OUT, ...) \
    OP(NAME, check_gradient(GRAD, self, target, OUT), chained(OUT, __VA_ARGS__, GRAD, reduction))

OP(aclnnL1Loss, check_distance(self, target, reduction, out), reduced(out, difference(self, target).abs_(), reduction))
LOSS_BACKWARD(aclnnL1LossBackward, gradOutput, gradInput, difference(self, target).sign_())
LOSS(aclnnMseLoss, out, difference(self, target).square_())
LOSS_BACKWARD(aclnnMseLossBackward, gradOutput, out, difference(self, target).mul_(2))
OP(aclnnSmoothL1Loss, check_beta(beta);
   check_loss(self, target, reduction, result), reduced(result, smooth(self, target, beta), reduction))
OP(aclnnSmoothL1LossBackward, check_beta(beta);
   check_gradient(gradOut, self, target, gradInput),
   chained(gradInput, smooth_slope(self, target, beta), gradOut, reduction))
LOSS(aclnnSoftMarginLoss, out, at::softplus(widened(self) * widened(target).neg()))
LOSS_BACKWARD(aclnnSoftMarginLossBackward, gradOutput, out,
              (widened(self) * widened(target)).neg_().sigmoid_().mul(widened(target)).neg_())

OP(aclnnKlDiv, check_loss(self, target, reduction, out, kBatchMean), kl_div(out, self, target, reduction, logTarget))
OP(aclnnKlDivBackward, network(self, target, gradOutput); expands(self, target); expands(self, gradOutput);
   same_shape(out, self), kl_div_backward(out, gradOutput, self, target, reduction, logTarget))
OP(aclnnKlDivTargetBackward, network(self, target, gradOutput, gradTarget); same_shape(gradTarget, target);
   broadcasts(self.numel() >= target.numel() ? self : target, {&self, &target}),
   kl_div_target_backward(gradTarget, gradOutput, self, target, reduction, logTarget))
OP(aclnnBinaryCrossEntropy, check_weights(target, {&weight}); check_loss(self, target, reduction, out);
   same_shape(target, self),
   reduced(out, probabilities_entropy(widened(self), widened(target), wide(weight)), reduction))
OP(aclnnBinaryCrossEntropyBackward, check_weights(target, {&weightOptional}); same_shape(target, self);
   same_shape(out, self); network(self, target, gradOutput);
   expands(self, gradOutput), chained(out,
                                      at::binary_cross_entropy_backward(at::ones({}), widened(self), widened(target),
                                                                        wide(weightOptional), at::Reduction::None),
                                      gradOutput, reduction))
OP(aclnnBinaryCrossEntropyWithLogits, check_weights(target, {&weightOptional, &posWeightOptional});
   check_loss(self, target, reduction, out);
   same_shape(target, self),
   reduced(out,
           at::binary_cross_entropy_with_logits(widened(self), widened(target), wide(weightOptional),
                                                wide(posWeightOptional), at::Reduction::None),
           reduction))
OP(aclnnBinaryCrossEntropyWithLogitsBackward, check_weights(target, {&weightOptional, &posWeightOptional});
   same_shape(target, self); same_shape(out, self); network(gradOutput, self, target);
   expands(self, gradOutput),
   chained(out, logits_slope(self, target, weightOptional, posWeightOptional), gradOutput, reduction))
