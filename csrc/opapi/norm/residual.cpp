// Layer norm of a sum (AddLayerNorm, DeepNorm), in fp32 and rounded once.
#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

void check_normalized_by(const Operand &x, const Operand &parameter) {
    network(x, parameter);
    if (parameter.dim() == 0 || parameter.dim() > x.dim() ||
        x.sizes().slice(static_cast<size_t>(x.dim() - parameter.dim())) != parameter.sizes())
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected the last sizes of {}, {}", parameter.parameter(),
             describe(parameter), x.parameter(), describe(x));
}

void check_one_per_row(const Operand &statistic, const Operand &x, const Operand &gamma) {
    dtype(statistic, at::kFloat);
    const int64_t rows = gamma.numel() == 0 ? 0 : x.numel() / gamma.numel();
    if (statistic.numel() != rows)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected {} elements, one for each normalised part of {}",
             statistic.parameter(), describe(statistic), rows, x.parameter());
}

void check_normalized(const Operand &x, const Operand &other, const Operand &gamma, const Operand &beta,
                      const Operand &mean, const Operand &rstd, const Operand &y) {
    same_shape(other, x);
    network(other);
    check_normalized_by(x, gamma);
    if (beta.defined()) same_shape(beta, gamma);
    for (const Operand *statistic : {&mean, &rstd})
        if (statistic->defined()) check_one_per_row(*statistic, x, gamma);
    same_shape(y, x);
    network(y);
}

// The sum of `terms`' fp32 values as rows of gamma's size.
at::Tensor in_rows(const at::Tensor &x, const at::Tensor &gamma) {
    return widened(x).reshape({x.numel() / std::max<int64_t>(gamma.numel(), 1), gamma.numel()});
}

void normalize(const at::Tensor &x, const at::Tensor &gamma, const at::Tensor &beta, double epsilon, at::Tensor &y,
               at::Tensor &mean, at::Tensor &rstd) {
    if (x.numel() == 0) return;
    const at::Tensor rows = in_rows(x, gamma), average = rows.mean(1, true);
    const at::Tensor centred = rows - average;
    const at::Tensor scale = centred.square().mean(1, true).add_(epsilon).rsqrt_();
    y.copy_((centred * scale).mul_(widened(gamma).flatten()).add_(widened(beta).flatten()).view(x.sizes()));
    if (mean.defined()) mean.copy_(average.view(mean.sizes()));
    if (rstd.defined()) rstd.copy_(scale.view(rstd.sizes()));
}

void check_gradients(const Operand &dy, const Operand &x, const Operand &other, const Operand &gamma,
                     const Operand &mean, const Operand &rstd, std::initializer_list<const Operand *> like_x,
                     std::initializer_list<const Operand *> like_gamma) {
    same_shape(dy, x);
    network(dy);
    check_normalized(x, other, gamma, gamma, mean, rstd, x);
    for (const Operand *gradient : like_x) same_shape(*gradient, x);
    for (const Operand *gradient : like_gamma) same_shape(*gradient, gamma);
}

// The gradient of the normalised sum `x`; those of gamma and beta are written.
at::Tensor backward(const at::Tensor &dy, const at::Tensor &x, const at::Tensor &gamma, const at::Tensor &mean,
                    const at::Tensor &rstd, at::Tensor &dgamma, at::Tensor &dbeta) {
    const at::Tensor scale = rstd.reshape({-1, 1}), rows = in_rows(dy, gamma);
    const at::Tensor normal = (in_rows(x, gamma) - mean.reshape({-1, 1})).mul_(scale);
    dgamma.copy_((rows * normal).sum(0).view(gamma.sizes()));
    dbeta.copy_(rows.sum(0).view(gamma.sizes()));
    const at::Tensor scaled = rows * widened(gamma).flatten();
    if (x.numel() == 0) return scaled.view(x.sizes());
    return (scaled - scaled.mean(1, true) - normal * (scaled * normal).mean(1, true)).mul_(scale).view(x.sizes());
}

// (ops-nn: deep_norm_tiling.cpp, deep_norm_grad_tiling.cpp)
void check_has_rows(const Operand &x, const Operand &gamma) {
    tiled(x.dim() > gamma.dim(), "x dim num should be greater than gamma dim num: parameters {} and {} are {} and {}",
          x.parameter(), gamma.parameter(), describe(x), describe(gamma));
}

at::Tensor sum(const at::Tensor &a, const at::Tensor &b, double alpha = 1) { return widened(a) * alpha + widened(b); }

}  // namespace
}  // namespace vnpu::opapi

// The sum is rounded as it is given away, the normalised value is not made from the rounded one.
OP(aclnnAddLayerNorm, optional(meanOut, rstdOut, xOut); check_normalized(x1, x2, gamma, beta, meanOut, rstdOut, yOut);
   if (biasOptional.defined()) expands(x1, biasOptional);
   if (additionalOutput) same_shape(xOut, x1), at::Tensor x = sum(x1, x2);
   if (biasOptional.defined()) x = x + widened(biasOptional);
   normalize(x, gamma, beta, epsilon, yOut, meanOut, rstdOut); if (additionalOutput) xOut.copy_(x))
OP(aclnnAddLayerNormGrad, check_gradients(dy, x1, x2, gamma, mean, rstd, {&dxOut}, {&dgammaOut, &dbetaOut});
   if (dsumOptional.defined()) same_shape(dsumOptional, x1),
   at::Tensor gradient = backward(dy, sum(x1, x2), gamma, mean, rstd, dgammaOut, dbetaOut);
   dxOut.copy_(dsumOptional.defined() ? gradient + widened(dsumOptional) : gradient))
OP(aclnnDeepNorm, check_normalized(x, gx, gamma, beta, meanOut, rstdOut, yOut);
   check_has_rows(x, gamma), normalize(sum(x, gx, alpha), gamma, beta, epsilon, yOut, meanOut, rstdOut))
OP(aclnnDeepNormGrad, check_gradients(dy, x, gx, gamma, mean, rstd, {&dxOut, &dgxOut}, {&dgammaOut, &dbetaOut});
   check_has_rows(x, gamma),
   const at::Tensor gradient = backward(dy, sum(x, gx, alpha), gamma, mean, rstd, dgammaOut, dbetaOut);
   dgxOut.copy_(gradient); dxOut.copy_(gradient * alpha))
