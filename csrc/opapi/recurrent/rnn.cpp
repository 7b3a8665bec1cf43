#include "opapi/recurrent/rnn.h"

#include <algorithm>
#include <numeric>

#include "device/fault.h"

namespace vnpu::opapi::rnn {
namespace {

struct Extent {
    int64_t time, batch;
};

// CANN knows two forms: [time, batch, width] (or batch first), and rows of a padded batch.
Extent extent(const Operand &input, const Operand &batch_sizes, const Shape &shape) {
    if (!padded(batch_sizes)) {
        rank(input, {3});
        return {input.size(shape.batch_first ? 1 : 0), input.size(shape.batch_first ? 0 : 1)};
    }
    rank(input, {2});
    rank(batch_sizes, {1});
    dtype(batch_sizes, at::kLong);
    const int64_t time = batch_sizes.size(0);
    if (time == 0 || input.size(0) % time != 0)
        fail(FaultKind::InvalidArgument, "parameter {} has {} rows, not a multiple of the {} steps of {}",
             input.parameter(), input.size(0), time, batch_sizes.parameter());
    return {time, input.size(0) / time};
}

int64_t hidden_size(const Operands &parameters, const Shape &shape) { return parameters.front().size(0) / shape.gates; }

}  // namespace

std::vector<int64_t> visits(int64_t time, bool backwards) {
    std::vector<int64_t> steps(static_cast<size_t>(time));
    std::iota(steps.begin(), steps.end(), 0);
    if (backwards) std::ranges::reverse(steps);
    return steps;
}

Batch batch(const at::Tensor &input, const at::Tensor &batch_sizes, bool batch_first) {
    if (padded(batch_sizes)) {
        const int64_t time = batch_sizes.size(0);
        const at::Tensor counts = batch_sizes.contiguous();
        const int64_t *first = counts.const_data_ptr<int64_t>();
        return {input.unflatten(0, {time, input.size(0) / time}).to(at::kFloat), {first, first + time}};
    }
    const at::Tensor steps = batch_first ? input.transpose(0, 1) : input;
    return {steps.to(at::kFloat), std::vector<int64_t>(static_cast<size_t>(steps.size(0)), steps.size(1))};
}

void store(const at::Tensor &like, const at::Tensor &steps, bool batch_first) {
    like.copy_(like.dim() == 2 ? steps.flatten(0, 1) : batch_first ? steps.transpose(0, 1) : steps);
}

std::vector<Weights> weights(const Operands &parameters, const Shape &shape) {
    std::vector<Weights> cells;
    for (size_t i = 0; i < parameters.size(); i += static_cast<size_t>(shape.parameters())) {
        Weights cell{parameters[i].to(at::kFloat), parameters[i + 1].to(at::kFloat), {}, {}};
        if (shape.bias) {
            cell.input_bias = parameters[i + 2].to(at::kFloat);
            cell.hidden_bias = parameters[i + 3].to(at::kFloat);
        }
        cells.push_back(cell);
    }
    return cells;
}

at::Tensor kept(const at::Tensor &steps, const Batch &batch) {
    const at::Tensor wide = steps.to(at::kFloat);
    return wide.dim() == 3 ? wide : wide.unflatten(0, {batch.time(), batch.size()});
}

at::Tensor output_steps(const at::Tensor &output, const Batch &batch, const at::Tensor &batch_sizes,
                        const Shape &shape) {
    return kept(shape.batch_first && !padded(batch_sizes) ? output.transpose(0, 1) : output, batch);
}

at::Tensor side_by_side(const Operands &outputs, int64_t layer, const Shape &shape) {
    const size_t first = static_cast<size_t>(layer * shape.directions());
    const at::Tensor forwards = outputs[first].to(at::kFloat);
    return shape.bidirectional ? at::cat({forwards, outputs[first + 1].to(at::kFloat)}, 2) : forwards;
}

void check_operands(const Operand &input, const Operands &parameters, const Operand &batch_sizes, const Shape &shape) {
    dtype(input, {at::kFloat, at::kHalf});
    extent(input, batch_sizes, shape);
    if (shape.layers < 1)
        fail(FaultKind::InvalidArgument, "parameter numLayers is {}, it must be positive", shape.layers);
    const int64_t expected = shape.cells() * shape.parameters();
    if (static_cast<int64_t>(parameters.size()) != expected)
        fail(FaultKind::InvalidArgument, "parameter {} has {} tensors, expected {}: {} for each layer and direction",
             parameters.parameter(), parameters.size(), expected, shape.parameters());
    for (const Operand &parameter : parameters) same_dtype(parameter, input);
    rank(parameters.front(), {2});
    const int64_t hidden = hidden_size(parameters, shape), rows = shape.gates * hidden;
    for (int64_t cell = 0; cell < shape.cells(); ++cell) {
        const Operand *of_cell = &parameters[static_cast<size_t>(cell * shape.parameters())];
        const bool first_layer = cell < shape.directions();
        vnpu::opapi::shape(of_cell[0], {rows, first_layer ? input.size(-1) : shape.directions() * hidden});
        vnpu::opapi::shape(of_cell[1], {rows, hidden});
        for (int64_t bias = 2; bias < shape.parameters(); ++bias) vnpu::opapi::shape(of_cell[bias], {rows});
    }
}

void check_states(const std::vector<const Operand *> &states, const Operand &input, const Operands &parameters,
                  const Operand &batch_sizes, const Shape &shape) {
    for (const Operand *state : states) {
        same_dtype(*state, input);
        vnpu::opapi::shape(*state,
                           {shape.cells(), extent(input, batch_sizes, shape).batch, hidden_size(parameters, shape)});
    }
}

void check_kept(const std::vector<const Operands *> &lists, const Operand &input, const Operands &parameters,
                const Operand &batch_sizes, const Shape &shape) {
    const Extent size = extent(input, batch_sizes, shape);
    for (const Operands *list : lists) {
        if (static_cast<int64_t>(list->size()) != shape.cells())
            fail(FaultKind::InvalidArgument,
                 "parameter {} has {} tensors, expected {}, one for each layer and direction", list->parameter(),
                 list->size(), shape.cells());
        for (const Operand &tensor : *list) {
            same_dtype(tensor, input);
            const int64_t hidden = hidden_size(parameters, shape);
            if (tensor.dim() == 2)
                vnpu::opapi::shape(tensor, {size.time * size.batch, hidden});
            else
                vnpu::opapi::shape(tensor, {size.time, size.batch, hidden});
        }
    }
}

void check_output(const Operand &output, const Operand &input, const Operands &parameters, const Operand &batch_sizes,
                  const Shape &shape) {
    const Extent size = extent(input, batch_sizes, shape);
    const int64_t width = shape.directions() * hidden_size(parameters, shape);
    same_dtype(output, input);
    if (output.dim() == 2)
        vnpu::opapi::shape(output, {size.time * size.batch, width});
    else if (shape.batch_first && !padded(batch_sizes))
        vnpu::opapi::shape(output, {size.batch, size.time, width});
    else
        vnpu::opapi::shape(output, {size.time, size.batch, width});
}

void check_gradients(const Operand &input_grad, const Operand &input, const Operands &parameter_grads,
                     const Operands &parameters) {
    same_shape(input_grad, input);
    same_length(parameter_grads, parameters);
    for (size_t i = 0; i < parameters.size(); ++i) same_shape(parameter_grads[i], parameters[i]);
}

}  // namespace vnpu::opapi::rnn
