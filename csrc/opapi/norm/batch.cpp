// Normalisation. Statistics and parameters are fp32 whatever the input's dtype is, as torch_npu allocates them.
#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

// A vector with a value for each channel (dimension 1); may be null.
void check_channelled(const Operand &vector, const Operand &input) {
    if (!vector.defined()) return;
    network(vector);
    shape(vector, {input.size(1)});
}

void check_batch(const Operand &input, std::initializer_list<const Operand *> vectors) {
    rank(input, {2, 3, 4, 5, 6, 7, 8});
    network(input);
    for (const Operand *vector : vectors) check_channelled(*vector, input);
}

void check_running(const Operand &mean, const Operand &var, bool training) {
    if (mean.defined() != var.defined())
        fail(FaultKind::InvalidArgument, "parameters runningMean and runningVar: one is null, the other is not");
    if (!training && (!mean.defined() || !var.defined()))
        fail(FaultKind::NullArgument, "parameters runningMean and runningVar are null, but training is false");
}

// The batch's statistics, which only training uses. torch_npu hands empty ones over otherwise.
void check_saved(Operand &mean, Operand &invstd, const Operand &input, bool training) {
    for (Operand *statistic : {&mean, &invstd}) {
        if (!training) statistic->allow_null();
        if (statistic->defined() && statistic->numel() > 0)
            check_channelled(*statistic, input);
        else if (training && input.numel() > 0)
            shape(*statistic, {input.size(1)});
    }
}

void batch_norm(at::Tensor &output, at::Tensor &save_mean, at::Tensor &save_invstd, const at::Tensor &input,
                const at::Tensor &weight, const at::Tensor &bias, at::Tensor &running_mean, at::Tensor &running_var,
                bool training, double momentum, double eps) {
    if (input.numel() == 0) return;
    // ATen's kernel takes the output's layout to be the input's; ours is contiguous. Of fp16 and bf16 it sums a channel
    // in fp32, of fp32 in fp64: a mean that is off by an ulp shows in the weight's gradient, where it cancels.
    const at::Tensor in = widened(input).contiguous();
    at::Tensor out = narrow(output) ? at::empty(in.sizes(), in.options()) : output.contiguous();
    at::Tensor mean = widened(running_mean), var = widened(running_var);
    at::Tensor batch_mean = widened(save_mean), batch_invstd = widened(save_invstd);
    at::native_batch_norm_out(out, batch_mean, batch_invstd, in, widened(weight), widened(bias), mean, var, training,
                              momentum, eps);
    if (!out.is_same(output)) output.copy_(out);
    if (!training) return;  // only then are they written
    for (const auto &[from, to] :
         {std::pair(mean, &running_mean), {var, &running_var}, {batch_mean, &save_mean}, {batch_invstd, &save_invstd}})
        if (!from.is_same(*to)) to->copy_(from);  // narrow statistics were widened
}

struct Gradients {
    Operand &input, &weight, &bias;
};

void check_masked(const Bools &mask, Gradients gradients, const Operand &input, at::IntArrayRef parameters) {
    if (mask.size() != 3)
        fail(FaultKind::InvalidArgument, "parameter outputMask has {} values, expected 3", mask.size());
    if (mask[0]) same_shape(gradients.input, input);
    if (mask[1]) shape(gradients.weight, parameters);
    if (mask[2]) shape(gradients.bias, parameters);
    optional(gradients.input, gradients.weight, gradients.bias);
}

void batch_norm_backward(Gradients gradients, const at::Tensor &grad, const at::Tensor &input, const at::Tensor &weight,
                         const at::Tensor &running_mean, const at::Tensor &running_var, const at::Tensor &save_mean,
                         const at::Tensor &save_invstd, bool training, double eps, std::array<bool, 3> mask) {
    const auto [input_gradient, weight_gradient, bias_gradient] = at::native_batch_norm_backward(
        widened(grad), widened(input), widened(weight), widened(running_mean), widened(running_var), widened(save_mean),
        widened(save_invstd), training, eps, mask);
    if (mask[0]) give(gradients.input, input_gradient);
    if (mask[1]) give(gradients.weight, weight_gradient);
    if (mask[2]) give(gradients.bias, bias_gradient);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnBatchNorm, optional(weight, bias, runningMean, runningVar);
   check_batch(input, {&weight, &bias, &runningMean, &runningVar}); check_running(runningMean, runningVar, training);
   same_shape(output, input); same_dtype(output, input); check_channelled(saveMean, input);
   check_channelled(saveInvstd, input),
   batch_norm(output, saveMean, saveInvstd, input, weight, bias, runningMean, runningVar, training, momentum, eps))
OP(aclnnBatchNormBackward, optional(weight, runningMean, runningVar);
   check_batch(input, {&weight, &runningMean, &runningVar}); check_running(runningMean, runningVar, training);
   same_shape(gradOut, input); same_dtype(gradOut, input); check_saved(saveMean, saveInvstd, input, training);
   check_masked(outputMask, {gradInput, gradWeight, gradBias}, input, {input.size(1)}),
   batch_norm_backward({gradInput, gradWeight, gradBias}, gradOut, input, weight, runningMean, runningVar, saveMean,
                       saveInvstd, training, eps, outputMask.mask<3>()))
