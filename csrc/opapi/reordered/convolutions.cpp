// Convolutions: forward along the input channels of a group, the gradient of the input along its output channels, the
// gradients of weight and bias along the batch.
#include "opapi/reordered/order.h"

namespace vnpu::opapi::reordered {
namespace {

using at::IntArrayRef;
using at::Tensor;

// A transposed convolution has input channels first.
Tensor shuffle_inputs(const Tensor &weight, bool transposed, int64_t groups) {
    return transposed ? shuffled_in(weight, 0, groups) : shuffled(weight, 1);
}

Tensor shuffle_outputs(const Tensor &weight, bool transposed, int64_t groups) {
    return transposed ? shuffled(weight, 1) : shuffled_in(weight, 0, groups);
}

Tensor restore_outputs(const Tensor &weight, bool transposed, int64_t groups) {
    return transposed ? unshuffled(weight, 1) : unshuffled_in(weight, 0, groups);
}

// A batch of one may be left out: then the channels are the first axis.
int64_t channels(const Tensor &input, const Tensor &weight) { return input.dim() - weight.dim() + 1; }

Tensor convolution(const Tensor &input, const Tensor &weight, const std::optional<Tensor> &bias, IntArrayRef stride,
                   IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
                   int64_t groups) {
    const AsIs as_is;
    return at::convolution(shuffled_in(input, channels(input, weight), groups),
                           shuffle_inputs(weight, transposed, groups), bias, stride, padding, dilation, transposed,
                           output_padding, groups);
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor &grad_output, const Tensor &input,
                                                        const Tensor &weight, at::OptionalIntArrayRef bias_sizes,
                                                        IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                                                        bool transposed, IntArrayRef output_padding, int64_t groups,
                                                        std::array<bool, 3> output_mask) {
    const AsIs as_is;
    const bool batched = input.dim() == weight.dim();
    const int64_t axis = channels(input, weight);
    const auto over_batch = [&](const Tensor &tensor) { return batched ? shuffled(tensor, 0) : tensor; };
    auto [grad_input, grad_weight, grad_bias] =
        at::convolution_backward(over_batch(shuffled_in(grad_output, axis, groups)), over_batch(input),
                                 shuffle_outputs(weight, transposed, groups), bias_sizes, stride, padding, dilation,
                                 transposed, output_padding, groups, output_mask);
    if (grad_input.defined() && batched) grad_input = unshuffled(grad_input, 0);
    if (grad_weight.defined()) grad_weight = restore_outputs(grad_weight, transposed, groups);
    if (grad_bias.defined()) grad_bias = unshuffled_in(grad_bias, 0, groups);
    return {grad_input, grad_weight, grad_bias};
}

}  // namespace

void add_convolutions(torch::Library &library) {
    library.impl("convolution", TORCH_FN(convolution));
    library.impl("convolution_backward", TORCH_FN(convolution_backward));
}

}  // namespace vnpu::opapi::reordered
