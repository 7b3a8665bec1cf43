// Activation functions and their gradients.
#include <cmath>

#include "device/fault.h"
#include "opapi/aclnn/number.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"
#include "opapi/random/philox.h"

namespace vnpu::opapi {
namespace {

void check_unary(const Operand &self, const Operand &out) {
    floating(self);
    floating(out);
    same_shape(out, self);
}

void check_unary_or_int(const Operand &self, const Operand &out) {
    if (self.scalar_type() != at::kInt && out.scalar_type() != at::kInt) return check_unary(self, out);
    dtype(self, kFloats | at::kInt);
    dtype(out, kFloats | at::kInt);
    same_shape(out, self);
}

// ATen has none of integers. Of theirs the whole part is left: no source says how hardware rounds.
void hardsigmoid(at::Tensor &out, const at::Tensor &self) {
    if (self.scalar_type() != at::kInt && out.scalar_type() != at::kInt) return void(at::hardsigmoid_out(out, self));
    out.copy_(at::hardsigmoid(self.to(at::kFloat)));
}

// Numbers of any kind: max(x, 0), a threshold and their like.
void check_ordered(const Operand &self, const Operand &out) {
    dtype(self,
          {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble, at::kChar, at::kByte, at::kShort, at::kInt, at::kLong});
    same_dtype(out, self);
    same_shape(out, self);
}

void check_backward(const Operand &gradient, const Operand &saved, const Operand &out) {
    dtype(gradient, {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble, at::kInt, at::kChar, at::kByte, at::kLong});
    dtype(saved, kReals | at::kBool);
    broadcasts(out, {&gradient, &saved});
    promotes(out, {&gradient, &saved});
}

void check_gelu_name(const std::string &approximate) {
    if (approximate != "none" && approximate != "tanh")
        fail(FaultKind::InvalidArgument, "parameter approximate is \"{}\", allowed are \"none\" and \"tanh\"",
             approximate);
}

void check_gelu_backward(const Operand &grad, const Operand &self, const Operand &out) {
    floating(self);
    same_dtype(grad, self);
    same_dtype(out, self);
    broadcasts(out, {&grad, &self});
}

// ATen's kernel (oneDNN) does not broadcast: an operand of another shape than the result's is copied.
void gelu_backward(at::Tensor &out, const at::Tensor &grad, const at::Tensor &self, std::string_view approximate) {
    const auto filled = [&](const at::Tensor &tensor) {
        return tensor.sizes() == out.sizes() ? tensor : tensor.expand(out.sizes()).contiguous();
    };
    at::gelu_backward_out(out, filled(grad), filled(self), approximate);
}

void check_gelu_number(int64_t approximate) {
    if (approximate != 0 && approximate != 1)
        fail(FaultKind::InvalidArgument, "parameter approximate is {}, allowed are 0 (none) and 1 (tanh)", approximate);
}

void check_halved(const Operand &self, int64_t dim, const Operand &out) {
    floating(self);
    dimension(dim, self);
    const auto axis = static_cast<size_t>(dim < 0 ? dim + self.dim() : dim);
    if (self.dim() == 0 || self.size(dim) % 2 != 0)
        fail(FaultKind::InvalidArgument, "parameter self is {}: dimension {} cannot be halved", describe(self), dim);
    at::DimVector sizes(self.sizes().begin(), self.sizes().end());
    sizes[axis] /= 2;
    shape(out, sizes);
}

// Whether numbers are in order (ops-nn: aclnn_softshrink.cpp, aclnn_celu.cpp, aclnn_leaky_relu_backward.cpp,
// aclnn_elu_backward.cpp and their neighbours).
void check_shrink(const ScalarArgument &lambd) {
    if (lambd.to<double>() < 0)
        fail(FaultKind::InvalidArgument, "lambd should be greater or equal to 0: parameter {} is {}", lambd.parameter(),
             lambd.to<double>());
}

void check_divisor(const ScalarArgument &alpha) {
    if (!(alpha.to<float>() > 0 || alpha.to<float>() < 0))
        fail(FaultKind::InvalidArgument, "alpha cannot be 0 for CELU: parameter alpha is {}", alpha.to<float>());
}

// A result tells the sign of its input unless the slope is negative.
void check_told_by_result(const char *what, const ScalarArgument &slope, bool is_result) {
    if (is_result && slope.to<double>() < 0)
        fail(FaultKind::InvalidArgument,
             "In-place {} which is not supported: parameter {} is {}, and the input is not there any more", what,
             slope.parameter(), slope.to<double>());
}

// Past an infinite threshold there is nothing, and past one that is no number neither: comparisons with it are false
// (ops-nn: softshrink.h, soft_shrink_grad.h). ATen refuses both, and thresholds that half precision cannot hold.
void softshrink(at::Tensor &out, const at::Tensor &self, const ScalarArgument &lambd) {
    const at::Scalar limit = lambd.as(at::kFloat);
    if (std::isfinite(limit.toDouble()))
        return rounded(out, [&](at::Tensor &target) { at::softshrink_out(target, widened(self), limit); });
    out.copy_(at::where(self.isnan(), self, at::zeros({}, self.options())));
}

void softshrink_backward(at::Tensor &grad_input, const at::Tensor &grad, const at::Tensor &self,
                         const ScalarArgument &lambda) {
    const at::Scalar limit = lambda.as(at::kFloat);
    if (std::isfinite(limit.toDouble()))
        return rounded(grad_input, [&](at::Tensor &target) {
            at::softshrink_backward_out(target, widened(grad), widened(self), limit);
        });
    grad_input.copy_(at::where(self.isnan(), grad, at::zeros({}, grad.options())));
}

// One weight for all, or one for each channel (dimension 1).
at::Tensor per_channel(const at::Tensor &weight, const at::Tensor &self) {
    if (weight.numel() == 1 || self.dim() < 2) return weight.reshape(at::DimVector(static_cast<size_t>(self.dim()), 1));
    at::DimVector sizes(static_cast<size_t>(self.dim()), 1);
    sizes[1] = weight.numel();
    return weight.reshape(sizes);
}

void check_prelu(const Operand &self, const Operand &weight, const Operand &out) {
    network(self, weight, out);
    same_shape(out, self);
    const int64_t channels = self.dim() < 2 ? 1 : self.size(1);
    if (weight.numel() != 1 && weight.numel() != channels && weight.sizes() != self.sizes())
        fail(FaultKind::InvalidArgument, "parameter weight has {} values, allowed are 1 and {}, the channels of self",
             weight.numel(), channels);
}

// torch_npu gives the weight as autograd's kernel wants it (a view of self's rank), the C API as a vector.
at::Tensor slopes(const at::Tensor &weight, const at::Tensor &self) {
    return weight.dim() == self.dim() && weight.dim() > 1 ? weight : per_channel(weight, self);
}

void prelu_backward(at::Tensor &grad_input, at::Tensor &grad_weight, const at::Tensor &grad, const at::Tensor &self,
                    const at::Tensor &weight) {
    const at::Tensor x = widened(self), w = slopes(widened(weight), x).expand_as(x);
    const auto [input_gradient, each] = at::_prelu_kernel_backward(widened(grad), x, w);
    give(grad_input, input_gradient);
    if (!grad_weight.defined()) return;
    if (grad_weight.sizes() == each.sizes()) return give(grad_weight, each);
    const at::Tensor like = slopes(grad_weight, x);
    give(grad_weight, each.sum_to_size(like.sizes()).reshape(grad_weight.sizes()));
}

// Slopes below zero: drawn from [lower, upper) and kept in `noise` while training, their mean otherwise.
void rrelu(at::Tensor &out, const at::Tensor &self, at::Tensor &noise, double lower, double upper, bool training,
           uint64_t seed, uint64_t offset) {
    if (!training) return void(at::leaky_relu_out(out, self, (lower + upper) / 2));
    at::Tensor slope = at::empty(self.sizes(), at::TensorOptions().dtype(at::kFloat));
    float *values = slope.mutable_data_ptr<float>();
    const Philox philox(seed, offset);
    for (int64_t i = 0; i < slope.numel(); ++i)
        values[i] = static_cast<float>(lower + (upper - lower) * 0x1p-32 *
                                                   philox(static_cast<uint64_t>(i / 4))[static_cast<size_t>(i % 4)]);
    noise.copy_(at::where(self.gt(0), 1, slope));
    out.copy_(widened(self) * noise);
}

void check_rrelu(const Operand &self, const Operand &noise, const ScalarArgument &lower, const ScalarArgument &upper,
                 const Operand &out) {
    check_unary(self, out);
    same_shape(noise, self);
    if (lower.to<double>() > upper.to<double>())
        fail(FaultKind::InvalidArgument, "parameter lower is {}, greater than upper, which is {}", lower.to<double>(),
             upper.to<double>());
}

}  // namespace
}  // namespace vnpu::opapi

