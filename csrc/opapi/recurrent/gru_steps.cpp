#include "opapi/recurrent/gru.h"

namespace vnpu::opapi::rnn {

GruSteps gru_forward(const Batch &batch, const Weights &w, bool backwards, at::Tensor hidden) {
    const at::Tensor gates = at::linear(batch.steps, w.input, w.input_bias);  // activated in place
    const std::vector<at::Tensor> parts = gates.chunk(3, 2);
    const auto zeros = [&] { return at::zeros({batch.time(), batch.size(), w.hidden.size(1)}, at::kFloat); };
    GruSteps steps{parts[0], parts[1], parts[2], zeros(), zeros(), zeros()};
    for (const int64_t t : visits(batch.time(), backwards)) {
        const int64_t running = batch.running[static_cast<size_t>(t)];
        const auto now = [&](const at::Tensor &tensor) { return tensor[t].narrow(0, 0, running); };
        at::Tensor h = hidden.narrow(0, 0, running);
        const std::vector<at::Tensor> own = at::linear(h, w.hidden, w.hidden_bias).chunk(3, 1);
        const at::Tensor reset = now(steps.reset).add_(own[0]).sigmoid_();
        const at::Tensor update = now(steps.update).add_(own[1]).sigmoid_();
        const at::Tensor fresh = now(steps.fresh).addcmul_(reset, own[2]).tanh_();
        h.sub_(fresh).mul_(update).add_(fresh);
        now(steps.outputs).copy_(h);
        now(steps.new_hidden).copy_(own[2]);
        steps.hidden[t].copy_(hidden);
    }
    return steps;
}

GruGradients gru_backward(const Batch &batch, const Weights &w, bool backwards, const GruSteps &steps,
                          const at::Tensor &output_grad, const at::Tensor &initial, at::Tensor hidden_grad) {
    const int64_t time = batch.time(), width = w.hidden.size(1);
    const at::Tensor input_gates = at::zeros({time, batch.size(), 3 * width}, at::kFloat);
    const at::Tensor hidden_gates = at::zeros_like(input_gates);
    const at::Tensor previous = at::zeros({time, batch.size(), width}, at::kFloat);
    for (const int64_t t : visits(time, !backwards)) {
        const int64_t running = batch.running[static_cast<size_t>(t)], before = backwards ? t + 1 : t - 1;
        const bool first = before < 0 || before == time;
        const auto now = [&](const at::Tensor &tensor) { return tensor[t].narrow(0, 0, running); };
        const at::Tensor h_before = now(previous);
        h_before.copy_((first ? initial : steps.hidden[before]).narrow(0, 0, running));
        at::Tensor dh = hidden_grad.narrow(0, 0, running);
        dh.add_(now(output_grad));
        const at::Tensor update = now(steps.update), fresh = now(steps.fresh), reset = now(steps.reset);
        const std::vector<at::Tensor> gate = now(input_gates).chunk(3, 1);
        gate[2].copy_(at::tanh_backward(dh * (1 - update), fresh));
        gate[1].copy_(at::sigmoid_backward(dh * (h_before - fresh), update));
        gate[0].copy_(at::sigmoid_backward(gate[2] * now(steps.new_hidden), reset));
        const at::Tensor own = now(hidden_gates);
        own.copy_(now(input_gates));
        own.narrow(1, 2 * width, width).mul_(reset);
        dh.mul_(update).addmm_(own, w.hidden);
    }
    const at::Tensor rows = input_gates.flatten(0, 1), own_rows = hidden_gates.flatten(0, 1);
    GruGradients made{input_gates.matmul(w.input),
                      rows.t().mm(batch.steps.flatten(0, 1)),
                      own_rows.t().mm(previous.flatten(0, 1)),
                      {},
                      {}};
    if (w.input_bias.defined()) {
        made.input_bias = rows.sum(0);
        made.hidden_bias = own_rows.sum(0);
    }
    return made;
}

}  // namespace vnpu::opapi::rnn
