// Cross-entropy of a linear layer whose vocabulary is spread over devices, as Megatron computes it: each device has the
// rows [start, end) of the weight. Formulas: ops-nn, fused_linear_online_max_sum and its two companions.
#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

void check_linear(const Operand &input, const Operand &weight) {
    rank(input, {2});
    rank(weight, {2});
    dtype(input, {at::kHalf, at::kBFloat16});
    same_dtype(weight, input);
    if (weight.size(1) != input.size(1))
        fail(FaultKind::InvalidArgument, "parameter weight is {}, expected the width of input, {}", describe(weight),
             input.size(1));
}

void check_per_row(std::initializer_list<const Operand *> values, int64_t rows) {
    for (const Operand *value : values)
        if (value->defined()) {
            dtype(*value, at::kFloat);
            shape(*value, {rows});
        }
}

int64_t mask_bytes(int64_t rows) { return (rows + 7) / 8; }

void check_targets(const Operand &mask, const Operand &masked, int64_t rows) {
    dtype(mask, {at::kByte, at::kBool});
    shape(mask, {mask.scalar_type() == at::kBool ? rows : mask_bytes(rows)});
    dtype(masked, {at::kInt, at::kLong});
    shape(masked, {rows});
}

// Bit i % 8 of byte i / 8; the bits behind the last row are 1.
at::Tensor packed(const at::Tensor &mask) {
    const int64_t rows = mask.size(0), bytes = mask_bytes(rows);
    const at::Tensor padded = at::cat({mask, at::ones({bytes * 8 - rows}, at::kBool)});
    const at::Tensor weights = at::tensor({1, 2, 4, 8, 16, 32, 64, 128}, at::kLong);
    return (padded.view({bytes, 8}).to(at::kLong) * weights).sum(1);
}

at::Tensor unpacked(const at::Tensor &mask, int64_t rows) {
    if (mask.scalar_type() == at::kBool) return mask;
    const at::Tensor bit = at::tensor({1, 2, 4, 8, 16, 32, 64, 128}, at::kByte);
    return mask.unsqueeze(1).bitwise_and(bit).ne(0).flatten().slice(0, 0, rows);
}

void max_and_sum(const at::Tensor &input, const at::Tensor &weight, const at::Tensor &target, int64_t start,
                 int64_t end, at::Tensor &highest, at::Tensor &sum, at::Tensor &predicted, at::Tensor &mask,
                 at::Tensor &masked, at::Tensor &logits_out) {
    const at::Tensor logits = at::matmul(widened(input), widened(weight).t());
    const at::Tensor top = at::amax(logits, 1), below = logits - top.unsqueeze(1);
    const at::Tensor elsewhere = target.lt(start).logical_or_(target.ge(end));
    const at::Tensor own = (target - start).masked_fill(elsewhere, 0).to(at::kLong);
    highest.copy_(top);
    sum.copy_(below.exp().sum(1));
    predicted.copy_(below.gather(1, own.unsqueeze(1)).squeeze(1).masked_fill(elsewhere, 0));
    mask.copy_(packed(elsewhere));
    masked.copy_(own);
    give(logits_out, logits);
}

void gradients(const at::Tensor &grad, const at::Tensor &input, const at::Tensor &weight, const at::Tensor &mask,
               const at::Tensor &target, const at::Tensor &highest, const at::Tensor &sum, const at::Tensor &softmax,
               at::Tensor &input_grad, at::Tensor &weight_grad) {
    const at::Tensor in = widened(input), w = widened(weight);
    at::Tensor slope = softmax.defined() ? softmax.clone()
                                         : (at::matmul(in, w.t()) - highest.unsqueeze(1)).exp_().div_(sum.unsqueeze(1));
    const at::Tensor here = unpacked(mask, input.size(0)).logical_not().to(at::kFloat).neg_();
    slope.scatter_add_(1, target.to(at::kLong).unsqueeze(1), here.unsqueeze(1));
    slope.mul_(grad.unsqueeze(1));
    input_grad.copy_(at::matmul(slope, w));
    weight_grad.copy_(at::matmul(slope.t(), in));
}

void check_gradients(const Operand &input, const Operand &weight, const Operand &highest, const Operand &sum,
                     const Operand &softmax) {
    if (softmax.defined()) {
        dtype(softmax, at::kFloat);
        shape(softmax, {input.size(0), weight.size(0)});
    } else if (!highest.defined() || !sum.defined()) {
        fail(FaultKind::NullArgument,
             "parameter softmaxOptional is null, then logitsMaxOptional and sumExpLogitsOptional are needed");
    }
}

// CANN has labelSmoothing in the signature and asks for 0.
void check_no_smoothing(double smoothing) {
    if (smoothing != 0)
        fail(FaultKind::InvalidArgument, "parameter labelSmoothing is {}, CANN allows 0 only", smoothing);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnFusedLinearOnlineMaxSum, check_linear(input, weight); dtype(target, {at::kInt, at::kLong});
   shape(target, {input.size(0)});
   check_per_row({&logitsMaxLocalOut, &sumExpLogitsLocalOut, &predictedLogitsLocalOut}, input.size(0));
   check_targets(targetMaskOut, maskedTargetOut, input.size(0));
   if (vocabStartIndex < 0 || vocabEndIndex < vocabStartIndex || vocabEndIndex - vocabStartIndex > weight.size(0))
       fail(vnpu::FaultKind::InvalidArgument, "the vocabulary is [{}, {}), which weight's {} rows cannot hold",
            vocabStartIndex, vocabEndIndex, weight.size(0));
   optional(vocabParallelLogitsOutOptional);
   if (vocabParallelLogitsOutOptional.defined()) shape(vocabParallelLogitsOutOptional, {input.size(0), weight.size(0)}),
   max_and_sum(input, weight, target, vocabStartIndex, vocabEndIndex, logitsMaxLocalOut, sumExpLogitsLocalOut,
               predictedLogitsLocalOut, targetMaskOut, maskedTargetOut, vocabParallelLogitsOutOptional))
OP(
    aclnnFusedCrossEntropyLossWithMaxSum, optional(softMaxOutOptional); check_no_smoothing(labelSmoothing);
    rank(logitsMax, {1}); check_per_row({&logitsMax, &sumExpLogits, &predictedLogits, &lossOut}, logitsMax.size(0));
    if (vocabParallelLogitsOptional.defined()) {
        network(vocabParallelLogitsOptional);
        rank(vocabParallelLogitsOptional, {2});
        same_shape(softMaxOutOptional, vocabParallelLogitsOptional);
    },
    lossOut.copy_(sumExpLogits.log() - predictedLogits);
    if (vocabParallelLogitsOptional.defined() && softMaxOutOptional.defined()) softMaxOutOptional.copy_(
        (widened(vocabParallelLogitsOptional) - logitsMax.unsqueeze(1)).exp_().div_(sumExpLogits.unsqueeze(1))))
OP(aclnnFusedLinearCrossEntropyLossGrad, check_no_smoothing(labelSmoothing); check_linear(input, weight);
   check_per_row({&grad, &logitsMaxOptional, &sumExpLogitsOptional}, input.size(0));
   check_targets(targetMask, maskedTarget, input.size(0));
   check_gradients(input, weight, logitsMaxOptional, sumExpLogitsOptional, softmaxOptional);
   same_shape(inputGradOut, input);
   same_shape(weightGradOut, weight), gradients(grad, input, weight, targetMask, maskedTarget, logitsMaxOptional,
                                                sumExpLogitsOptional, softmaxOptional, inputGradOut, weightGradOut))
