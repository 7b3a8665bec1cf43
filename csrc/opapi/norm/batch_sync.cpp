// The pieces of batch norm over several devices: statistics here, combined, applied; and the same backwards.
// Statistics are computed in fp32, their combination in fp64.
#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

void check_input(const Operand &input) {
    rank(input, {2, 3, 4, 5, 6, 7, 8});
    network(input);
}

void check_channels(const Operand &input, std::initializer_list<const Operand *> vectors) {
    check_input(input);
    for (const Operand *vector : vectors)
        if (vector->defined() || !vector->may_be_null()) {
            shape(*vector, {input.size(1)});
            network(*vector);
        }
}

// Every dimension but the channels.
std::vector<int64_t> others(const at::Tensor &input) {
    std::vector<int64_t> dims{0};
    for (int64_t dim = 2; dim < input.dim(); ++dim) dims.push_back(dim);
    return dims;
}

// [C] as [1, C, 1 ...]: one value per channel, in fp32.
at::Tensor column(const at::Tensor &vector, const at::Tensor &input) {
    at::DimVector sizes(static_cast<size_t>(input.dim()), 1);
    sizes[1] = vector.numel();
    return widened(vector).reshape(sizes);
}

void stats(at::Tensor &mean, at::Tensor &invstd, const at::Tensor &input, double eps) {
    const auto [var, average] = at::var_mean(widened(input), others(input), std::optional<at::Scalar>(0), false);
    mean.copy_(average);
    invstd.copy_(var.add(eps).rsqrt_());
}

// Rows of `means` and `invstds` are those of the devices, which had `counts` values in each channel.
void gather(at::Tensor &mean_all, at::Tensor &invstd_all, const at::Tensor &means, const at::Tensor &invstds,
            at::Tensor &running_mean, at::Tensor &running_var, double momentum, double eps, const at::Tensor &counts) {
    const at::Tensor n = counts.to(at::kDouble).reshape({-1, 1}), m = means.to(at::kDouble);
    const at::Tensor total = n.sum();
    const at::Tensor mean = n.mul(m).sum(0).div_(total);
    const at::Tensor var_here = invstds.to(at::kDouble).pow(-2).sub_(eps);
    const at::Tensor squares = m.sub(mean).square_().add_(var_here).mul_(n).sum(0);
    mean_all.copy_(mean);
    invstd_all.copy_(squares.div(total).add_(eps).rsqrt_());
    if (running_mean.defined()) running_mean.copy_(at::lerp(running_mean.to(at::kDouble), mean, momentum));
    if (running_var.defined())
        running_var.copy_(at::lerp(running_var.to(at::kDouble), squares.div(total.sub(1)), momentum));
}

void check_gather(const Operand &input, const Operand &mean, const Operand &invstd, const Operand &counts) {
    rank(mean, {2});
    rank(counts, {1});
    shape(mean, {counts.size(0), input.size(1)});
    same_shape(invstd, mean);
}

void normalize(at::Tensor &output, const at::Tensor &input, const at::Tensor &weight, const at::Tensor &bias,
               const at::Tensor &mean, const at::Tensor &invstd) {
    at::Tensor scale = column(invstd, input);
    if (weight.defined()) scale = scale * column(weight, input);
    at::Tensor result = widened(input).sub(column(mean, input)).mul_(scale);
    if (bias.defined()) result.add_(column(bias, input));
    output.copy_(result);
}

void reduce(at::Tensor &sum_dy, at::Tensor &sum_dy_xmu, at::Tensor &grad_weight, at::Tensor &grad_bias,
            const at::Tensor &grad, const at::Tensor &input, const at::Tensor &mean, const at::Tensor &invstd) {
    const at::Tensor dy = widened(grad);
    const at::Tensor sum = dy.sum(others(input));
    const at::Tensor product = widened(input).sub(column(mean, input)).mul_(dy).sum(others(input));
    give(sum_dy, sum);
    give(sum_dy_xmu, product);
    give(grad_weight, product * widened(invstd));
    give(grad_bias, sum);
}

