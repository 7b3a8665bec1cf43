// The old operators of one LSTM layer in one direction. torch_npu uses DynamicRNN for several layers, without bias and
// for bfloat16, and DynamicRNNV2, whose weight comes in two parts, for nn.LSTMCell. Weights are transposed, [width,
// gates]; torch_npu says that the gates are in torch's order (gate_order "ifjo", where j is the candidate, and "ifco").
// MindSpore leaves gate_order out of DynamicRNN, and has them in CANN's own, "ijfo".
#include "opapi/aclop/legacy.h"
#include "opapi/recurrent/lstm.h"

namespace vnpu::opapi::rnn {
namespace {

// A mask of [time, batch, hidden size], or nothing: all sequences run at every step.
Batch steps(const at::Tensor &x, const at::Tensor &mask) {
    const at::Tensor wide = x.to(at::kFloat);
    Batch batch{wide.dim() == 2 ? wide.unsqueeze(0) : wide, {}};
    for (int64_t t = 0; t < batch.time(); ++t) {
        const bool masked = mask.defined() && mask.dim() == 3;
        batch.running.push_back(masked ? mask[t].select(1, 0).count_nonzero().item<int64_t>() : batch.size());
    }
    return batch;
}

Weights transposed(const at::Tensor &input, const at::Tensor &hidden, const at::Tensor &bias) {
    const auto wide = [](const at::Tensor &w) { return w.to(at::kFloat).t().contiguous(); };
    if (!bias.defined()) return {wide(input), wide(hidden), {}, {}};
    return {wide(input), wide(hidden), bias.to(at::kFloat).flatten(), at::zeros({bias.numel()}, at::kFloat)};
}

Weights parts(const at::Tensor &both, const at::Tensor &bias, int64_t width) {
    return transposed(both.narrow(0, 0, width), both.narrow(0, width, both.size(0) - width), bias);
}

// [batch, hidden size] or, for all steps, [time, batch, hidden size]; descriptors have both with and without the 1.
at::Tensor state(const at::Tensor &given, const Batch &batch) {
    return given.to(at::kFloat, false, /*copy=*/true).view({batch.size(), -1});
}
at::Tensor all_steps(const at::Tensor &given, const Batch &batch) {
    return given.to(at::kFloat).view({batch.time(), batch.size(), -1});
}

bool backwards(const aclopAttr &attributes) {
    return attribute<std::string>(attributes, "direction", "UNIDIRECTIONAL") == "REDIRECTIONAL";
}

void forward(const Batch &batch, const Weights &weights, LegacyTensors &in, size_t first_state, LegacyTensors &out,
             const aclopAttr &attributes) {
    const LstmSteps made = lstm_forward(batch, weights, backwards(attributes),
                                        {state(in[first_state], batch), state(in[first_state + 1], batch)});
    const at::Tensor *results[] = {&made.outputs,   &made.hidden,      &made.cell,        &made.input_gate,
                                   &made.candidate, &made.forget_gate, &made.output_gate, &made.tanh_cell};
    for (size_t i = 0; i < std::size(results); ++i) out[i].copy_(results[i]->view(out[i].sizes()));
}

// The gates along the last dimension in torch's order, or, as it is its own inverse, back in the call's.
at::Tensor ordered(const at::Tensor &gates, const aclopAttr &attributes) {
    const auto order = attribute<std::string>(attributes, "gate_order", "ijfo");
    if (order == "ifjo") return gates;
    const std::vector<at::Tensor> parts = gates.chunk(4, -1);
    return at::cat({parts[0], parts[2], parts[1], parts[3]}, -1);
}

void check_order(const aclopAttr &attributes) {
    const auto order = attribute<std::string>(attributes, "gate_order", "ijfo");
    if (order != "ifjo" && order != "ijfo")
        fail(FaultKind::InvalidArgument, "attribute gate_order is \"{}\", allowed are ijfo and ifjo", order);
}

// MindSpore leaves the mask out, where torch_npu gives an empty one.
at::Tensor mask(LegacyTensors &in) { return in.size() > 16 ? in[16] : at::Tensor(); }

// Both gradient operators have these inputs in a row, `first` being the initial hidden state.
struct Backward {
    at::Tensor weight_rows, input_rows, previous_rows, input, hidden, cell;
};

Backward backward(const Batch &batch, const Weights &weights, LegacyTensors &in, size_t first,
                  const aclopAttr &attributes) {
    enum { kFirstHidden, kFirstCell, kHidden, kCell, kDy, kDh, kDc, kI, kJ, kF, kO, kTanhC };
    const auto steps_of = [&](size_t index) { return all_steps(in[first + index], batch); };
    const auto state_of = [&](size_t index) { return state(in[first + index], batch); };
    const LstmSteps made{steps_of(kI), steps_of(kF),      steps_of(kJ),    steps_of(kO),
                         {},           steps_of(kHidden), steps_of(kCell), steps_of(kTanhC)};
    const at::Tensor hidden = state_of(kDh), cell = state_of(kDc);
    const LstmGateGradients grads = lstm_backward(batch, weights, backwards(attributes), made, steps_of(kDy),
                                                  {state_of(kFirstHidden), state_of(kFirstCell)}, {hidden, cell});
    return {grads.gates.flatten(0, 1),
            batch.steps.flatten(0, 1),
            grads.previous.flatten(0, 1),
            grads.gates.matmul(weights.input),
            hidden,
            cell};
}

void give(at::Tensor &out, const at::Tensor &result) { out.copy_(result.view(out.sizes())); }

void check_shapes(const at::Tensor &x, int64_t weight_rows, int64_t gates, const at::Tensor &y) {
    const int64_t rows = x.numel() / std::max<int64_t>(x.size(-1), 1), hidden = gates / 4;
    if (gates % 4 != 0 || weight_rows != x.size(-1) + hidden || y.numel() != rows * hidden)
        fail(FaultKind::InvalidArgument,
             "x is {}, the weight [{}, {}] and y {}: the weight must be [width of x and y, 4 widths of y]", describe(x),
             weight_rows, gates, describe(y));
}

}  // namespace
}  // namespace vnpu::opapi::rnn

