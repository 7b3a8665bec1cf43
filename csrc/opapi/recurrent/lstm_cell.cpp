// nn.LSTMCell, whose matrix products torch_npu computes before, and its gradient. Gate order is torch's: input, forget,
// candidate, output. What lies between the two, `storage`, are the activated gates.
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

void check_cell(const Operand &gates, const Operand &cell) {
    dtype(gates, {at::kFloat, at::kHalf});
    rank(gates, {2});
    same_dtype(cell, gates);
    rank(cell, {2});
    shape(gates, {cell.size(0), 4 * cell.size(1)});
}

void check_forward(const Operand &gates, const Operand &hidden_gates, const Operand &cell,
                   const std::vector<const Operand *> &biases, const Operand &hidden_out, const Operand &cell_out,
                   const Operand &storage) {
    check_cell(gates, cell);
    for (const Operand *like : {&hidden_gates, &storage}) same_shape(*like, gates);
    for (const Operand *bias : biases)
        if (bias->defined()) shape(*bias, {gates.size(1)});
    for (const Operand *like : {&hidden_out, &cell_out}) same_shape(*like, cell);
}

void forward(const at::Tensor &gates, const at::Tensor &hidden_gates, const at::Tensor &cell,
             const std::vector<at::Tensor> &biases, at::Tensor &hidden_out, at::Tensor &cell_out, at::Tensor &storage) {
    at::Tensor sum = widened(gates) + widened(hidden_gates);
    for (const at::Tensor &bias : biases)
        if (bias.defined()) sum.add_(widened(bias));
    const std::vector<at::Tensor> gate = sum.chunk(4, 1);
    for (const int index : {0, 1, 3}) gate[static_cast<size_t>(index)].sigmoid_();
    gate[2].tanh_();
    const at::Tensor next = (gate[1] * widened(cell)).addcmul_(gate[0], gate[2]);
    cell_out.copy_(next);
    hidden_out.copy_(gate[3] * next.tanh());
    storage.copy_(sum);
}

void check_backward(const std::vector<const Operand *> &grads, const Operand &cell, const Operand &next_cell,
                    const Operand &storage, const Operand &gates_grad, const Operand &cell_grad, bool has_bias,
                    const Operand &bias_grad) {
    check_cell(storage, cell);
    for (const Operand *grad : grads)
        if (grad->defined()) same_shape(*grad, cell);
    for (const Operand *like : {&next_cell, &cell_grad}) same_shape(*like, cell);
    same_shape(gates_grad, storage);
    if (has_bias) shape(bias_grad, {storage.size(1)});
}

void backward(const at::Tensor &hidden_grad, const at::Tensor &next_grad, const at::Tensor &cell,
              const at::Tensor &next_cell, const at::Tensor &storage, bool has_bias, at::Tensor &gates_grad,
              at::Tensor &cell_grad, at::Tensor &bias_grad) {
    const std::vector<at::Tensor> gate = widened(storage).chunk(4, 1);
    const at::Tensor tanh_cell = widened(next_cell).tanh();
    const at::Tensor dh = hidden_grad.defined() ? widened(hidden_grad) : at::zeros_like(tanh_cell);
    at::Tensor dc = at::tanh_backward(dh * gate[3], tanh_cell);
    if (next_grad.defined()) dc.add_(widened(next_grad));
    const at::Tensor grads =
        at::cat({at::sigmoid_backward(dc * gate[2], gate[0]), at::sigmoid_backward(dc * widened(cell), gate[1]),
                 at::tanh_backward(dc * gate[0], gate[2]), at::sigmoid_backward(dh * tanh_cell, gate[3])},
                1);
    gates_grad.copy_(grads);
    cell_grad.copy_(dc * gate[1]);
    if (has_bias) bias_grad.copy_(grads.sum(0));
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnThnnFusedLstmCell,
   check_forward(inputGates, hiddenGates, cx, {&inputBiasOptional, &hiddenBiasOptional}, hyOut, cyOut, storageOut),
   forward(inputGates, hiddenGates, cx, {inputBiasOptional, hiddenBiasOptional}, hyOut, cyOut, storageOut))
OP(aclnnThnnFusedLstmCellBackward, optional(gradBiasOut);
   check_backward({&gradHyOptional, &gradCOptional}, cx, cy, storage, gradGatesOut, gradCxOut, hasBias, gradBiasOut),
   backward(gradHyOptional, gradCOptional, cx, cy, storage, hasBias, gradGatesOut, gradCxOut, gradBiasOut))
