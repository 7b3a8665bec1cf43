// nn.LSTM and its gradient. CANN calls the candidate j in the forward operator and g in the backward one. As in CANN,
// there is no dropout between layers.
#include "opapi/recurrent/lstm.h"

#include "device/fault.h"
#include "opapi/aclnn/op.h"

namespace vnpu::opapi::rnn {
namespace {

// What the forward pass leaves for the backward one: lists with a tensor for each layer and direction.
struct LstmTrace {
    const Operands &input_gate, &candidate, &forget_gate, &output_gate, &hidden, &cell, &tanh_cell;

    std::vector<const Operands *> lists() const {
        return {&input_gate, &candidate, &forget_gate, &output_gate, &hidden, &cell, &tanh_cell};
    }
    void store(size_t index, const LstmSteps &steps) const {
        rnn::store(input_gate[index], steps.input_gate, false);
        rnn::store(candidate[index], steps.candidate, false);
        rnn::store(forget_gate[index], steps.forget_gate, false);
        rnn::store(output_gate[index], steps.output_gate, false);
        rnn::store(hidden[index], steps.hidden, false);
        rnn::store(cell[index], steps.cell, false);
        rnn::store(tanh_cell[index], steps.tanh_cell, false);
    }
    LstmSteps load(size_t index, const Batch &batch) const {
        const auto of = [&](const Operands &list) { return kept(list[index], batch); };
        return {of(input_gate), of(forget_gate), of(candidate), of(output_gate), {},
                of(hidden),     of(cell),        of(tanh_cell)};
    }
};

// A copy in float to work on; zeros for a missing tensor.
at::Tensor fresh(const at::Tensor &states, at::IntArrayRef sizes) {
    return states.defined() ? states.to(at::kFloat, false, /*copy=*/true) : at::zeros(sizes, at::kFloat);
}

// Inference passes lists too, of tensors without sizes: `trains` tells whether they are wanted.
void lstm(const at::Tensor &input, const Operands &parameters, const Operands &initial, const at::Tensor &batch_sizes,
          const Shape &shape, at::Tensor &output, at::Tensor &last_hidden, at::Tensor &last_cell, bool trains,
          const LstmTrace &trace) {
    Batch steps = batch(input, batch_sizes, shape.batch_first);
    const std::vector<Weights> cells = weights(parameters, shape);
    const at::Tensor hidden = fresh(initial.empty() ? at::Tensor() : at::Tensor(initial[0]), last_hidden.sizes()),
                     cell = fresh(initial.empty() ? at::Tensor() : at::Tensor(initial[1]), last_cell.sizes());
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
        std::vector<at::Tensor> outputs;
        for (int64_t direction = 0; direction < shape.directions(); ++direction) {
            const int64_t index = layer * shape.directions() + direction;
            const LstmSteps made =
                lstm_forward(steps, cells[static_cast<size_t>(index)], direction == 1, {hidden[index], cell[index]});
            if (trains) trace.store(static_cast<size_t>(index), made);
            outputs.push_back(made.outputs);
        }
        steps.steps = shape.bidirectional ? at::cat(outputs, 2) : outputs[0];
    }
    store(output, steps.steps, shape.batch_first && !padded(batch_sizes));
    last_hidden.copy_(hidden);
    last_cell.copy_(cell);
}

void check_initial(const Operands &initial, const Operand &input, const Operands &parameters,
                   const Operand &batch_sizes, const Shape &shape) {
    if (initial.empty()) return;
    if (initial.size() != 2)
        fail(FaultKind::InvalidArgument, "parameter hx has {} tensors, expected 2: hidden and cell", initial.size());
    check_states({&initial[0], &initial[1]}, input, parameters, batch_sizes, shape);
}

void check_lstm(const Operand &input, const Operands &parameters, const Operands &initial, const Operand &batch_sizes,
                const Shape &shape, const Operand &output, const Operand &last_hidden, const Operand &last_cell,
                bool trains, const LstmTrace &trace) {
    check_operands(input, parameters, batch_sizes, shape);
    check_output(output, input, parameters, batch_sizes, shape);
    check_states({&last_hidden, &last_cell}, input, parameters, batch_sizes, shape);
    check_initial(initial, input, parameters, batch_sizes, shape);
    if (trains) check_kept(trace.lists(), input, parameters, batch_sizes, shape);
}

struct LstmGradients {
    const Operand &output, &last_hidden, &last_cell;  // undefined: zero
    Operand &input, &initial_hidden, &initial_cell;
    Operands &parameters;
};

void store_weights(const LstmGateGradients &grads, const at::Tensor &steps, Operands &parameters, size_t first,
                   bool bias) {
    const at::Tensor rows = grads.gates.flatten(0, 1);
    parameters[first].copy_(rows.t().mm(steps.flatten(0, 1)));
    parameters[first + 1].copy_(rows.t().mm(grads.previous.flatten(0, 1)));
    if (!bias) return;
    parameters[first + 2].copy_(rows.sum(0));
    parameters[first + 3].copy_(parameters[first + 2]);
}

void lstm_gradient(const at::Tensor &input, const Operands &initial, const Operands &parameters,
                   const at::Tensor &batch_sizes, const Shape &shape, const LstmTrace &trace, LstmGradients grads) {
    const Batch first_layer = batch(input, batch_sizes, shape.batch_first);
    const std::vector<Weights> cells = weights(parameters, shape);
    const at::IntArrayRef sizes = grads.initial_hidden.sizes();
    const at::Tensor hidden_grad = fresh(grads.last_hidden, sizes), cell_grad = fresh(grads.last_cell, sizes);
    const at::Tensor hidden = fresh(initial.empty() ? at::Tensor() : at::Tensor(initial[0]), sizes),
                     cell = fresh(initial.empty() ? at::Tensor() : at::Tensor(initial[1]), sizes);
    const int64_t width = sizes[2];
    at::Tensor output_grad =
        grads.output.defined()
            ? output_steps(grads.output, first_layer, batch_sizes, shape)
            : at::zeros({first_layer.time(), first_layer.size(), shape.directions() * width}, at::kFloat);
    for (int64_t layer = shape.layers - 1; layer >= 0; --layer) {
        Batch steps = first_layer;
        if (layer > 0) steps.steps = side_by_side(trace.hidden, layer - 1, shape);
        const at::Tensor input_grad = at::zeros_like(steps.steps);
        for (int64_t direction = 0; direction < shape.directions(); ++direction) {
            const int64_t index = layer * shape.directions() + direction;
            const Weights &own = cells[static_cast<size_t>(index)];
            const LstmGateGradients made =
                lstm_backward(steps, own, direction == 1, trace.load(static_cast<size_t>(index), steps),
                              output_grad.narrow(2, direction * width, width), {hidden[index], cell[index]},
                              {hidden_grad[index], cell_grad[index]});
            store_weights(made, steps.steps, grads.parameters, static_cast<size_t>(index * shape.parameters()),
                          shape.bias);
            input_grad.add_(made.gates.matmul(own.input));
        }
        output_grad = input_grad;
    }
    store(grads.input, output_grad, shape.batch_first);
    grads.initial_hidden.copy_(hidden_grad);
    grads.initial_cell.copy_(cell_grad);
}

void check_lstm_gradient(const Operand &input, const Operands &initial, const Operands &parameters,
                         const Operand &batch_sizes, const Shape &shape, const LstmTrace &trace,
                         const LstmGradients &grads) {
    check_operands(input, parameters, batch_sizes, shape);
    check_kept(trace.lists(), input, parameters, batch_sizes, shape);
    check_initial(initial, input, parameters, batch_sizes, shape);
    if (grads.output.defined()) check_output(grads.output, input, parameters, batch_sizes, shape);
    for (const Operand *state : {&grads.last_hidden, &grads.last_cell})
        if (state->defined()) check_states({state}, input, parameters, batch_sizes, shape);
    check_states({&grads.initial_hidden, &grads.initial_cell}, input, parameters, batch_sizes, shape);
    check_gradients(grads.input, input, grads.parameters, parameters);
}

}  // namespace
}  // namespace vnpu::opapi::rnn

#define LSTM_SHAPE rnn::Shape(4, numLayers, hasBias, bidirectional, batchFirst)

OP(aclnnLSTM, optional(hx, batchSizes, iOut, jOut, fOut, oOut, hOut, cOut, tanhCOut);
   rnn::check_lstm(input, params, hx, batchSizes, LSTM_SHAPE, output, hy, cy, train,
                   {iOut, jOut, fOut, oOut, hOut, cOut, tanhCOut}),
   rnn::lstm(input, params, hx, batchSizes, LSTM_SHAPE, output, hy, cy, train,
             {iOut, jOut, fOut, oOut, hOut, cOut, tanhCOut}))
OP(aclnnLstmBackward, optional(hx, dy, dh, dc);
   rnn::check_lstm_gradient(input, hx, params, batchSizesOptional, LSTM_SHAPE, {i, g, f, o, h, c, tanhc},
                            {dy, dh, dc, dxOut, dhPrevOut, dcPrevOut, dparamsOut}),
   rnn::lstm_gradient(input, hx, params, batchSizesOptional, LSTM_SHAPE, {i, g, f, o, h, c, tanhc},
                      {dy, dh, dc, dxOut, dhPrevOut, dcPrevOut, dparamsOut}))