LEGACY(DynamicRNN, rnn::check_shapes(in[0], in[1].size(0), in[1].size(1), out[7]);
       rnn::check_order(attributes), using namespace rnn;
       forward(steps(in[0], in[3]), parts(ordered(in[1], attributes), ordered(in[2], attributes), in[0].size(-1)), in,
               4, out, attributes))

LEGACY(DynamicRNNGrad, rnn::check_shapes(in[0], in[1].size(0), in[1].size(1), in[3]); out[4];
       rnn::check_order(attributes), using namespace rnn;
       const Backward made = backward(steps(in[0], mask(in)),
                                      parts(ordered(in[1], attributes), ordered(in[2], attributes), in[0].size(-1)), in,
                                      4, attributes);
       give(out[0], ordered(at::cat({made.input_rows, made.previous_rows}, 1).t().mm(made.weight_rows), attributes));
       give(out[1], ordered(made.weight_rows.sum(0), attributes)); give(out[2], made.input); give(out[3], made.hidden);
       give(out[4], made.cell))

LEGACY(DynamicRNNV2, rnn::check_shapes(in[0], in[1].size(0) + in[2].size(0), in[1].size(1), out[7]),
       using namespace rnn;
       forward(steps(in[0], in[4]), transposed(in[1], in[2], in[3]), in, 5, out, attributes))

LEGACY(DynamicRNNV2Grad, rnn::check_shapes(in[0], in[1].size(0) + in[2].size(0), in[1].size(1), in[3]);
       out[5], using namespace rnn;
       const Backward made = backward(steps(in[0], mask(in)), transposed(in[1], in[2], {}), in, 4, attributes);
       give(out[0], made.input_rows.t().mm(made.weight_rows));
       give(out[1], made.previous_rows.t().mm(made.weight_rows)); give(out[2], made.weight_rows.sum(0));
       give(out[3], made.input); give(out[4], made.hidden); give(out[5], made.cell))
