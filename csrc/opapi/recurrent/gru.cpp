// nn.GRU and its gradient. Gate order in parameters is torch's: reset, update, new.
#include "opapi/recurrent/gru.h"

#include "opapi/aclnn/op.h"

namespace vnpu::opapi::rnn {
namespace {

// What the forward pass of the cells leaves; `new_hidden` is W_hn h + b_hn. Lists are empty if not wanted.
struct GruTrace {
    const Operands &reset, &update, &fresh, &new_hidden, &hidden;
};

void keep(const GruTrace &trace, int64_t index, const GruSteps &steps) {
    const auto i = static_cast<size_t>(index);
    store(trace.reset[i], steps.reset, false);
    store(trace.update[i], steps.update, false);
    store(trace.fresh[i], steps.fresh, false);
    store(trace.new_hidden[i], steps.new_hidden, false);
    store(trace.hidden[i], steps.hidden, false);
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
            const GruSteps made = gru_forward(steps, w, direction == 1, h);
            if (trains) keep(trace, cell, made);
            outputs.push_back(made.outputs);
            last_hidden[cell].copy_(h);
        }
        steps.steps = shape.bidirectional ? at::cat(outputs, 2) : outputs[0];
    }
    store(output, steps.steps, shape.batch_first && !padded(batch_sizes));
}

void check_gru(const Operand &input, const Operands &parameters, const Operand &initial, const Operand &batch_sizes,
               const Shape &shape, const Operand &output, const Operand &last_hidden, bool trains,
               const GruTrace &trace) {
    check_operands(input, parameters, batch_sizes, shape);
    check_output(output, input, parameters, batch_sizes, shape);
    check_states({&last_hidden}, input, parameters, batch_sizes, shape);
    if (initial.defined()) check_states({&initial}, input, parameters, batch_sizes, shape);
    if (trains)
        check_kept({&trace.reset, &trace.update, &trace.fresh, &trace.new_hidden, &trace.hidden}, input, parameters,
                   batch_sizes, shape);
}

// --- gradient ------------------------------------------------------------------------------------------------

struct ModuleGradients {
    const at::Tensor &output, &last_hidden;
    at::Tensor &input, &initial_hidden;
    Operands &parameters;
};

void module_backward(const at::Tensor &input, const Operands &parameters, const at::Tensor &initial,
                     const at::Tensor &batch_sizes, const Shape &shape, const GruTrace &trace,
                     ModuleGradients gradients) {
    const Batch first_layer = batch(input, batch_sizes, shape.batch_first);
    const std::vector<Weights> cells = weights(parameters, shape);
    const int64_t width = cells[0].hidden.size(1);
    const at::Tensor hidden_grad = gradients.last_hidden.to(at::kFloat, false, /*copy=*/true);
    const at::Tensor first_hidden = initial.defined() ? initial : at::zeros_like(hidden_grad);
    at::Tensor output_grad = output_steps(gradients.output, first_layer, batch_sizes, shape);
    for (int64_t layer = shape.layers - 1; layer >= 0; --layer) {
        Batch steps = first_layer;
        if (layer > 0) steps.steps = side_by_side(trace.hidden, layer - 1, shape);
        at::Tensor input_grad = at::zeros_like(steps.steps);
        for (int64_t direction = 0; direction < shape.directions(); ++direction) {
            const int64_t cell = layer * shape.directions() + direction;
            const auto of_cell = [&](const Operands &list) {
                return kept(list[static_cast<size_t>(cell)], first_layer);
            };
            const GruSteps made{
                of_cell(trace.reset), of_cell(trace.update), of_cell(trace.fresh), of_cell(trace.new_hidden), {},
                of_cell(trace.hidden)};
            const GruGradients cell_grads =
                gru_backward(steps, cells[static_cast<size_t>(cell)], direction == 1, made,
                             output_grad.narrow(2, direction * width, width), first_hidden[cell], hidden_grad[cell]);
            input_grad.add_(cell_grads.input);
            const at::Tensor *of_parameters[] = {&cell_grads.weight_ih, &cell_grads.weight_hh, &cell_grads.input_bias,
                                                 &cell_grads.hidden_bias};
            for (int64_t i = 0; i < shape.parameters(); ++i)
                gradients.parameters[static_cast<size_t>(cell * shape.parameters() + i)].copy_(*of_parameters[i]);
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
    check_operands(input, parameters, batch_sizes, shape);
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
   rnn::module_backward(input, params, hx, batchSizes, GRU_SHAPE, {r, z, n, hn, h},
                        {dy, dh, dxOut, dhPrevOut, dparamsOut}))
