// Convolutions: the cube unit. ATen's kernels (oneDNN) choose the memory of their result themselves, so every output is
// copied once; fp16 and bf16 operands are widened (precision.h).
#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

struct Geometry {
    std::vector<int64_t> stride, padding, dilation, output_padding;
    bool transposed;
    int64_t groups;
    std::vector<int64_t> ahead;  // padding on both sides by hand, as at::pad takes it; empty when it is symmetric
};

// Lists of one number per spatial dimension. Where `sides` allows it CANN also takes the padding of either side in turn
// (top, bottom, left, right), which ATen does not know (ops-nn: aclnn_convolution.cpp, CheckParameterSizes).
Geometry geometry(const Operand &weight, const Ints &stride, const Ints &padding, const Ints &dilation, bool transposed,
                  const Ints &output_padding, int64_t groups, bool sides) {
    require(weight);
    rank(weight, {3, 4, 5});
    const auto spatial = static_cast<size_t>(weight.dim() - 2);
    Geometry made{stride, padding, dilation, output_padding, transposed, groups, {}};
    if (sides && padding.size() == 2 * spatial) {
        made.padding.assign(spatial, 0);
        for (size_t i = 0; i < spatial; ++i) {  // at::pad starts with the last dimension
            made.ahead.push_back(padding[2 * (spatial - 1 - i)]);
            made.ahead.push_back(padding[2 * (spatial - 1 - i) + 1]);
        }
    }
    if (!transposed) made.output_padding.assign(spatial, 0);  // ignored, as CANN documents
    return made;
}

void check_at_least(const char *name, const std::vector<int64_t> &list, int64_t least, size_t length) {
    if (list.size() != length)
        fail(FaultKind::InvalidArgument,
             "parameter {} has incorrect element nums {}. It should be {}, one for each spatial dimension", name,
             list.size(), length);
    for (const int64_t value : list)
        if (value < least)
            fail(FaultKind::InvalidArgument, "parameter {} has the value {}, allowed is >= {}", name, value, least);
}

// `input` and `output` are those of the forward pass.
void check_convolution(const Operand &input, const Operand &weight, const Operand &output, const Geometry &g) {
    rank(input, {weight.dim()});
    network(input, weight);
    const auto spatial = static_cast<size_t>(weight.dim() - 2);
    check_at_least("stride", g.stride, 1, spatial);
    check_at_least("padding", g.padding, 0, spatial);
    check_at_least("padding", g.ahead, 0, g.ahead.size());
    check_at_least("dilation", g.dilation, 1, spatial);
    check_at_least("outputPadding", g.output_padding, 0, spatial);
    for (size_t i = 0; i < spatial; ++i)
        if (g.output_padding[i] >= std::max(g.stride[i], g.dilation[i]))
            fail(FaultKind::InvalidArgument,
                 "outputPadding[{0}] must be less than both stride[{0}] and dilation[{0}]: it is {1}, they are {2} and "
                 "{3}, of which one has to be larger",
                 i, g.output_padding[i], g.stride[i], g.dilation[i]);
    if (g.groups < 1 || g.groups > 65535)
        fail(FaultKind::InvalidArgument, "parameter groups is {}, allowed is 1 to 65535", g.groups);
    const int64_t channels = g.transposed ? weight.size(0) : weight.size(1) * g.groups;
    if (input.size(1) != channels || weight.size(0) % g.groups != 0)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, which does not fit the channels of {}, {}, in {} groups",
             weight.parameter(), describe(weight), input.parameter(), describe(input), g.groups);
    std::vector<int64_t> expected{input.size(0), g.transposed ? weight.size(1) * g.groups : weight.size(0)};
    for (size_t i = 0; i < spatial; ++i) {
        const int64_t in = input.size(static_cast<int64_t>(i) + 2);
        const int64_t reach = g.dilation[i] * (weight.size(static_cast<int64_t>(i) + 2) - 1);
        const int64_t sides =
            g.ahead.empty() ? 2 * g.padding[i] : g.ahead[2 * (spatial - 1 - i)] + g.ahead[2 * (spatial - 1 - i) + 1];
        expected.push_back(g.transposed ? (in - 1) * g.stride[i] - sides + reach + g.output_padding[i] + 1
                                        : (in + sides - reach - 1) / g.stride[i] + 1);
        if (!g.transposed && in + sides < reach + 1)
            fail(FaultKind::InvalidArgument, "parameter {} is {}: the window of {} does not fit into its dimension {}",
                 input.parameter(), describe(input), weight.parameter(), i + 2);
    }
    shape(output, expected);
}

