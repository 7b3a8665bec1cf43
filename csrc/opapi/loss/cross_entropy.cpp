// Cross entropy of logits in one operator (npu_cross_entropy_loss): log-softmax, negative log likelihood, smoothing.
#include <string_view>

#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

int64_t reduction_of(std::string_view name) {
    if (name == "mean") return at::Reduction::Mean;
    if (name == "sum") return at::Reduction::Sum;
    if (name == "none") return at::Reduction::None;
    fail(FaultKind::InvalidArgument,
         "parameter reductionOptional is \"{}\", allowed are \"mean\", \"sum\" and \"none\"", name);
}

// CANN documents the auxiliary z-loss as not supported yet; its outputs must be there, and nothing is written to them.
void check_logits(const Operand &logits, const Operand &target, const Operand &weight, double smoothing,
                  double z_scale) {
    rank(logits, {2});
    network(logits);
    dtype(target, {at::kLong, at::kInt});
    shape(target, {logits.size(0)});
    if (weight.defined()) {
        dtype(weight, {at::kFloat});
        shape(weight, {logits.size(1)});
    }
    if (!(smoothing >= 0 && smoothing <= 1))
        fail(FaultKind::InvalidArgument, "parameter labelSmoothing is {}, allowed is 0 to 1", smoothing);
    if (z_scale != 0) fail(FaultKind::InvalidArgument, "parameter lseSquareScaleForZloss is {}, allowed is 0", z_scale);
}

void check_loss(const Operand &loss, const Operand &logits, const std::string &reduction, bool z_loss) {
    if (reduction_of(reduction) == at::Reduction::None)
        shape(loss, {logits.size(0)});
    else if (loss.numel() != 1)
        shape(loss, {1});
    if (z_loss) fail(FaultKind::InvalidArgument, "parameter returnZloss is true, allowed is false");
}

void cross_entropy(at::Tensor &loss, at::Tensor &log_prob, const at::Tensor &input, const at::Tensor &target,
                   const at::Tensor &weight, const std::string &reduction, int64_t ignore_index, double smoothing) {
    const at::Tensor logits = widened(input);
    loss.copy_(
        at::cross_entropy_loss(logits, target.to(at::kLong), weight, reduction_of(reduction), ignore_index, smoothing)
            .reshape(loss.sizes()));
    log_prob.copy_(at::log_softmax(logits, -1));
}

void cross_entropy_backward(at::Tensor &out, const at::Tensor &grad, const at::Tensor &log_prob,
                            const at::Tensor &target, const at::Tensor &weight, const std::string &reduction,
                            int64_t ignore_index, double smoothing) {
    const int64_t classes = log_prob.size(1);
    const at::Tensor valid = target.ne(ignore_index);
    const at::Tensor index = at::where(valid, target, 0).to(at::kLong);
    const at::Tensor weights = weight.defined() ? at::Tensor(weight) : at::ones({classes});
    const at::Tensor held = weights.index_select(0, index).mul_(valid);
    at::Tensor share = widened(grad).expand_as(target);
    if (reduction_of(reduction) == at::Reduction::Mean) share = share / held.sum();
    const at::Tensor hit = (share * held).mul_(1 - smoothing).unsqueeze(1);
    const at::Tensor spread = (share * valid).mul_(smoothing / static_cast<double>(classes)).unsqueeze(1);
    at::Tensor result = widened(log_prob).exp().mul_(hit + spread * weights.sum());
    result.scatter_add_(1, index.unsqueeze(1), -hit);
    out.copy_(result.sub_(spread * weights));
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnCrossEntropyLoss, optional(zlossOut, lseForZlossOut);
   check_logits(input, target, weightOptional, labelSmoothing, lseSquareScaleForZloss);
   check_loss(lossOut, input, reductionOptional, returnZloss);
   same_shape(logProbOut, input),
   cross_entropy(lossOut, logProbOut, input, target, weightOptional, reductionOptional, ignoreIndex, labelSmoothing))
OP(aclnnCrossEntropyLossGrad, check_logits(logProb, target, weightOptional, labelSmoothing, lseSquareScaleForZloss);
   check_loss(gradLoss, logProb, reductionOptional, false);
   same_shape(out, logProb), cross_entropy_backward(out, gradLoss, logProb, target, weightOptional, reductionOptional,
                                                    ignoreIndex, labelSmoothing))
