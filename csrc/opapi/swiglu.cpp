// Activations that torch_npu has beside torch's: SwiGLU and the fast GELU. Computed in fp32 and rounded once.
#include "device/fault.h"
#include "opapi/op.h"
#include "opapi/precision.h"

namespace vnpu::opapi {
namespace {

void check_halved(const Operand &x, int64_t dim, const Operand &half) {
    network(x);
    same_dtype(half, x);
    dimension(dim, x);
    rank(half, {x.dim()});
    at::DimVector sizes(x.sizes());
    if (sizes.empty() || sizes[static_cast<size_t>(at::maybe_wrap_dim(dim, x.dim()))] % 2 != 0)
        fail(FaultKind::InvalidArgument, "parameter x is {}, its size at dim {} must be even", describe(x), dim);
    sizes[static_cast<size_t>(at::maybe_wrap_dim(dim, x.dim()))] /= 2;
    shape(half, sizes);
}

void swiglu(const at::Tensor &x, int64_t dim, at::Tensor &out) {
    const std::vector<at::Tensor> half = widened(x).chunk(2, dim);
    rounded(out, [&](at::Tensor &target) { at::silu_out(target, half[0]).mul_(half[1]); });
}

void swiglu_backward(const at::Tensor &grad, const at::Tensor &x, int64_t dim, const at::Tensor &x_grad) {
    const std::vector<at::Tensor> half = widened(x).chunk(2, dim), half_grad = x_grad.chunk(2, dim);
    const at::Tensor wide = widened(grad);
    half_grad[0].copy_(at::silu_backward(wide * half[1], half[0]));
    half_grad[1].copy_(at::silu(half[0]).mul_(wide));
}

constexpr double kFastGelu = 1.702;

void fast_gelu(const at::Tensor &x, at::Tensor &out) {
    const at::Tensor wide = widened(x);
    out.copy_((wide * kFastGelu).sigmoid_().mul_(wide));
}

void fast_gelu_backward(const at::Tensor &grad, const at::Tensor &x, at::Tensor &x_grad) {
    const at::Tensor wide = widened(x), sigmoid = (wide * kFastGelu).sigmoid_();
    x_grad.copy_(((1 - sigmoid) * wide * kFastGelu + 1) * sigmoid * widened(grad));
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnSwiGlu, check_halved(x, dim, out), swiglu(x, dim, out))
OP(aclnnSwiGluGrad, check_halved(x, dim, yGrad); same_shape(out, x);
   same_dtype(out, x), swiglu_backward(yGrad, x, dim, out))
OP(aclnnFastGelu, network(self, out); same_shape(out, self); same_dtype(out, self), fast_gelu(self, out))
OP(aclnnFastGeluBackward, network(gradOutput, self, gradInput); same_shape(gradOutput, self);
   same_shape(gradInput, self), fast_gelu_backward(gradOutput, self, gradInput))