// What the loads of the cube unit reach. A forward pass in three dimensions is refused by its kernel's plan (ops-nn:
// conv3d_tiling_engine.cpp, CheckLoad3DLimits); the kernels of one and two dimensions and of the gradients are not
// public, their limits are those of aclnnConvolution.md and aclnnConvolutionBackward.md.
void check_within_reach(const Operand &input, const Operand &weight, const Geometry &g, bool backward) {
    const auto spatial = static_cast<size_t>(weight.dim() - 2);
    const bool volume = spatial == 3, back = backward || g.transposed;
    const auto window = [&](size_t i) { return weight.size(static_cast<int64_t>(i) + 2); };
    const auto most = [&](const char *name, int64_t value, int64_t limit, bool counts) {
        tiled_part(!counts || value <= limit, "parameter {} has the value {}, allowed is at most {}", name, value,
                   limit);
    };
    bool product = spatial > 1 && !back && g.groups == 1 && g.ahead.empty();  // one place: a matrix product
    for (size_t i = 0; i < spatial; ++i)
        product =
            product && input.size(static_cast<int64_t>(i) + 2) == window(i) && g.padding[i] == 0 && g.dilation[i] == 1;
    if (product) return;
    int64_t places = 32 / weight.element_size();
    for (size_t i = volume ? 1 : 0; i < spatial; ++i) {  // depth is a loop, not a load
        most("stride", g.stride[i], 63, volume);
        most("padding", g.padding[i], 255, volume || !g.transposed);
        most("dilation", g.dilation[i], 255, volume || back);
        most(weight.parameter(), window(i), back ? 255 : 511, volume || back);
        places *= window(i);
    }
    tiled_part(!volume || back || places <= 65535, "parameter {} is {}: its window is too large for a load",
               weight.parameter(), describe(weight));
    for (const int64_t side : g.ahead) most("padding", side, 255, true);
}

// What the first phase itself says of a transposed convolution: how far its gradient is padded (ops-nn:
// aclnn_convolution.cpp, GetPadBinaryValidFlag).
void check_padded_back(const Operand &weight, const Geometry &g) {
    if (!g.transposed) return;
    const auto spatial = static_cast<size_t>(weight.dim() - 2);
    for (size_t i = spatial == 3 ? 1 : 0; i < spatial; ++i) {
        const int64_t window = weight.size(static_cast<int64_t>(i) + 2);
        const int64_t rest = (window - 1) * g.dilation[i] - g.padding[i];
        on_chip(rest <= 255 && (spatial < 3 || rest >= 0),
                "parameters {}, dilation and padding give ({} - 1) * {} - {} = {} in dimension {}, allowed is {} 255",
                weight.parameter(), window, g.dilation[i], g.padding[i], rest, i + 2, spatial < 3 ? "at most" : "0 to");
    }
}

void check_reach(const Operand &input, const Operand &weight, const Operand &output, const Geometry &g, bool backward) {
    if (input.numel() == 0 || weight.numel() == 0 || output.numel() == 0) return;
    if (!backward) check_padded_back(weight, g);
    check_within_reach(input, weight, g, backward);
}

at::Tensor padded(const at::Tensor &input, const Geometry &g) {
    return g.ahead.empty() ? input : at::constant_pad_nd(input, g.ahead);
}

// A transposed convolution is padded by taking places away.
at::Tensor cropped(const at::Tensor &output, const Geometry &g) {
    std::vector<int64_t> back = g.ahead;
    for (int64_t &side : back) side = -side;
    return back.empty() ? output : at::constant_pad_nd(output, back);
}

