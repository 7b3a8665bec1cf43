// Activations that torch_npu has beside torch's: SwiGLU and the fast GELU. Computed in fp32 and rounded once.
#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

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

void check_clipped(const Operand &x, const Operand &groups, int64_t dim, const Operand &out) {
    check_halved(x, dim, out);
    if (groups.defined()) dtype(groups, {at::kLong});
}

// GPT-OSS's form. With groups only the rows before their end count, the others are left alone.
void clipped_swiglu(const at::Tensor &x, const at::Tensor &groups, int64_t dim, double alpha, double limit, double bias,
                    bool interleaved, at::Tensor &out) {
    const int64_t cut = at::maybe_wrap_dim(dim, x.dim()), half = x.size(cut) / 2;
    const at::Tensor wide = widened(x);
    const auto part = [&](int64_t which) {
        return interleaved ? wide.slice(cut, which, x.size(cut), 2) : wide.narrow(cut, which * half, half);
    };
    const at::Tensor gate = part(0).clamp_max(limit), value = part(1).clamp(-limit, limit);
    const at::Tensor result = gate * (gate * alpha).sigmoid() * (value + bias);
    if (!groups.defined()) return void(out.copy_(result));
    int64_t rows = 1;
    for (int64_t i = 0; i < cut; ++i) rows *= x.size(i);
    const int64_t last = std::min(groups.sum().item().toLong(), rows);
    out.view({rows, -1}).narrow(0, 0, last).copy_(result.reshape({rows, -1}).narrow(0, 0, last));
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
OP(aclnnClippedSwiglu, check_clipped(x, groupIndexOptional, dim, out),
   clipped_swiglu(x, groupIndexOptional, dim, alpha, limit, bias, interleaved, out))
