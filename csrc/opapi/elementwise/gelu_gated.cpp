// GELU of one half of a tensor times the other half.
#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

void check_halved(const Operand &whole, int64_t dim, const Operand &half) {
    network(whole, half);
    dimension(dim, whole);
    if (whole.dim() == 0 || whole.size(dim) % 2 != 0)
        fail(FaultKind::InvalidArgument, "parameter {} is {}: dimension {} cannot be halved", whole.parameter(),
             describe(whole), dim);
    at::DimVector sizes(whole.sizes().begin(), whole.sizes().end());
    sizes[static_cast<size_t>(dim < 0 ? dim + whole.dim() : dim)] /= 2;
    shape(half, sizes);
}

// (ops-nn: gelu_mul_tiling.cpp)
void check_matrix(const Operand &input) {
    tiled(input.dim() >= 2, "Input shape dim should be no less than 2: parameter input is {}", describe(input));
}

const char *form(int64_t approximate) {
    if (approximate != 0 && approximate != 1)
        fail(FaultKind::InvalidArgument, "parameter approximate is {}, allowed are 0 (none) and 1 (tanh)", approximate);
    return approximate == 1 ? "tanh" : "none";
}

const std::string &form(const std::string &approximate) {
    static const std::string none = "none";
    if (!approximate.empty() && approximate != "none" && approximate != "tanh")
        fail(FaultKind::InvalidArgument, "parameter approximateOptional is \"{}\", allowed are \"none\" and \"tanh\"",
             approximate);
    return approximate.empty() ? none : approximate;
}

struct Halves {
    at::Tensor active, factor;
};

Halves halves(const at::Tensor &whole, int64_t dim, bool left) {
    const auto parts = whole.chunk(2, dim);
    return left ? Halves{parts[0], parts[1]} : Halves{parts[1], parts[0]};
}

void gated(at::Tensor &out, at::Tensor &gelu, const at::Tensor &self, int64_t dim, std::string_view approximate,
           bool left) {
    const Halves h = halves(self, dim, left);
    const at::Tensor activated = at::gelu(widened(h.active), approximate);
    give(gelu, activated);
    out.copy_(activated * widened(h.factor));
}

void gated_backward(at::Tensor &grad_input, const at::Tensor &grad, const at::Tensor &self, const at::Tensor &gelu,
                    int64_t dim, std::string_view approximate, bool left) {
    const Halves h = halves(self, dim, left);
    Halves into = halves(grad_input, dim, left);
    const at::Tensor g = widened(grad);
    into.active.copy_(at::gelu_backward(g * widened(h.factor), widened(h.active), approximate));
    into.factor.copy_(g * widened(gelu));
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnGeluMul, check_halved(input, -1, out); form(approximateOptional); check_matrix(input), at::Tensor unused;
   gated(out, unused, input, -1, form(approximateOptional), true))
OP(aclnnGeGluV3, check_halved(self, dim, out); same_shape(outGelu, out);
   form(approximate), gated(out, outGelu, self, dim, form(approximate), activateLeft))
OP(aclnnGeGluV3Backward, check_halved(self, dim, gradOutput); same_shape(gelu, gradOutput); same_shape(gradInput, self);
   form(approximate), gated_backward(gradInput, gradOutput, self, gelu, dim, form(approximate), activateLeft))