#define ACTIVATION(NAME, CHECK, ...) OP(NAME, CHECK(self, out), __VA_ARGS__)
#define ACTIVATION_INPLACE(NAME, CHECK, ...) OP(NAME, CHECK(selfRef, selfRef), __VA_ARGS__)
#define GRADIENT(NAME, SAVED, OUT, ...) OP(NAME, check_backward(gradOutput, SAVED, OUT), __VA_ARGS__)

ACTIVATION(aclnnRelu, check_ordered, at::clamp_min_out(out, self, 0))
ACTIVATION_INPLACE(aclnnInplaceRelu, check_ordered, at::clamp_min_out(selfRef, selfRef, 0))
ACTIVATION(aclnnThreshold, check_ordered,
           at::threshold_out(out, self, computed(threshold, self), computed(value, self)))
ACTIVATION_INPLACE(aclnnInplaceThreshold, check_ordered,
                   at::threshold_out(selfRef, selfRef, computed(threshold, selfRef), computed(value, selfRef)))
GRADIENT(aclnnThresholdBackward, self, out,
         at::threshold_backward_out(out, gradOutput, self, computed(threshold, self)))

ACTIVATION(aclnnLeakyRelu, check_unary, at::leaky_relu_out(out, self, computed(negativeSlope, self)))
ACTIVATION_INPLACE(aclnnInplaceLeakyRelu, check_unary,
                   at::leaky_relu_out(selfRef, selfRef, computed(negativeSlope, selfRef)))
