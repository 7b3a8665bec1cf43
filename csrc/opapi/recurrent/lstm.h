// One LSTM layer in one direction: the part that nn.LSTM's operator, its gradient and the old DynamicRNN share.
// Gate order in parameters is torch's: input, forget, candidate, output. Everything is float.
#pragma once

#include "opapi/recurrent/rnn.h"

namespace vnpu::opapi::rnn {

// Gates (activated) and states after each step, [time, batch, hidden size].
struct LstmSteps {
    at::Tensor input_gate, forget_gate, candidate, output_gate;
    at::Tensor outputs;                  // zero where a sequence does not run
    at::Tensor hidden, cell, tanh_cell;  // the states, also of sequences that do not run
};

struct LstmStates {
    at::Tensor hidden, cell;  // [batch, hidden size]
};

// `states` are the initial ones; they become the final ones, in place.
LstmSteps lstm_forward(const Batch &batch, const Weights &weights, bool backwards, LstmStates states);

// The gradient of the layer's input. `gates` become the gradients of the gates before activation, [time, batch, 4 *
// hidden size], `previous` the hidden states before each step: weights' gradients follow from them. `grads` are the
// gradients of the final states; they become those of the initial ones, in place.
struct LstmGateGradients {
    at::Tensor gates, previous;
};
LstmGateGradients lstm_backward(const Batch &batch, const Weights &weights, bool backwards, const LstmSteps &steps,
                                const at::Tensor &output_grad, const LstmStates &initial, LstmStates grads);

}  // namespace vnpu::opapi::rnn
