// The old operators of one GRU layer in one direction, forwards in time, which torch_npu uses for bfloat16 and as
// npu_gru. Weights are transposed, [width, gates]; the gates are in CANN's order (gate_order "zrh") or in torch's
// ("rzh"), the reset gate acts on the hidden state's product (reset_after).
#include "opapi/aclop/legacy.h"
#include "opapi/recurrent/gru.h"

namespace vnpu::opapi::rnn {
namespace {

Batch steps(const at::Tensor &x) {
    const at::Tensor wide = x.to(at::kFloat);
    return {wide, std::vector<int64_t>(static_cast<size_t>(wide.size(0)), wide.size(1))};
}

// The gates along the last dimension in torch's order, or, as it is its own inverse, back in the call's.
at::Tensor ordered(const at::Tensor &gates, const aclopAttr &attributes) {
    if (attribute<std::string>(attributes, "gate_order", "zrh") == "rzh") return gates;
    const std::vector<at::Tensor> parts = gates.chunk(3, -1);
    return at::cat({parts[1], parts[0], parts[2]}, -1);
}

// A bias that was left out is one of zeros.
Weights transposed(const at::Tensor &input, const at::Tensor &hidden, const at::Tensor &input_bias,
                   const at::Tensor &hidden_bias, const aclopAttr &attributes) {
    const auto wide = [&](const at::Tensor &tensor) { return ordered(tensor.to(at::kFloat), attributes); };
    const auto bias = [&](const at::Tensor &given) {
        return given.defined() ? wide(given.flatten()) : at::zeros({hidden.size(1)}, at::kFloat);
    };
    return {wide(input).t(), wide(hidden).t(), bias(input_bias), bias(hidden_bias)};
}

// [batch, hidden size], a copy; descriptors have it with and without a 1 in front.
at::Tensor state(const at::Tensor &given, int64_t batch) {
    return given.to(at::kFloat, false, /*copy=*/true).view({batch, -1});
}

// `x` [time, batch, width], weights [width, 3 H] and [H, 3 H], `steps` [time, batch, H].
void check_layer(const at::Tensor &x, const at::Tensor &weight_input, const at::Tensor &weight_hidden,
                 const at::Tensor &steps, const aclopAttr &attributes) {
    const auto refuse = [&] {
        fail(FaultKind::InvalidArgument,
             "x is {}, weight_input {}, weight_hidden {} and y {}: expected [T, N, X], [X, 3 H], [H, 3 H], [T, N, H]",
             describe(x), describe(weight_input), describe(weight_hidden), describe(steps));
    };
    if (x.dim() != 3 || weight_input.dim() != 2 || weight_hidden.dim() != 2) refuse();
    const int64_t hidden = weight_hidden.size(0);
    if (weight_input.size(0) != x.size(2) || weight_input.size(1) != 3 * hidden ||
        weight_hidden.size(1) != 3 * hidden || steps.sizes() != at::IntArrayRef({x.size(0), x.size(1), hidden}))
        refuse();
    const auto order = attribute<std::string>(attributes, "gate_order", "zrh");
    if (order != "zrh" && order != "rzh")
        fail(FaultKind::InvalidArgument, "attribute gate_order is \"{}\", allowed are zrh and rzh", order);
    if (const auto way = attribute<std::string>(attributes, "direction", "UNIDIRECTIONAL"); way != "UNIDIRECTIONAL")
        fail(FaultKind::Unsupported, "attribute direction is \"{}\", the virtual NPU offers \"UNIDIRECTIONAL\"", way);
    if (!attribute(attributes, "reset_after", true))
        fail(FaultKind::Unsupported, "attribute reset_after is false, the virtual NPU offers true");
}

void check_state_sizes(const LegacyTensors &tensors, std::initializer_list<size_t> indices, const at::Tensor &x,
                       const at::Tensor &weight_hidden) {
    for (const size_t index : indices)
        if (tensors.at(index).defined() && tensors.at(index).numel() != x.size(1) * weight_hidden.size(0))
            fail(FaultKind::InvalidArgument, "a state is {}, expected [{}, {}]", describe(tensors.at(index)), x.size(1),
                 weight_hidden.size(0));
}

void forward(LegacyTensors &in, LegacyTensors &out, const aclopAttr &attributes) {
    enum { kX, kWeightInput, kWeightHidden, kBiasInput, kBiasHidden, kSequenceLength, kInitial };
    const Batch batch = steps(in[kX]);
    const Weights weights =
        transposed(in[kWeightInput], in[kWeightHidden], in[kBiasInput], in[kBiasHidden], attributes);
    const at::Tensor initial = in.size() > kInitial && in[kInitial].defined()
                                   ? state(in[kInitial], batch.size())
                                   : at::zeros({batch.size(), weights.hidden.size(1)}, at::kFloat);
    const GruSteps made = gru_forward(batch, weights, false, initial);
    const at::Tensor *results[] = {&made.outputs, &made.hidden, &made.update,
                                   &made.reset,   &made.fresh,  &made.new_hidden};
    for (size_t i = 0; i < std::size(results); ++i) out[i].copy_(*results[i]);
}

void backward(LegacyTensors &in, LegacyTensors &out, const aclopAttr &attributes) {
    enum { kX, kWeightInput, kWeightHidden, kY, kInitial, kHidden, kDy, kDh, kUpdate, kReset, kNew, kNewHidden };
    const auto wide = [&](size_t index) { return in[index].to(at::kFloat); };
    const Batch batch = steps(in[kX]);
    const Weights weights = transposed(in[kWeightInput], in[kWeightHidden], {}, {}, attributes);
    const at::Tensor hidden_grad = state(in[kDh], batch.size());
    const GruSteps kept{wide(kReset), wide(kUpdate), wide(kNew), wide(kNewHidden), {}, wide(kHidden)};
    const GruGradients made =
        gru_backward(batch, weights, false, kept, wide(kDy), state(in[kInitial], batch.size()), hidden_grad);
    const auto gates = [&](const at::Tensor &gradient) { return ordered(gradient, attributes); };
    const at::Tensor results[] = {
        gates(made.weight_ih.t()),
        gates(made.weight_hh.t()),
        gates(made.input_bias),
        gates(made.hidden_bias),
        made.input,
        hidden_grad,
    };
    for (size_t i = 0; i < std::size(results); ++i) out[i].copy_(results[i].reshape(out[i].sizes()));
}

}  // namespace
}  // namespace vnpu::opapi::rnn

LEGACY(DynamicGRUV2, rnn::check_layer(in[0], in[1], in[2], out[0], attributes);
       rnn::check_state_sizes(in, {6}, in[0], in[2]); out[5], rnn::forward(in, out, attributes))

LEGACY(DynamicGRUV2Grad, rnn::check_layer(in[0], in[1], in[2], in[3], attributes); in[11], out[5];
       rnn::check_state_sizes(in, {4, 7}, in[0], in[2]), rnn::backward(in, out, attributes))