// (dy - sumDy / n - (x - mean) invstd^2 sumDyXmu / n) invstd weight; `counter` holds each device's share of n.
void normalize_backward(at::Tensor &grad_input, const at::Tensor &grad, const at::Tensor &input, const at::Tensor &mean,
                        const at::Tensor &invstd, const at::Tensor &weight, const at::Tensor &sum_dy,
                        const at::Tensor &sum_dy_xmu, const at::Tensor &counter) {
    const double n = counter.to(at::kDouble).sum().item<double>();
    const at::Tensor invstds = column(invstd, input);
    at::Tensor result =
        widened(input).sub(column(mean, input)).mul_(invstds.square().mul_(column(sum_dy_xmu, input)).div_(n));
    result = widened(grad).sub(column(sum_dy, input).div(n)).sub_(result).mul_(invstds);
    if (weight.defined()) result.mul_(column(weight, input));
    grad_input.copy_(result);
}

void sums(at::Tensor &sum, at::Tensor &square_sum, const at::Tensor &x) {
    const at::Tensor wide = widened(x);
    sum.copy_(wide.sum(others(x)));
    square_sum.copy_(wide.square().sum(others(x)));
}

// The same combination from sums and sums of squares (npu_batch_norm_gather_stats_update).
void gather_sums(at::Tensor &batch_mean, at::Tensor &batch_invstd, const at::Tensor &totals, const at::Tensor &squares,
                 const at::Tensor &counts, at::Tensor &mean, at::Tensor &variance, double momentum, double eps) {
    const at::Tensor n = counts.to(at::kDouble).sum();
    const at::Tensor average = totals.to(at::kDouble).sum(0).div_(n);
    const at::Tensor var = squares.to(at::kDouble).sum(0).div_(n).sub_(average.square()).clamp_min_(0);
    batch_mean.copy_(average);
    batch_invstd.copy_(var.add(eps).rsqrt_());
    mean.copy_(at::lerp(mean.to(at::kDouble), average, momentum));
    variance.copy_(at::lerp(variance.to(at::kDouble), var * n / (n - 1), momentum));
}

void check_gather_sums(const Operand &totals, const Operand &squares, const Operand &counts,
                       std::initializer_list<const Operand *> vectors) {
    rank(totals, {2});
    network(totals);
    same_shape(squares, totals);
    shape(counts, {totals.size(0)});
    for (const Operand *vector : vectors) shape(*vector, {totals.size(1)});
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnBatchNormStats, check_channels(input, {&mean, &invstd}), stats(mean, invstd, input, eps))
OP(aclnnBatchNormGatherStatsWithCounts, optional(runningMean, runningVar);
   check_channels(input, {&runningMean, &runningVar, &meanAll, &invstdAll});
   check_gather(input, mean, invstd, counts),
   gather(meanAll, invstdAll, mean, invstd, runningMean, runningVar, momentum, eps, counts))
OP(aclnnBatchNormElemt, optional(weight, bias); check_channels(input, {&weight, &bias, &mean, &invstd});
   same_shape(output, input), normalize(output, input, weight, bias, mean, invstd))
OP(aclnnBatchNormReduceBackward, optional(weight); if (!inputG) optional(sumDy, sumDyXmu);
   if (!weightG) optional(gradWeight); if (!biasG) optional(gradBias);
   check_channels(input, {&mean, &invstd, &weight, &sumDy, &sumDyXmu, &gradWeight, &gradBias}); network(gradOut);
   same_shape(gradOut, input), reduce(sumDy, sumDyXmu, gradWeight, gradBias, gradOut, input, mean, invstd))
OP(aclnnBatchNormElemtBackward, optional(weight); check_channels(input, {&mean, &invstd, &weight, &sumDy, &sumDyXmu});
   same_shape(gradOut, input); same_shape(gradInput, input), normalize_backward(gradInput, gradOut, input, mean, invstd,
                                                                                weight, sumDy, sumDyXmu, counter))
OP(aclnnBatchNormReduce, check_channels(x, {&sum, &squareSum}), sums(sum, squareSum, x))
OP(aclnnSyncBatchNormGatherStats,
   check_gather_sums(totalSum, totalSquareSum, sampleCount, {&mean, &variance, &batchMean, &batchInvstd}),
   gather_sums(batchMean, batchInvstd, totalSum, totalSquareSum, sampleCount, mean, variance, momentum, eps))
