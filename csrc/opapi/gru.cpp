// nn.GRU and its gradient. Gate order in parameters is torch's: reset, update, new.
#include "opapi/op.h"
#include "opapi/rnn.h"

namespace vnpu::opapi::rnn {
namespace {

// What the forward pass of the cells leaves; `new_hidden` is W_hn h + b_hn. Lists are empty if not wanted.
struct GruTrace {
    const Operands &reset, &update, &fresh, &new_hidden, &hidden;
};

at::Tensor gru_cell(const Batch &batch, const Weights &w, bool backwards, at::Tensor hidden, int64_t index, bool trains,
                    const GruTrace &trace) {
    const int64_t time = batch.time(), width = w.hidden.size(1);
    at::Tensor gates = at::linear(batch.steps, w.input, w.input_bias);  // activated in place
    at::Tensor outputs = at::zeros({time, batch.size(), width}, at::kFloat);
    at::Tensor hiddens = at::empty_like(outputs), new_hiddens = at::zeros_like(outputs);
    for (const int64_t t : visits(time, backwards)) {
        const int64_t running = batch.running[static_cast<size_t>(t)];
        at::Tensor h = hidden.narrow(0, 0, running);
        const std::vector<at::Tensor> gate = gates[t].narrow(0, 0, running).chunk(3, 1);
        const std::vector<at::Tensor> own = at::linear(h, w.hidden, w.hidden_bias).chunk(3, 1);
        const at::Tensor &reset = gate[0], &update = gate[1], &fresh = gate[2];
        reset.add_(own[0]).sigmoid_();
        update.add_(own[1]).sigmoid_();
        fresh.addcmul_(reset, own[2]).tanh_();
        h.sub_(fresh).mul_(update).add_(fresh);
        outputs[t].narrow(0, 0, running).copy_(h);
        hiddens[t].copy_(hidden);
        new_hiddens[t].narrow(0, 0, running).copy_(own[2]);
    }
    if (trains) {
        const std::vector<at::Tensor> gate = gates.chunk(3, 2);
        const size_t i = static_cast<size_t>(index);
        store(trace.reset[i], gate[0], false);
        store(trace.update[i], gate[1], false);
        store(trace.fresh[i], gate[2], false);
        store(trace.new_hidden[i], new_hiddens, false);
        store(trace.hidden[i], hiddens, false);
    }
    return outputs;
}

void gru(const at::Tensor &input, const Operands &parameters, const at::Tensor &initial, const at::Tensor &batch_sizes,
         const Shape &shape, at::Tensor &output, at::Tensor &last_hidden, bool trains, const GruTrace &trace) {
    Batch steps = batch(input, batch_sizes, shape.batch_first);
    const std::vector<Weights> cells = weights(parameters, shape);
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
        std::vector<at::Tensor> outputs;
        for (int64_t direction = 0; direction < shape.directions(); ++direction) {
            const int64_t cell = layer * shape.directions() + direction;
            const Weights &w = cells[static_cast<size_t>(cell)];
            const at::Tensor h = initial.defined() ? initial[cell].to(at::kFloat, false, /*copy=*/true)
                                                   : at::zeros({steps.size(), w.hidden.size(1)}, at::kFloat);
            outputs.push_back(gru_cell(steps, w, direction == 1, h, cell, trains, trace));
            last_hidden[cell].copy_(h);
        }
        steps.steps = shape.bidirectional ? at::cat(outputs, 2) : outputs[0];
    }
    store(output, steps.steps, shape.batch_first);
}

void check_gru(const Operand &input, const Operands &parameters, const Operand &initial, const Operand &batch_sizes,
               const Shape &shape, const Operand &output, const Operand &last_hidden, bool trains,
               const GruTrace &trace) {
    check(input, parameters, batch_sizes, shape);
    check_output(output, input, parameters, batch_sizes, shape);
    check_states({&last_hidden}, input, parameters, batch_sizes, shape);
    if (initial.defined()) check_states({&initial}, input, parameters, batch_sizes, shape);
    if (trains)
        check_kept({&trace.reset, &trace.update, &trace.fresh, &trace.new_hidden, &trace.hidden}, input, parameters,
                   batch_sizes, shape);
}

// --- gradient ------------------------------------------------------------------------------------------------

struct GruGradients {
    const at::Tensor &output, &last_hidden;
    at::Tensor &input, &initial_hidden;
    Operands &parameters;
};

// The gradient of one layer in one direction: of its input. `hidden_grad` is that of the final state, then of the
// initial one.
at::Tensor gru_cell_backward(const Batch &batch, const Weights &w, bool backwards, const at::Tensor &output_grad,
                             at::Tensor hidden_grad, const at::Tensor &first_hidden, int64_t index,
                             const GruTrace &trace, Operands &parameters, int64_t first_parameter) {
    const int64_t time = batch.time();
    const auto steps_of = [&](const Operands &list) { return kept(list[static_cast<size_t>(index)], batch); };
    const at::Tensor reset = steps_of(trace.reset), update = steps_of(trace.update), fresh = steps_of(trace.fresh),
                     new_hidden = steps_of(trace.new_hidden), hidden = steps_of(trace.hidden);
    const int64_t width = hidden.size(2);
    at::Tensor input_gates = at::zeros({time, batch.size(), 3 * width}, at::kFloat);
    at::Tensor hidden_gates = at::zeros_like(input_gates);
    at::Tensor previous_hidden = at::zeros({time, batch.size(), width}, at::kFloat);
    for (const int64_t t : visits(time, !backwards)) {
        const int64_t n = batch.running[static_cast<size_t>(t)], before = backwards ? t + 1 : t - 1;
        const bool first = before < 0 || before == time;
        const auto now = [&](const at::Tensor &steps) { return steps[t].narrow(0, 0, n); };
        at::Tensor h_before = now(previous_hidden);
        h_before.copy_((first ? first_hidden : hidden[before]).narrow(0, 0, n));
        at::Tensor dh = hidden_grad.narrow(0, 0, n);
        dh.add_(now(output_grad));
        const std::vector<at::Tensor> gate = now(input_gates).chunk(3, 1);
        gate[2].copy_(at::tanh_backward(dh * (1 - now(update)), now(fresh)));
        gate[1].copy_(at::sigmoid_backward(dh * (h_before - now(fresh)), now(update)));
        gate[0].copy_(at::sigmoid_backward(gate[2] * now(new_hidden), now(reset)));
        const at::Tensor own = now(hidden_gates);
        own.copy_(now(input_gates));
        own.narrow(1, 2 * width, width).mul_(now(reset));
        dh.mul_(now(update)).addmm_(own, w.hidden);
    }
    const at::Tensor rows = input_gates.flatten(0, 1), own_rows = hidden_gates.flatten(0, 1);
    const size_t p = static_cast<size_t>(first_parameter);
    parameters[p].copy_(rows.t().mm(batch.steps.flatten(0, 1)));
    parameters[p + 1].copy_(own_rows.t().mm(previous_hidden.flatten(0, 1)));
    if (w.input_bias.defined()) {
        parameters[p + 2].copy_(rows.sum(0));
        parameters[p + 3].copy_(own_rows.sum(0));
    }
    return input_gates.matmul(w.input);
}

void gru_backward(const at::Tensor &input, const Operands &parameters, const at::Tensor &initial,
                  const at::Tensor &batch_sizes, const Shape &shape, const GruTrace &trace, GruGradients gradients) {
    const Batch first_layer = batch(input, batch_sizes, shape.batch_first);
    const std::vector<Weights> cells = weights(parameters, shape);
    const int64_t width = cells[0].hidden.size(1);
    const at::Tensor hidden_grad = gradients.last_hidden.to(at::kFloat, false, /*copy=*/true);
    const at::Tensor first_hidden = initial.defined() ? initial.to(at::kFloat) : at::zeros_like(hidden_grad);
    at::Tensor output_grad = output_steps(gradients.output, first_layer, batch_sizes, shape);
    for (int64_t layer = shape.layers - 1; layer >= 0; --layer) {
        Batch steps = first_layer;
        if (layer > 0) steps.steps = side_by_side(trace.hidden, layer - 1, shape);
        at::Tensor input_grad = at::zeros_like(steps.steps);
        for (int64_t direction = 0; direction < shape.directions(); ++direction) {
            const int64_t cell = layer * shape.directions() + direction;
            input_grad.add_(gru_cell_backward(steps, cells[static_cast<size_t>(cell)], direction == 1,
                                              output_grad.narrow(2, direction * width, width), hidden_grad[cell],
                                              first_hidden[cell], cell, trace, gradients.parameters,
                                              cell * shape.parameters()));
        }
        output_grad = input_grad;
    }
    store(gradients.input, output_grad, shape.batch_first);
    gradients.initial_hidden.copy_(hidden_grad);
}

void check_gru_backward(const Operand &input, const Operands &parameters, const Operand &initial,
                        const Operand &batch_sizes, const Shape &shape, const GruTrace &trace,
                        const Operand &output_grad, const Operand &last_grad, const Operand &input_grad,
                        const Operand &initial_grad, const Operands &parameter_grads) {
    check(input, parameters, batch_sizes, shape);
    check_kept({&trace.reset, &trace.update, &trace.fresh, &trace.new_hidden, &trace.hidden}, input, parameters,
               batch_sizes, shape);
    if (initial.defined()) check_states({&initial}, input, parameters, batch_sizes, shape);
    check_output(output_grad, input, parameters, batch_sizes, shape);
    check_states({&last_grad, &initial_grad}, input, parameters, batch_sizes, shape);
    check_gradients(input_grad, input, parameter_grads, parameters);
}

}  // namespace
}  // namespace vnpu::opapi::rnn

#define GRU_SHAPE rnn::Shape(3, numLayers, hasBias, bidirection, batchFirst)

OP(aclnnGRU, optional(hx, batchSizes, rOut, zOut, nOut, hnOut, hOut);
   rnn::check_gru(input, params, hx, batchSizes, GRU_SHAPE, output, hy, train, {rOut, zOut, nOut, hnOut, hOut}),
   rnn::gru(input, params, hx, batchSizes, GRU_SHAPE, output, hy, train, {rOut, zOut, nOut, hnOut, hOut}))

OP(aclnnGRUBackward, optional(hx, batchSizes);
   rnn::check_gru_backward(input, params, hx, batchSizes, GRU_SHAPE, {r, z, n, hn, h}, dy, dh, dxOut, dhPrevOut,
                           dparamsOut),
   rnn::gru_backward(input, params, hx, batchSizes, GRU_SHAPE, {r, z, n, hn, h},
                     {dy, dh, dxOut, dhPrevOut, dparamsOut}))
