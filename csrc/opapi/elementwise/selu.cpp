// Functions of one tensor that MindSpore calls and torch_npu composes of others.
#include "aclnn_mindspore.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

constexpr double kAlpha = 1.6732632423543772848170429916717, kScale = 1.0507009873554804934193349852946;

// By the result, which is above 0 where x was.
at::Tensor selu_slope(const at::Tensor &result) {
    return at::where(result > 0, at::full_like(result, kScale), result + kScale * kAlpha);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnSelu, same_shape(out, self); same_dtype(out, self), out.copy_(at::selu(widened(self))))
OP(aclnnSeluBackward, same_shape(gradInput, result); same_shape(gradOutput, result);
   same_dtype(gradInput, result), gradInput.copy_(widened(gradOutput) * selu_slope(widened(result))))
OP(aclnnIsInf, same_shape(out, self); dtype(out, {at::kBool}), out.copy_(at::isinf(self)))
// Of MindSpore's own operators, which it brings for the AI Core: whether any element is infinite or not a number.
OP(aclnnAllFinite, one_element(out); dtype(gradient, {at::kHalf, at::kBFloat16, at::kFloat});
   dtype(out, {at::kBool}), out.fill_(at::logical_not(at::isfinite(gradient).all())))