void convolve(at::Tensor &output, const at::Tensor &input, const at::Tensor &weight, const at::Tensor &bias,
              const Geometry &g) {
    if (output.numel() == 0) return;
    const at::Tensor flat = bias.defined() ? bias.reshape({-1}) : bias;
    const at::Tensor wide = widened(input);
    const at::Tensor result =
        at::convolution(g.transposed ? wide : padded(wide, g), widened(weight), widened(flat), g.stride, g.padding,
                        g.dilation, g.transposed, g.output_padding, g.groups);
    output.copy_(g.transposed ? cropped(result, g) : result);
}

// A forward pass of nothing gives nothing (ops-nn: aclnn_convolution.cpp, CheckShape, CheckEmptyTensor, ConvXdChecker).
void check_of_something(const Operand &input, const Operand &weight, const Operand &output, bool transposed) {
    for (int64_t i = 2; i < weight.dim(); ++i)
        if (weight.size(i) == 0)
            fail(FaultKind::InvalidArgument, "shape[{}] of filter must be greater than 0: parameter {} is {}", i,
                 weight.parameter(), describe(weight));
    if (transposed && input.size(1) == 0)
        fail(FaultKind::InvalidArgument,
             "When transposed is true, shape[1] of this parameter must be greater than 0: parameter {} is {}",
             input.parameter(), describe(input));
    if ((input.numel() == 0 || weight.numel() == 0) && output.numel() != 0)
        fail(
            FaultKind::InvalidArgument,
            "if x or filter is an empty tensor, output must be an empty tensor: parameter {} is {}, {} is {}, {} is {}",
            input.parameter(), describe(input), weight.parameter(), describe(weight), output.parameter(),
            describe(output));
}

void check_bias(const Operand &bias, const Operand &output) {
    if (!bias.defined()) return;
    network(bias);
    if (bias.numel() != output.size(1))
        fail(FaultKind::InvalidArgument, "parameter {} has {} values, expected {}, one for each channel of {}",
             bias.parameter(), bias.numel(), output.size(1), output.parameter());
}

struct Gradients {
    Operand &input, &weight, &bias;
};

void check_backward(const Bools &mask, Gradients gradients, const Operand &input, const Operand &weight,
                    const Operand &grad_output) {
    if (mask.size() != 3)
        fail(FaultKind::InvalidArgument, "parameter outputMask has {} values, expected 3", mask.size());
    for (const auto &[wanted, gradient] :
         {std::pair(mask[0], &gradients.input), {mask[1], &gradients.weight}, {mask[2], &gradients.bias}})
        if (!wanted) gradient->allow_null();
    if (mask[0]) same_shape(gradients.input, input);
    if (mask[1]) same_shape(gradients.weight, weight);
    if (mask[2]) shape(gradients.bias, {grad_output.size(1)});
    // ops-nn: convolution_backward_checker.cpp, CheckEmptyTensor
    const bool empty = input.numel() == 0 || weight.numel() == 0 || grad_output.numel() == 0;
    if (mask[0] && empty && input.size(0) != 0 && input.size(1) != 0)
        fail(FaultKind::InvalidArgument,
             "parameter {} is {} beside {} of {} and {} of {}: where one of them is empty, its dimension 0 or 1 has to "
             "be 0",
             input.parameter(), describe(input), weight.parameter(), describe(weight), grad_output.parameter(),
             describe(grad_output));
}

// What only the gradient refuses (ops-nn: convolution_backward_checker.cpp, CheckConvParams).
void check_padded_outputs(const Operand &weight, const Geometry &g, const Ints &output_padding) {
    check_at_least("outputPadding", output_padding, 0, g.stride.size());
    for (size_t i = 0; i < g.stride.size(); ++i) {
        on_chip(g.transposed || output_padding[i] == 0,
                "when transposed=false, the value of outputPadding must be 0: parameter outputPadding has the value {}",
                output_padding[i]);
        on_chip(weight.dim() < 5 || output_padding[i] < g.stride[i],
                "parameter outputPadding has the value {} beside a stride of {}, allowed is less in three dimensions",
                output_padding[i], g.stride[i]);
    }
}

