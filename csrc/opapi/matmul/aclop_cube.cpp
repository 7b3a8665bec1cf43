// Matrix products and convolutions of the old API, in fp32 as the cube unit computes. torch_npu takes them where an
// operand is in a private format and CANN has no aclnn call for that.
#include "device/fault.h"
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"

namespace vnpu::opapi {
namespace {

// Sizes are int32, or int64 in MindSpore's volumes.
bool counts(const at::Tensor &tensor) {
    return tensor.scalar_type() == at::kInt || (tensor.scalar_type() == at::kLong && tensor.dim() == 1);
}

void check_floating(const LegacyTensors &tensors) {
    for (const at::Tensor &tensor : tensors)
        if (tensor.defined() && !kNative.has(tensor.scalar_type()) && !counts(tensor))
            fail(FaultKind::InvalidArgument, "an operand is {}, allowed are float32, float16 and bfloat16",
                 describe(tensor));
}

at::Tensor side(const at::Tensor &operand, const aclopAttr &attributes, const char *transposed) {
    return attribute<bool>(attributes, transposed, false) ? operand.transpose(-1, -2) : operand;
}

// `names` are the attributes that say which operand is transposed.
void check_multiply(LegacyArguments &call, const char *first, const char *second) {
    check_floating(call.in);
    const at::Tensor &x = call.in[0], &y = call.in[1], &out = call.out[0];
    if (x.dim() < 2 || y.dim() != x.dim() || out.dim() != x.dim())
        fail(FaultKind::InvalidArgument, "the operands {} and {} and the output {} are not matrices of one rank",
             describe(x), describe(y), describe(out));
    const at::Tensor a = side(x, call.attributes, first), b = side(y, call.attributes, second);
    at::DimVector sizes(a.sizes().begin(), a.sizes().end());
    sizes.back() = b.size(-1);
    const size_t batch = sizes.size() - 2;
    if (a.size(-1) != b.size(-2) || a.sizes().slice(0, batch) != b.sizes().slice(0, batch) ||
        out.sizes() != at::IntArrayRef(sizes))
        fail(FaultKind::InvalidArgument, "the product of {} and {} is not the output {}", describe(a), describe(b),
             describe(out));
}

void multiply(LegacyArguments &call, const char *first, const char *second) {
    const at::Tensor product = at::matmul(widened(side(call.in[0], call.attributes, first)),
                                          widened(side(call.in[1], call.attributes, second)));
    const bool biased = call.in.size() > 2 && call.in[2].defined();
    call.out[0].copy_(biased ? product + widened(call.in[2]) : product);
}

// One value for each spatial dimension; the attributes begin with those of batch and channels, and pads have two each.
struct Window {
    std::vector<int64_t> stride, padding, dilation;
    int64_t groups;
};

std::vector<int64_t> spatial(const aclopAttr &attributes, const char *name, size_t rank) {
    const auto values = attribute<std::vector<int64_t>>(attributes, name, std::vector<int64_t>(rank, 1));
    if (values.size() != rank)
        fail(FaultKind::InvalidArgument, "attribute {} has {} values, expected {}", name, values.size(), rank);
    return {values.begin() + 2, values.end()};
}

Window window(const aclopAttr &attributes, const at::Tensor &x) {
    const auto rank = static_cast<size_t>(x.dim());
    if (rank < 4 || rank > 5)
        fail(FaultKind::InvalidArgument, "the input is {}, expected 4 or 5 dimensions", describe(x));
    const auto pads = attribute<std::vector<int64_t>>(attributes, "pads", std::vector<int64_t>(2 * (rank - 2), 0));
    Window made{spatial(attributes, "strides", rank),
                {},
                spatial(attributes, "dilations", rank),
                attribute<int64_t>(attributes, "groups", 1)};
    for (size_t i = 0; i + 1 < pads.size(); i += 2) {
        if (pads[i] != pads[i + 1])
            fail(FaultKind::Unsupported, "The virtual NPU has convolutions of the old API with equal pads only.");
        made.padding.push_back(pads[i]);
    }
    if (made.padding.size() != rank - 2)
        fail(FaultKind::InvalidArgument, "attribute pads has {} values, expected {}", pads.size(), 2 * (rank - 2));
    return made;
}

// `y` has the shape of the convolution of `x` with `weight`.
void check_convolve(const at::Tensor &x, const at::Tensor &weight, const at::Tensor &y, const aclopAttr &attributes) {
    const Window w = window(attributes, x);
    if (weight.dim() != x.dim() || y.dim() != x.dim() || w.groups < 1 || weight.size(0) % w.groups != 0 ||
        x.size(1) != weight.size(1) * w.groups || y.size(0) != x.size(0) || y.size(1) != weight.size(0))
        fail(FaultKind::InvalidArgument, "{} convolved with {} in {} groups is not {}", describe(x), describe(weight),
             w.groups, describe(y));
    for (size_t i = 0; i < w.stride.size(); ++i) {
        const auto dim = static_cast<int64_t>(i) + 2;
        const int64_t reach = w.dilation[i] * (weight.size(dim) - 1) + 1;
        if (w.stride[i] < 1 || w.dilation[i] < 1 || w.padding[i] < 0 ||
            (x.size(dim) + 2 * w.padding[i] - reach) / w.stride[i] + 1 != y.size(dim))
            fail(FaultKind::InvalidArgument, "{} convolved with {} at stride {}, pad {} and dilation {} is not {}",
                 describe(x), describe(weight), w.stride[i], w.padding[i], w.dilation[i], describe(y));
    }
}

void convolve(LegacyArguments &call) {
    const Window w = window(call.attributes, call.in[0]);
    const bool biased = call.in.size() > 2 && call.in[2].defined();
    const at::Tensor bias = biased ? widened(call.in[2]) : at::Tensor();
    call.out[0].copy_(at::convolution(widened(call.in[0]), widened(call.in[1]), bias, w.stride, w.padding, w.dilation,
                                      false, std::vector<int64_t>(w.stride.size(), 0), w.groups));
}

// The gradient of the input (which = 0) or of the weight (1) of a convolution.
void differentiate(const at::Tensor &gradient, const at::Tensor &x, const at::Tensor &weight, size_t which,
                   LegacyArguments &call) {
    const Window w = window(call.attributes, x);
    const auto [input, filter, bias] = at::convolution_backward(
        widened(gradient), widened(x), widened(weight), at::OptionalIntArrayRef(), w.stride, w.padding, w.dilation,
        false, std::vector<int64_t>(w.stride.size(), 0), w.groups, {which == 0, which == 1, false});
    call.out[0].copy_(which == 0 ? input : filter);
}

std::vector<int64_t> output_padding(LegacyArguments &call) {
    const auto rank = static_cast<size_t>(call.in[1].dim());
    const auto values = attribute<std::vector<int64_t>>(call.attributes, "output_padding", std::vector<int64_t>(rank));
    if (values.size() != rank)
        fail(FaultKind::InvalidArgument, "attribute output_padding has {} values, expected {}", values.size(), rank);
    return {values.begin() + 2, values.end()};
}

// A transposed convolution: `y` is what a convolution of it would make `x` of. Filters are [in, out / groups, ...].
void check_transpose(LegacyArguments &call) {
    const at::Tensor &x = call.in[1], &filter = call.in[2], &y = call.out[0];
    const Window w = window(call.attributes, x);
    if (filter.dim() != x.dim() || y.dim() != x.dim() || w.groups < 1 || x.size(1) % w.groups != 0 ||
        filter.size(0) != x.size(1) || y.size(1) != filter.size(1) * w.groups || y.size(0) != x.size(0))
        fail(FaultKind::InvalidArgument, "{} convolved back with {} in {} groups is not {}", describe(x),
             describe(filter), w.groups, describe(y));
    const std::vector<int64_t> more = output_padding(call);
    for (size_t i = 0; i < w.stride.size(); ++i) {
        const auto dim = static_cast<int64_t>(i) + 2;
        if ((x.size(dim) - 1) * w.stride[i] - 2 * w.padding[i] + w.dilation[i] * (filter.size(dim) - 1) + 1 + more[i] !=
            y.size(dim))
            fail(FaultKind::InvalidArgument,
                 "{} convolved back with {} at stride {}, pad {}, dilation {} and {} more is not {}", describe(x),
                 describe(filter), w.stride[i], w.padding[i], w.dilation[i], more[i], describe(y));
    }
}

void transpose(LegacyArguments &call) {
    const Window w = window(call.attributes, call.in[1]);
    const bool biased = call.in.size() > 3 && call.in[3].defined();
    const at::Tensor bias = biased ? widened(call.in[3]) : at::Tensor();
    call.out[0].copy_(at::convolution(widened(call.in[1]), widened(call.in[2]), bias, w.stride, w.padding, w.dilation,
                                      true, output_padding(call), w.groups));
}

// One group for each channel.
void by_channel(LegacyArguments &call, const at::Tensor &x) {
    if (x.dim() != 4) fail(FaultKind::InvalidArgument, "the input is {}, expected 4 dimensions", describe(x));
    call.attributes.values["groups"] = x.size(1);
}

// int8 to float16: a scale per output channel lies in the low 32 bits of a word, as a float32 whose last 13 bits the
// hardware does not have (TransQuantParam).
void check_quantize(LegacyArguments &call) {
    const at::Tensor &x = call.in[0], &filter = call.in[1], &scale = call.in[2];
    for (const at::Tensor &tensor : {x, filter})
        if (tensor.scalar_type() != at::kChar)
            fail(FaultKind::InvalidArgument, "an operand is {}, allowed is int8", describe(tensor));
    check_convolve(x, filter, call.out[0], call.attributes);
    if ((scale.scalar_type() != at::kLong && scale.scalar_type() != at::kUInt64) ||
        (scale.numel() != filter.size(0) && scale.numel() != 1))
        fail(FaultKind::InvalidArgument, "scale is {}, expected a word of 64 bits per output channel", describe(scale));
    if (call.in.size() > 3 && call.in[3].defined() &&
        (call.in[3].scalar_type() != at::kInt || call.in[3].numel() != filter.size(0)))
        fail(FaultKind::InvalidArgument, "bias is {}, expected an int32 per output channel", describe(call.in[3]));
}

void quantize(LegacyArguments &call) {
    const Window w = window(call.attributes, call.in[0]);
    // Exact: products of int8 in double.
    at::Tensor sum = at::convolution(call.in[0].to(at::kDouble), call.in[1].to(at::kDouble), {}, w.stride, w.padding,
                                     w.dilation, false, std::vector<int64_t>(w.stride.size(), 0), w.groups);
    const std::vector<int64_t> column{1, -1, 1, 1};
    if (call.in.size() > 3 && call.in[3].defined()) sum = sum + call.in[3].to(at::kDouble).view(column);
    const at::Tensor bits = call.in[2].to(at::kLong).bitwise_and(0xFFFFE000LL).to(at::kInt);
    call.out[0].copy_(sum.to(at::kFloat) * bits.contiguous().view(at::kFloat).view(column));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(MatMul, check_multiply(arguments, "transpose_x1", "transpose_x2"),
       multiply(arguments, "transpose_x1", "transpose_x2"))
LEGACY(MatMulV2, check_multiply(arguments, "transpose_x1", "transpose_x2"),
       multiply(arguments, "transpose_x1", "transpose_x2"))
LEGACY(BatchMatMul, check_multiply(arguments, "adj_x1", "adj_x2"), multiply(arguments, "adj_x1", "adj_x2"))
LEGACY(Conv2D, check_floating(in); check_convolve(in[0], in[1], out[0], attributes), convolve(arguments))
LEGACY(Conv3D, check_floating(in); check_convolve(in[0], in[1], out[0], attributes), convolve(arguments))
// The gradients take the shape of what they differentiate by as an input of integers; the output has it too.
LEGACY(Conv2DBackpropInput, check_floating(in);
       check_convolve(out[0], in[1], in[2], attributes), differentiate(in[2], out[0], in[1], 0, arguments))
LEGACY(Conv3DBackpropInput, check_floating(in);
       check_convolve(out[0], in[1], in[2], attributes), differentiate(in[2], out[0], in[1], 0, arguments))
LEGACY(Conv2DBackpropFilter, check_floating(in);
       check_convolve(in[0], out[0], in[2], attributes), differentiate(in[2], in[0], out[0], 1, arguments))
LEGACY(Conv3DBackpropFilter, check_floating(in);
       check_convolve(in[0], out[0], in[2], attributes), differentiate(in[2], in[0], out[0], 1, arguments))
LEGACY(Conv2DTranspose, check_floating(in); check_transpose(arguments), transpose(arguments))
LEGACY(Conv3DTranspose, check_floating(in); check_transpose(arguments), transpose(arguments))
// The filter is [out / in, in, ...] here, its gradient as torch has it.
LEGACY(DepthwiseConv2DBackpropInput, check_floating(in); by_channel(arguments, out[0]);
       check_convolve(out[0], in[1].transpose(0, 1), in[2], attributes),
       differentiate(in[2], out[0], in[1].transpose(0, 1), 0, arguments))
LEGACY(DepthwiseConv2DBackpropFilter, check_floating(in); by_channel(arguments, in[0]);
       check_convolve(in[0], out[0], in[2], attributes), differentiate(in[2], in[0], out[0], 1, arguments))
LEGACY(QuantConv2D, check_quantize(arguments), quantize(arguments))
