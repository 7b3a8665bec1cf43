// Stacked, bidirectional recurrent layers, as torch's nn.LSTM and nn.GRU have them: what both cells share.
//
// Sequences of different lengths lie padded in [time, batch, width], longest first; `batch_sizes` counts those still
// running at each step. A sequence that has ended (or, backwards in time, not begun) keeps its state and puts out
// zeros. Everything is computed in fp32; the caller rounds once.
#pragma once

#include <string>
#include <vector>

#include "opapi/aclnn/check.h"

namespace vnpu::opapi::rnn {

// What a call asks for.
struct Shape {
    Shape(int64_t gates, int64_t layers, bool bias, bool bidirectional, bool batch_first)
        : gates(gates), layers(layers), bias(bias), bidirectional(bidirectional), batch_first(batch_first) {}
    int64_t gates;  // a weight's rows over the hidden size: 4 for LSTM, 3 for GRU
    int64_t layers;
    bool bias, bidirectional, batch_first;

    int64_t directions() const { return bidirectional ? 2 : 1; }
    int64_t cells() const { return layers * directions(); }
    int64_t parameters() const { return bias ? 4 : 2; }  // of one cell
};

// The parameters of one layer in one direction, in float.
struct Weights {
    at::Tensor input, hidden;            // [gates * hidden size, input width], [gates * hidden size, hidden size]
    at::Tensor input_bias, hidden_bias;  // undefined without bias
};

// Sequences in time order, [time, batch, width], and how many run at each step.
struct Batch {
    at::Tensor steps;
    std::vector<int64_t> running;

    int64_t time() const { return steps.size(0); }
    int64_t size() const { return steps.size(1); }
};

// Steps in the order in which a direction visits them.
std::vector<int64_t> visits(int64_t time, bool backwards);

// Autograd may make an empty tensor of a missing one.
inline bool padded(const at::Tensor &batch_sizes) { return batch_sizes.defined() && batch_sizes.numel() > 0; }

Batch batch(const at::Tensor &input, const at::Tensor &batch_sizes, bool batch_first);
// `steps` in the layout of `like`: batch first, or the rows of a padded batch.
void store(const at::Tensor &like, const at::Tensor &steps, bool batch_first);
std::vector<Weights> weights(const Operands &parameters, const Shape &shape);
// [time, batch, width] in float: of a tensor that the forward pass kept, and of the gradient of its output.
at::Tensor kept(const at::Tensor &steps, const Batch &batch);
at::Tensor output_steps(const at::Tensor &output, const Batch &batch, const at::Tensor &batch_sizes,
                        const Shape &shape);
// Both directions' outputs of a layer, side by side: the next layer's input.
at::Tensor side_by_side(const Operands &outputs, int64_t layer, const Shape &shape);

// The first phase. `states` are tensors of [layers * directions, batch, hidden size].
void check_operands(const Operand &input, const Operands &parameters, const Operand &batch_sizes, const Shape &shape);
void check_states(const std::vector<const Operand *> &states, const Operand &input, const Operands &parameters,
                  const Operand &batch_sizes, const Shape &shape);
// Lists that the forward pass keeps for the backward one: a [time, batch, hidden size] for each cell.
void check_kept(const std::vector<const Operands *> &lists, const Operand &input, const Operands &parameters,
                const Operand &batch_sizes, const Shape &shape);
// [time, batch, directions * hidden size], batch first or flattened to rows.
void check_output(const Operand &output, const Operand &input, const Operands &parameters, const Operand &batch_sizes,
                  const Shape &shape);

// Gradients have the shapes of what they belong to.
void check_gradients(const Operand &input_grad, const Operand &input, const Operands &parameter_grads,
                     const Operands &parameters);

}  // namespace vnpu::opapi::rnn
