// Softmax of masked scores over the last dimension, in fp32 and rounded once.
#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

constexpr double kMasked = -10000;  // what the kernel puts in a masked score's place

void check_masked(const Operand &x, const Operand &mask, const Operand &y) {
    rank(x, {4});
    network(x);
    dtype(mask, {at::kBool});
    rank(mask, {4});
    expands(x, mask);
    same_shape(y, x);
    network(y);
}

// The upper triangle where it is fixed; `mask` is not looked at then.
at::Tensor left_out(const at::Tensor &mask, bool triangle) {
    return triangle ? at::ones(mask.sizes(), at::kBool).triu(1) : mask;
}

void check_relative(const Operand &x, const Operand &mask, const Operand &bias, const Operand &y) {
    rank(x, {4, 5});
    network(x, bias, y);
    same_shape(y, x);
    expands(x, bias);
    if (!mask.defined()) return;
    network(mask);
    expands(x, mask);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnScaledMaskedSoftmax, check_masked(x, mask, y),
   y.copy_(at::softmax((widened(x) * scale).masked_fill_(left_out(mask, fixedTriuMask), kMasked), -1)))
OP(aclnnScaledMaskedSoftmaxBackward, check_masked(gradOutput, mask, out); same_shape(y, gradOutput);
   network(y), out.copy_(at::_softmax_backward_data(widened(gradOutput), widened(y), -1, at::kFloat)
                             .mul_(scale)
                             .masked_fill_(left_out(mask, fixTriuMask), 0)))
OP(aclnnMaskedSoftmaxWithRelPosBias, check_relative(x, attenMaskOptional, relativePosBias, out),
   at::Tensor value = widened(x) * scaleValue;
   if (attenMaskOptional.defined()) value = value + widened(attenMaskOptional);
   out.copy_(at::softmax(value + widened(relativePosBias), -1)))