OP(aclnnLeakyReluBackward, check_backward(gradOutput, self, out);
   check_told_by_result("leakyRelu backward calculation is triggered with a negativeSlope", negativeSlope,
                        selfIsResult),
   at::leaky_relu_backward_out(out, gradOutput, self, computed(negativeSlope, self), selfIsResult))
OP(aclnnPrelu, check_prelu(self, weight, out),
   out.copy_(at::_prelu_kernel(widened(self), slopes(widened(weight), self).expand_as(self))))
OP(aclnnPreluBackward, check_prelu(self, weight, gradInput); same_shape(gradOutput, self);
   optional(gradWeight), prelu_backward(gradInput, gradWeight, gradOutput, self, weight))
OP(aclnnRReluWithNoise, check_rrelu(self, noise, lower, upper, out),
   rrelu(out, self, noise, lower.to<double>(), upper.to<double>(), training, static_cast<uint64_t>(seed),
         static_cast<uint64_t>(offset)))
OP(aclnnInplaceRReluWithNoise, check_rrelu(self, noise, lower, upper, self),
   rrelu(self, self, noise, lower.to<double>(), upper.to<double>(), training, static_cast<uint64_t>(seed),
         static_cast<uint64_t>(offset)))

ACTIVATION(aclnnLogSigmoid, check_unary, at::log_sigmoid_out(out, self))
// The buffer that ATen keeps between the two is not used: torch_npu's has no elements.
OP(aclnnLogSigmoidForward, check_unary(self, out); optional(buffer), at::log_sigmoid_out(out, self))
OP(aclnnLogSigmoidBackward, check_backward(gradOutput, self, gradInput);
   optional(buffer), rounded(gradInput, [&](at::Tensor &target) {
       at::mul_out(target, widened(gradOutput), widened(self).neg().sigmoid_());
   }))

// The tanh form (ops-nn: gelu_dag.h, gelu_grad_dag.h); torch_npu 2.13 calls these two whatever `approximate` says.
OP(aclnnGelu, check_unary(self, out); same_dtype(out, self), at::gelu_out(out, self, "tanh"))
OP(aclnnGeluV2, check_unary(x, y); same_dtype(y, x);
   check_gelu_number(approximate), at::gelu_out(y, x, approximate == 1 ? "tanh" : "none"))
OP(aclnnGeluBackward, check_gelu_backward(gradOutput, self, gradInput),
   gelu_backward(gradInput, gradOutput, self, "tanh"))
OP(aclnnGeluBackwardV2, check_gelu_backward(gradOutput, self, gradInput);
   check_gelu_name(approximate), gelu_backward(gradInput, gradOutput, self, approximate))
