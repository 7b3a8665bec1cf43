// Softmax of the old API, plain, of logarithms and masked, with the gradients. In fp32 and rounded once.
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

constexpr double kMasked = -10000;  // as aclnnScaledMaskedSoftmax

at::Tensor left_out(const at::Tensor &mask, const aclopAttr &attributes) {
    return attribute<bool>(attributes, "fixed_triu_mask", false) ? at::ones(mask.sizes(), at::kBool).triu(1)
                                                                 : mask.to(at::kBool);
}

double scale(const aclopAttr &attributes) { return attribute<float>(attributes, "scale", 1); }

void check_one_shape(const at::Tensor &a, const at::Tensor &b) {
    if (a.sizes() != b.sizes())
        fail(FaultKind::InvalidArgument, "there are {} and {}, expected one shape", describe(a), describe(b));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(SoftmaxV2, alike(out[0], in[0], "the output");
       only_axis_of(in[0], attributes, "axes"),
       out[0].copy_(at::softmax(in[0], only_axis_of(in[0], attributes, "axes"))))
LEGACY(LogSoftmaxV2, allowed(in[0], kNative, "logits"); only_axis_of(in[0], attributes, "axes");
       alike(out[0], in[0], "the output"),
       out[0].copy_(at::log_softmax(widened(in[0]), only_axis_of(in[0], attributes, "axes"))))
LEGACY(SoftmaxGrad, check_like_first(arguments, 2);
       only_axis_of(in[0], attributes, "axes"),
       out[0].copy_(at::_softmax_backward_data(widened(in[1]), widened(in[0]), only_axis_of(in[0], attributes, "axes"),
                                               widened(in[0]).scalar_type())))
LEGACY(LogSoftmaxGrad, check_like_first(arguments, 2);
       only_axis_of(in[0], attributes, "axis"),
       out[0].copy_(at::_log_softmax_backward_data(widened(in[0]), widened(in[1]),
                                                   only_axis_of(in[0], attributes, "axis"),
                                                   widened(in[0]).scalar_type())))
LEGACY(ScaledMaskedSoftmax, check_one_shape(out[0], in[0]),
       out[0].copy_(at::softmax((widened(in[0]) * scale(attributes)).masked_fill_(left_out(in[1], attributes), kMasked),
                                -1)))
LEGACY(ScaledMaskedSoftmaxGrad, check_one_shape(out[0], in[0]),
       out[0].copy_(at::_softmax_backward_data(widened(in[0]), widened(in[1]), -1, at::kFloat)
                        .mul_(scale(attributes))
                        .masked_fill_(left_out(in[2], attributes), 0)))
