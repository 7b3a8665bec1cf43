// Legacy operators behind torch_npu's fused ones, and the distance's gradient.
#include "device/fault.h"
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"

namespace vnpu::opapi {
namespace {

constexpr double kMasked = -10000;  // as aclnnScaledMaskedSoftmax

at::Tensor left_out(const at::Tensor &mask, const aclopAttr &attributes) {
    return attribute<bool>(attributes, "fixed_triu_mask", false) ? at::ones(mask.sizes(), at::kBool).triu(1)
                                                                 : mask.to(at::kBool);
}

double scale(const aclopAttr &attributes) { return attribute<float>(attributes, "scale", 1); }

void alike(const at::Tensor &a, const at::Tensor &b) {
    if (a.sizes() != b.sizes())
        fail(FaultKind::InvalidArgument, "there are {} and {}, expected one shape", describe(a), describe(b));
}

// Operands broadcast over pairs, [..., rows, columns, width]; -1 stands for the largest difference.
at::Tensor distance_grad(const at::Tensor &grad, const at::Tensor &x1, const at::Tensor &x2, const at::Tensor &distance,
                         double p) {
    const at::Tensor difference = widened(x1) - widened(x2), d = widened(distance), sign = difference.sign();
    at::Tensor slope;
    if (p == 0)
        slope = at::zeros_like(difference);
    else if (p == 1)
        slope = sign;
    else if (p < 0)
        slope = sign * difference.abs().eq(d);
    else
        slope = (sign * difference.abs().pow(p - 1) / d.pow(p - 1)).masked_fill(d.eq(0), 0);
    return (slope * widened(grad)).sum(-2);  // of every pair of batches; where x1 has one batch for all, their sum
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(ScaledMaskedSoftmax, alike(out[0], in[0]),
       out[0].copy_(at::softmax((widened(in[0]) * scale(attributes)).masked_fill_(left_out(in[1], attributes), kMasked),
                                -1)))
LEGACY(ScaledMaskedSoftmaxGrad, alike(out[0], in[0]),
       out[0].copy_(at::_softmax_backward_data(widened(in[0]), widened(in[1]), -1, at::kFloat)
                        .mul_(scale(attributes))
                        .masked_fill_(left_out(in[2], attributes), 0)))
LEGACY(CdistGrad, alike(in[1], in[0]); alike(in[2], in[0]);
       alike(in[3], in[0]), out[0].copy_(distance_grad(in[0], in[1], in[2], in[3], attribute<float>(attributes, "p", 2))
                                             .sum_to_size(out[0].sizes())))