ACTIVATION(aclnnSilu, check_unary, at::silu_out(out, self))
GRADIENT(aclnnSiluBackward, self, gradInput, at::silu_backward_out(gradInput, gradOutput, self))
ACTIVATION(aclnnMish, check_unary, at::mish_out(out, self))
ACTIVATION_INPLACE(aclnnInplaceMish, check_unary, at::mish_out(selfRef, selfRef))
GRADIENT(aclnnMishBackward, self, gradInput, give(gradInput, at::mish_backward(widened(gradOutput), widened(self))))

ACTIVATION(aclnnElu, check_unary, at::elu_out(out, self, alpha, scale, inputScale))
ACTIVATION_INPLACE(aclnnInplaceElu, check_unary, at::elu_out(selfRef, selfRef, alpha, scale, inputScale))
OP(aclnnEluBackward, check_backward(gradOutput, selfOrResult, gradInput);
   check_told_by_result("elu backward calculation is triggered with a negative slope", alpha, isResult),
   at::elu_backward_out(gradInput, gradOutput, alpha, scale, inputScale, isResult, selfOrResult))
// celu(x) = elu(x; alpha, 1, 1 / alpha)
OP(aclnnCelu, check_unary(self, out); check_divisor(alpha), at::elu_out(out, self, alpha, 1, 1 / alpha.to<double>()))
OP(aclnnInplaceCelu, check_unary(selfRef, selfRef);
   check_divisor(alpha), at::elu_out(selfRef, selfRef, alpha, 1, 1 / alpha.to<double>()))
ACTIVATION(aclnnSoftplus, check_unary, at::softplus_out(out, self, beta, threshold))
GRADIENT(aclnnSoftplusBackward, self, gradInput,
         at::softplus_backward_out(gradInput, gradOutput, self, beta, threshold))

ACTIVATION(aclnnHardtanh, check_ordered,
           at::clamp_out(out, self, clipValueMin.as(self.scalar_type()), clipValueMax.as(self.scalar_type())))
ACTIVATION_INPLACE(aclnnInplaceHardtanh, check_ordered,
                   at::clamp_out(selfRef, selfRef, clipValueMin.as(selfRef.scalar_type()),
                                 clipValueMax.as(selfRef.scalar_type())))
GRADIENT(aclnnHardtanhBackward, self, out, at::hardtanh_backward_out(out, gradOutput, self, min, max))
ACTIVATION(aclnnHardsigmoid, check_unary_or_int, hardsigmoid(out, self))
OP(aclnnInplaceHardsigmoid, check_unary_or_int(self, self), hardsigmoid(self, self))
GRADIENT(aclnnHardsigmoidBackward, self, out, at::hardsigmoid_backward_out(out, gradOutput, self))
ACTIVATION(aclnnHardswish, check_unary, at::hardswish_out(out, self))
OP(aclnnInplaceHardswish, check_unary(self, self), at::hardswish_out(self, self))
GRADIENT(aclnnHardswishBackward, self, out, give(out, at::hardswish_backward(widened(gradOutput), widened(self))))
GRADIENT(aclnnHardswishBackwardV2, self, out, give(out, at::hardswish_backward(widened(gradOutput), widened(self))))
ACTIVATION(aclnnHardshrink, check_unary, at::hardshrink_out(out, self, lambd))
GRADIENT(aclnnHardshrinkBackward, self, gradInput, at::hardshrink_backward_out(gradInput, gradOutput, self, lambd))
OP(aclnnSoftshrink, check_unary(self, out); check_shrink(lambd), softshrink(out, self, lambd))
OP(aclnnSoftshrinkBackward, check_backward(gradOutput, self, gradInput);
   check_shrink(lambda), softshrink_backward(gradInput, gradOutput, self, lambda))

OP(aclnnGlu, check_halved(self, dim, out), at::glu_out(out, self, dim))
OP(aclnnGluBackward, check_halved(self, dim, gradOut);
   same_shape(out, self),
   rounded(out, [&](at::Tensor &target) { at::glu_backward_out(target, widened(gradOut), widened(self), dim); }))
OP(aclnnLogitGrad, check_backward(dy, x, out),
   give(out, at::logit_backward(widened(dy), widened(x), eps < 0 ? std::nullopt : std::optional<double>(eps))))
