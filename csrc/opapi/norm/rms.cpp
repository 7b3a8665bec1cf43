// Root mean square normalisation and its fusions with an addition. Computed in fp32 and rounded once; on the way the
// kernels hold fp32 copies of narrow operands and one temporary of x's size.
#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

// x as [rows, elements of gamma].
at::Tensor in_rows(const at::Tensor &x, const at::Tensor &gamma) {
    return widened(x).reshape({x.numel() / std::max<int64_t>(gamma.numel(), 1), gamma.numel()});
}

void check_normalized_by(const Operand &x, const Operand &gamma) {
    network(x, gamma);
    if (gamma.dim() > x.dim() || x.sizes().slice(static_cast<size_t>(x.dim() - gamma.dim())) != gamma.sizes())
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected the last sizes of {}, {}", gamma.parameter(),
             describe(gamma), x.parameter(), describe(x));
    if (gamma.numel() == 0 && x.numel() != 0)
        fail(FaultKind::InvalidArgument, "parameter {} is empty", gamma.parameter());
}

void check_one_per_row(const Operand &rstd, const Operand &x, const Operand &gamma) {
    dtype(rstd, at::kFloat);
    const int64_t rows = gamma.numel() == 0 ? 0 : x.numel() / gamma.numel();
    if (rstd.numel() != rows)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected {} elements, one for each normalised part of {}",
             rstd.parameter(), describe(rstd), rows, x.parameter());
}

void check_rms(const Operand &x, const Operand &gamma, const Operand &y, const Operand &rstd) {
    check_normalized_by(x, gamma);
    same_shape(y, x);
    network(y);
    if (rstd.defined()) check_one_per_row(rstd, x, gamma);
}

// The columns of the kernel's definition (ops-nn: rms_norm_def.cpp).
void check_rms_columns(const Operand &x, const Operand &gamma) {
    on_chip(gamma.scalar_type() == x.scalar_type() || (gamma.scalar_type() == at::kFloat && narrow(x)),
            "parameter {} is {}, allowed are the dtype of {}, {}, and float32 beside a narrower one", gamma.parameter(),
            describe(gamma), x.parameter(), describe(x));
}

void rms_norm(const at::Tensor &x, const at::Tensor &gamma, double shift, double epsilon, at::Tensor &y,
              at::Tensor &rstd) {
    if (x.numel() == 0) return;
    const at::Tensor rows = in_rows(x, gamma);
    const at::Tensor scale = rows.square().mean(1, true).add_(epsilon).rsqrt_();
    y.copy_((rows * scale).mul_(widened(gamma).flatten().add(shift)).view(x.sizes()));
    if (rstd.defined()) rstd.copy_(scale.view(rstd.sizes()));
}

// The sum is rounded as a separate addition would round it.
void add_rms_norm(const at::Tensor &a, const at::Tensor &b, const at::Tensor &gamma, double epsilon, at::Tensor &sum,
                  at::Tensor &y, at::Tensor &rstd) {
    const at::Tensor x = at::add(a, b);
    rms_norm(x, gamma, 0, epsilon, y, rstd);
    if (sum.defined()) sum.copy_(x);
}

void check_add_rms(const Operand &a, const Operand &b, const Operand &gamma, const Operand &y, const Operand &rstd,
                   const Operand &sum) {
    same_shape(b, a);
    same_dtype(b, a);
    check_rms(a, gamma, y, rstd);
    if (sum.defined()) same_shape(sum, a);
}

void rms_norm_backward(const at::Tensor &grad, const at::Tensor &x, const at::Tensor &rstd, const at::Tensor &gamma,
                       at::Tensor &x_grad, at::Tensor &gamma_grad) {
    const at::Tensor normal = in_rows(x, gamma).mul(rstd.reshape({-1, 1})), rows = in_rows(grad, gamma);
    gamma_grad.copy_((rows * normal).sum(0).view(gamma.sizes()));
    if (x.numel() == 0) return;
    at::Tensor scaled = rows * widened(gamma).flatten();
    scaled.sub_(normal * (scaled * normal).mean(1, true)).mul_(rstd.reshape({-1, 1}));
    x_grad.copy_(scaled.view(x.sizes()));
}

void check_rms_backward(const Operand &grad, const Operand &x, const Operand &rstd, const Operand &gamma,
                        const Operand &x_grad, const Operand &gamma_grad) {
    check_normalized_by(x, gamma);
    same_shape(grad, x);
    check_one_per_row(rstd, x, gamma);
    same_shape(x_grad, x);
    same_shape(gamma_grad, gamma);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnRmsNorm, check_rms(x, gamma, yOut, rstdOut);
   check_rms_columns(x, gamma), rms_norm(x, gamma, 0, epsilon, yOut, rstdOut))
OP(aclnnGemmaRmsNorm, check_rms(x, gamma, yOut, rstdOut), rms_norm(x, gamma, 1, epsilon, yOut, rstdOut))
OP(aclnnRmsNormGrad, check_rms_backward(dy, x, rstd, gamma, dxOut, dgammaOut),
   rms_norm_backward(dy, x, rstd, gamma, dxOut, dgammaOut))
OP(aclnnAddRmsNorm, optional(rstdOut, xOut); check_add_rms(x1, x2, gamma, yOut, rstdOut, xOut);
   fewest_dimensions(gamma, 1),  // (ops-nn: aclnn_add_rms_norm.cpp)
   add_rms_norm(x1, x2, gamma, epsilon, xOut, yOut, rstdOut))
OP(aclnnAddRmsNormCast, optional(rstdOut, xOut); check_add_rms(x1, x2, gamma, y1Out, rstdOut, xOut);
   dtype(y1Out, at::kFloat); same_shape(y2Out, x1), add_rms_norm(x1, x2, gamma, epsilon, xOut, y1Out, rstdOut);
   y2Out.copy_(y1Out))
OP(aclnnInplaceAddRmsNorm, check_add_rms(x1Ref, x2Ref, gamma, x1Ref, rstdOut, x2Ref),
   add_rms_norm(x1Ref, x2Ref, gamma, epsilon, x2Ref, x1Ref, rstdOut))