void convolve_backward(Gradients gradients, const at::Tensor &grad_output, const at::Tensor &input,
                       const at::Tensor &weight, const Geometry &g, std::array<bool, 3> mask) {
    const at::Tensor grad = widened(grad_output), in = widened(input);
    const auto [input_gradient, weight_gradient, bias_gradient] =
        at::convolution_backward(g.transposed ? padded(grad, g) : grad, g.transposed ? in : padded(in, g),
                                 widened(weight), at::OptionalIntArrayRef(grad_output.size(1)), g.stride, g.padding,
                                 g.dilation, g.transposed, g.output_padding, g.groups, mask);
    if (mask[0]) give(gradients.input, g.transposed ? input_gradient : cropped(input_gradient, g));
    if (mask[1]) give(gradients.weight, weight_gradient);
    if (mask[2]) give(gradients.bias, bias_gradient);
}

// A convolution over time: input [T, B, C], weight [K, C, O], output [T', B, O].
void check_tbc(const Operand &input, const Operand &weight, const Operand &bias, int64_t pad, const Operand &output) {
    rank(input, {3});
    rank(weight, {3});
    network(input, weight, bias, output);
    if (pad < 0) fail(FaultKind::InvalidArgument, "parameter pad is {}, allowed is >= 0", pad);
    if (input.size(2) != weight.size(1))
        fail(FaultKind::InvalidArgument, "parameter weight is {}, which does not fit the channels of {}, {}",
             describe(weight), input.parameter(), describe(input));
    shape(bias, {weight.size(2)});
    shape(output, {input.size(0) + 2 * pad - weight.size(0) + 1, input.size(1), weight.size(2)});
}

Geometry depthwise(const Operand &self, const Operand &weight, const Ints &stride, const Ints &padding,
                   const Ints &dilation) {
    return geometry(weight, stride, padding, dilation, false, {nullptr}, self.size(1), false);
}

}  // namespace
}  // namespace vnpu::opapi

#define FORWARD                                                                    \
    geometry(weight, stride, padding, dilation, transposed, outputPadding, groups, \
             weight.dim() == 4 || (weight.dim() == 3 && !transposed))
#define BACKWARD geometry(weight, stride, padding, dilation, transposed, outputPadding, groups, weight.dim() == 4)

OP(aclnnConvolution, optional(bias); network(output); check_convolution(input, weight, output, FORWARD);
   check_of_something(input, weight, output, transposed); check_bias(bias, output);
   check_reach(input, weight, output, FORWARD, false), convolve(output, input, weight, bias, FORWARD))
OP(aclnnConvolutionBackward, network(gradOutput); check_convolution(input, weight, gradOutput, BACKWARD);
   check_padded_outputs(weight, BACKWARD, outputPadding);
   check_backward(outputMask, {gradInput, gradWeight, gradBias}, input, weight, gradOutput);
   check_reach(input, weight, gradOutput, BACKWARD, true),
   convolve_backward({gradInput, gradWeight, gradBias}, gradOutput, input, weight, BACKWARD, outputMask.mask<3>()))
OP(aclnnConvDepthwise2d, rank(self, {4}); optional(bias); network(out);
   check_convolution(self, weight, out, depthwise(self, weight, stride, padding, dilation));
   check_of_something(self, weight, out, false);
   check_bias(bias, out), convolve(out, self, weight, bias, depthwise(self, weight, stride, padding, dilation)))
OP(aclnnConvTbc, check_tbc(self, weight, bias, pad, output),
   give(output, at::conv_tbc(widened(self), widened(weight), widened(bias), pad)))
OP(aclnnConvTbcBackward, check_tbc(input, weight, bias, pad, self); same_shape(gradInput, input);
   same_shape(gradWeight, weight);
   same_shape(gradBias, bias), const auto [input_gradient, weight_gradient,
                                           bias_gradient] = at::conv_tbc_backward(widened(self), widened(input),
                                                                                  widened(weight), widened(bias), pad);
   give(gradInput, input_gradient); give(gradWeight, weight_gradient); give(gradBias, bias_gradient))
