#include "opapi/recurrent/lstm.h"

namespace vnpu::opapi::rnn {

LstmSteps lstm_forward(const Batch &batch, const Weights &weights, bool backwards, LstmStates states) {
    const int64_t time = batch.time(), width = weights.hidden.size(1);
    const at::Tensor bias = weights.input_bias.defined() ? weights.input_bias + weights.hidden_bias : at::Tensor();
    const at::Tensor gates = at::linear(batch.steps, weights.input, bias);  // activated in place
    const std::vector<at::Tensor> gate = gates.chunk(4, 2);
    const auto zeros = [&] { return at::zeros({time, batch.size(), width}, at::kFloat); };
    LstmSteps steps{gate[0], gate[1], gate[2], gate[3], zeros(), zeros(), zeros(), zeros()};
    for (const int64_t t : visits(time, backwards)) {
        const int64_t running = batch.running[static_cast<size_t>(t)];
        const auto now = [&](const at::Tensor &tensor) { return tensor[t].narrow(0, 0, running); };
        at::Tensor h = states.hidden.narrow(0, 0, running), c = states.cell.narrow(0, 0, running);
        now(gates).addmm_(h, weights.hidden.t());
        const at::Tensor candidate = now(steps.candidate).tanh_(), tanh_cell = now(steps.tanh_cell);
        for (const at::Tensor *sigmoid : {&steps.input_gate, &steps.forget_gate, &steps.output_gate})
            now(*sigmoid).sigmoid_();
        c.mul_(now(steps.forget_gate)).addcmul_(now(steps.input_gate), candidate);
        tanh_cell.copy_(c.tanh());
        at::mul_out(h, now(steps.output_gate), tanh_cell);
        now(steps.outputs).copy_(h);
        steps.hidden[t].copy_(states.hidden);
        steps.cell[t].copy_(states.cell);
    }
    return steps;
}

LstmGateGradients lstm_backward(const Batch &batch, const Weights &weights, bool backwards, const LstmSteps &steps,
                                const at::Tensor &output_grad, const LstmStates &initial, LstmStates grads) {
    const int64_t time = batch.time(), width = weights.hidden.size(1);
    LstmGateGradients result{at::zeros({time, batch.size(), 4 * width}, at::kFloat),
                             at::zeros({time, batch.size(), width}, at::kFloat)};
    for (const int64_t t : visits(time, !backwards)) {
        const int64_t running = batch.running[static_cast<size_t>(t)], before = backwards ? t + 1 : t - 1;
        const bool first = before < 0 || before == time;
        const auto now = [&](const at::Tensor &tensor) { return tensor[t].narrow(0, 0, running); };
        const at::Tensor previous_cell = (first ? initial.cell : steps.cell[before]).narrow(0, 0, running);
        now(result.previous).copy_((first ? initial.hidden : steps.hidden[before]).narrow(0, 0, running));
        at::Tensor dh = grads.hidden.narrow(0, 0, running), dc = grads.cell.narrow(0, 0, running);
        dh.add_(now(output_grad));
        const std::vector<at::Tensor> gate = now(result.gates).chunk(4, 1);
        gate[3].copy_(at::sigmoid_backward(dh * now(steps.tanh_cell), now(steps.output_gate)));
        dc.add_(at::tanh_backward(dh * now(steps.output_gate), now(steps.tanh_cell)));
        gate[0].copy_(at::sigmoid_backward(dc * now(steps.candidate), now(steps.input_gate)));
        gate[1].copy_(at::sigmoid_backward(dc * previous_cell, now(steps.forget_gate)));
        gate[2].copy_(at::tanh_backward(dc * now(steps.input_gate), now(steps.candidate)));
        dc.mul_(now(steps.forget_gate));
        dh.copy_(now(result.gates).mm(weights.hidden));
    }
    return result;
}

}  // namespace vnpu::opapi::rnn
