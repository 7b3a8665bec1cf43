// Softmax and its logarithm.
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

void check_forward(const Operand &self, int64_t dim, const Operand &out) {
    floating(self);
    floating(out);
    dimension(dim, self);
    same_shape(out, self);
}

void check_backward(const Operand &grad_output, const Operand &output, int64_t dim, const Operand &out) {
    floating(grad_output);
    floating(output);
    dimension(dim, output);
    floating(out);
    same_dtype(grad_output, output);
    same_shape(grad_output, output);
    same_shape(out, output);
    // ATen's kernel narrows to fp16 and bf16 alone.
    if (output.scalar_type() == at::kDouble || out.scalar_type() == at::kDouble) same_dtype(out, output);
}

// The dtype it is computed in: softmax(fp16 -> fp32) is not softmax(fp16) widened.
at::Tensor as_output(const at::Tensor &self, const at::Tensor &out) { return self.to(out.scalar_type()); }

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnSoftmax, check_forward(self, dim, out), at::_softmax_out(out, as_output(self, out), dim, false))
// ATen rounds the logarithm of the sum to the dtype before it subtracts it, and likely classes lose their digits.
OP(aclnnLogSoftmax, check_forward(self, dim, out),
   rounded(out, [&](at::Tensor &target) { at::_log_softmax_out(target, widened(as_output(self, out)), dim, false); }))
OP(aclnnSoftmaxBackward, check_backward(gradOutput, output, dim, out), rounded(out, [&](at::Tensor &target) {
       at::_softmax_backward_data_out(target, widened(gradOutput), widened(output), dim, target.scalar_type());
   }))
OP(aclnnLogSoftmaxBackward, check_backward(gradOutput, output, dim, out), rounded(out, [&](at::Tensor &target) {
       at::_log_softmax_backward_data_out(target, widened(gradOutput), widened(output), dim, target.scalar_type());
   }))
