// Activations of the old API and their gradients, in fp32 and rounded once.
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

at::Tensor swish_slope(const at::Tensor &x, double scale) {
    const at::Tensor gate = (x * scale).sigmoid();
    return gate * (1 + scale * x * (1 - gate));
}

at::Tensor relu6_gradient(const at::Tensor &gradient, const at::Tensor &x) {
    return at::where((x > 0).logical_and(x < 6), gradient, at::zeros_like(gradient));
}

// By the result.
at::Tensor elu_gradient(const at::Tensor &gradient, const at::Tensor &y) {
    return at::where(y > 0, gradient, gradient * (y + 1));
}

constexpr double kSeluScale = 1.0507009873554804934193349852946, kSeluAlpha = 1.6732632423543772848170429916717;
at::Tensor selu_gradient(const at::Tensor &gradient, const at::Tensor &y) {
    return gradient * at::where(y > 0, at::full_like(y, kSeluScale), y + kSeluScale * kSeluAlpha);
}

at::Tensor fast_gelu_gradient(const at::Tensor &gradient, const at::Tensor &x) {
    const at::Tensor share = at::sigmoid(x * 1.702);
    return gradient * share * (1 + x * 1.702 * (1 - share));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(MishGrad, check_like_first(arguments, 2, kNative, "the gradient"),
       out[0].copy_(at::mish_backward(widened(in[0]), widened(in[1]))))
// The scale is what x is multiplied by before the sigmoid.
LEGACY(Swish, allowed(in[0], kNative, "x"); alike(out[0], in[0], "the output"), const at::Tensor x = widened(in[0]);
       out[0].copy_(x * (x * static_cast<double>(attribute<float>(attributes, "scale", 1))).sigmoid()))
// in: gradient, x and y, which is not needed.
LEGACY(SwishGrad, check_like_first(arguments, 3, kNative, "the gradient"),
       out[0].copy_(widened(in[0]) * swish_slope(widened(in[1]), attribute<float>(attributes, "scale", 1))))
LEGACY(SiluGrad, check_like_first(arguments, 2, kNative, "the gradient"),
       out[0].copy_(widened(in[0]) * swish_slope(widened(in[1]), 1)))
LEGACY(Relu6, check_like_first(arguments, 1, kNative), out[0].copy_(at::relu6(in[0])))
LEGACY(Relu6Grad, check_like_first(arguments, 2, kNative), out[0].copy_(relu6_gradient(in[0], in[1])))
LEGACY(Elu, check_like_first(arguments, 1, kNative),
       out[0].copy_(at::elu(widened(in[0]), attribute<float>(attributes, "alpha", 1),
                            attribute<float>(attributes, "scale", 1), attribute<float>(attributes, "input_scale", 1))))
LEGACY(EluGrad, check_like_first(arguments, 2, kNative), out[0].copy_(elu_gradient(widened(in[0]), widened(in[1]))))
LEGACY(Selu, check_like_first(arguments, 1, kNative), out[0].copy_(at::selu(widened(in[0]))))
LEGACY(SeluGrad, check_like_first(arguments, 2, kNative), out[0].copy_(selu_gradient(widened(in[0]), widened(in[1]))))
LEGACY(Softplus, check_like_first(arguments, 1, kNative), out[0].copy_(at::softplus(widened(in[0]), 1, 88)))
LEGACY(SoftplusGrad, check_like_first(arguments, 2, kNative),
       out[0].copy_(widened(in[0]) * at::sigmoid(widened(in[1]))))
LEGACY(Softsign, check_like_first(arguments, 1, kNative), const at::Tensor x = widened(in[0]);
       out[0].copy_(x / (1 + x.abs())))
LEGACY(CeluV2, check_like_first(arguments, 1, kNative),
       out[0].copy_(at::celu(widened(in[0]), attribute<float>(attributes, "alpha", 1))))
LEGACY(FastGelu, check_like_first(arguments, 1, kNative), const at::Tensor x = widened(in[0]);
       out[0].copy_(x * at::sigmoid(x * 1.702)))
LEGACY(FastGeluGrad, check_like_first(arguments, 2, kNative),
       out[0].copy_(fast_gelu_gradient(widened(in[0]), widened(in[1]))))
LEGACY(Gelu, check_like_first(arguments, 1), out[0].copy_(at::gelu(widened(in[0]), "tanh")))
LEGACY(GeluGrad, check_like_first(arguments, 2),
       out[0].copy_(at::gelu_backward(widened(in[0]), widened(in[1]), "tanh")))
LEGACY(ThresholdGradV2D, check_like_first(arguments, 2),
       out[0].copy_(at::threshold_backward(in[0], in[1], attribute<float>(attributes, "threshold", 0))))
