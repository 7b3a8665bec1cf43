// One GRU layer in one direction: the part that nn.GRU's operator, its gradient and the old DynamicGRUV2 share.
// Gate order in parameters is torch's: reset, update, new. Everything is float.
#pragma once

#include "opapi/recurrent/rnn.h"

namespace vnpu::opapi::rnn {

// Gates (activated), W_hn h + b_hn, and states after each step, [time, batch, hidden size].
struct GruSteps {
    at::Tensor reset, update, fresh, new_hidden;
    at::Tensor outputs;  // zero where a sequence does not run; the gradient does not need them
    at::Tensor hidden;   // the states, also of sequences that do not run
};

// `hidden`, [batch, hidden size], is the initial state; it becomes the final one, in place.
GruSteps gru_forward(const Batch &batch, const Weights &weights, bool backwards, at::Tensor hidden);

struct GruGradients {
    at::Tensor input;                    // [time, batch, input width]
    at::Tensor weight_ih, weight_hh;     // as the weights: [3 * hidden size, width]
    at::Tensor input_bias, hidden_bias;  // [3 * hidden size]; undefined without bias
};
// `hidden_grad` is the gradient of the final state; it becomes that of the initial one, in place.
GruGradients gru_backward(const Batch &batch, const Weights &weights, bool backwards, const GruSteps &steps,
                          const at::Tensor &output_grad, const at::Tensor &initial, at::Tensor hidden_grad);

}  // namespace vnpu::opapi::rnn
