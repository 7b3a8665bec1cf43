// Windows of the old API, as MindSpore's layers ask for them: maxima and means in two dimensions, NCHW.
#include <limits>

#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

struct Windows {
    std::vector<int64_t> size, stride;
    std::vector<int64_t> pad;  // left, right, top, bottom
    std::vector<int64_t> out;
};

// Padding "SAME" pads so that there is a window for each stride; "VALID" does not pad.
Windows windows(at::IntArrayRef input, const aclopAttr &attributes) {
    using List = std::vector<int64_t>;
    const auto size = attribute<List>(attributes, "ksize", {}), stride = attribute<List>(attributes, "strides", {});
    const auto padding = attribute<std::string>(attributes, "padding", "");
    if (input.size() != 4 || size.size() != 4 || stride.size() != 4)
        fail(FaultKind::InvalidArgument, "x has {} dimensions, ksize {} and strides {} values, expected 4 each",
             input.size(), size.size(), stride.size());
    if (attribute<std::string>(attributes, "data_format", "NCHW") != "NCHW")
        fail(FaultKind::Unsupported, "The virtual NPU has data_format NCHW only.");
    if (padding != "SAME" && padding != "VALID")
        fail(FaultKind::InvalidArgument, "attribute padding is \"{}\", allowed are SAME and VALID", padding);
    Windows found{{size[2], size[3]}, {stride[2], stride[3]}, {0, 0, 0, 0}, {input[0], input[1]}};
    for (size_t i = 0; i < 2; ++i) {
        const int64_t length = input[i + 2], k = found.size[i], s = found.stride[i];
        if (k < 1 || s < 1 || (padding == "VALID" && k > length))
            fail(FaultKind::InvalidArgument, "windows of {} in steps of {} do not fit into {}", k, s, length);
        const int64_t count = padding == "SAME" ? (length + s - 1) / s : (length - k) / s + 1;
        const int64_t missing = std::max<int64_t>(0, (count - 1) * s + k - length);
        if (padding == "SAME") {
            found.pad[2 - 2 * i] = missing / 2;
            found.pad[3 - 2 * i] = missing - missing / 2;
        }
        found.out.push_back(count);
    }
    return found;
}

at::Tensor padded(const at::Tensor &x, const Windows &over, double value) {
    return at::constant_pad_nd(widened(x), over.pad, value)
        .slice(2, 0, (over.out[2] - 1) * over.stride[0] + over.size[0])
        .slice(3, 0, (over.out[3] - 1) * over.stride[1] + over.size[1])
        .contiguous();
}

// The gradient of what was padded, in the place of x.
void cropped(at::Tensor &out, const at::Tensor &gradient, const Windows &over) {
    const at::Tensor whole = at::zeros(
        {out.size(0), out.size(1), out.size(2) + over.pad[2] + over.pad[3], out.size(3) + over.pad[0] + over.pad[1]},
        gradient.options());
    whole.slice(2, 0, gradient.size(2)).slice(3, 0, gradient.size(3)).copy_(gradient);
    out.copy_(whole.slice(2, over.pad[2], over.pad[2] + out.size(2)).slice(3, over.pad[0], over.pad[0] + out.size(3)));
}

void check_pooled(LegacyArguments &call) {
    allowed(call.in[0], kNative, "x");
    sizes(call.out[0], windows(call.in[0].sizes(), call.attributes).out, "the output");
}

constexpr double kLowest = -std::numeric_limits<double>::infinity();

void maxima(LegacyArguments &call) {
    const Windows over = windows(call.in[0].sizes(), call.attributes);
    call.out[0].copy_(at::max_pool2d(padded(call.in[0], over, kLowest), over.size, over.stride));
}

// x, y, gradient.
void check_maxima_gradient(LegacyArguments &call) {
    allowed(call.in[0], kNative, "x");
    sizes(call.in[2], windows(call.in[0].sizes(), call.attributes).out, "the gradient");
    alike(call.out[0], call.in[0], "the gradient of x");
}

void maxima_gradient(LegacyArguments &call) {
    const Windows over = windows(call.in[0].sizes(), call.attributes);
    const at::Tensor x = padded(call.in[0], over, kLowest);
    const auto [y, where] = at::max_pool2d_with_indices(x, over.size, over.stride);
    cropped(call.out[0],
            at::max_pool2d_with_indices_backward(widened(call.in[2]).contiguous(), x, over.size, over.stride, {0, 0},
                                                 {1, 1}, false, where),
            over);
}

// How many elements of x each window holds.
at::Tensor held(at::IntArrayRef input, const Windows &over) {
    const at::Tensor ones = at::ones({1, 1, input[2], input[3]});
    return at::avg_pool2d(padded(ones, over, 0), over.size, over.stride) *
           static_cast<double>(over.size[0] * over.size[1]);
}

void means(LegacyArguments &call) {
    const Windows over = windows(call.in[0].sizes(), call.attributes);
    const double whole = static_cast<double>(over.size[0] * over.size[1]);
    call.out[0].copy_(at::avg_pool2d(padded(call.in[0], over, 0), over.size, over.stride) * whole /
                      held(call.in[0].sizes(), over));
}

// The shape of x, gradient.
void check_means_gradient(LegacyArguments &call) {
    allowed(call.in[1], kNative, "the gradient");
    const std::vector<int64_t> input = ints(call.in[0]);
    sizes(call.out[0], input, "the gradient of x");
    sizes(call.in[1], windows(input, call.attributes).out, "the gradient");
}

void means_gradient(LegacyArguments &call) {
    const std::vector<int64_t> input = ints(call.in[0]);
    const Windows over = windows(input, call.attributes);
    const double whole = static_cast<double>(over.size[0] * over.size[1]);
    const at::Tensor x = padded(at::zeros(input), over, 0);
    cropped(call.out[0],
            at::avg_pool2d_backward((widened(call.in[1]) * whole / held(input, over)).contiguous(), x, over.size,
                                    over.stride, {0, 0}, false, true, std::nullopt),
            over);
}

// Windows in three dimensions, padded with what is less than all, and where their maxima lie; by the names of
// MindSpore's own operators. Without ceil_mode: MindSpore pads instead.
struct Volumes {
    std::vector<int64_t> size, stride, pad, dilation;
};

Volumes volumes(const aclopAttr &attributes) {
    using List = std::vector<int64_t>;
    const Volumes found{attribute<List>(attributes, "ksize", {}), attribute<List>(attributes, "strides", {}),
                        attribute<List>(attributes, "pads", {0, 0, 0}),
                        attribute<List>(attributes, "dilation", {1, 1, 1})};
    for (const List *each : {&found.size, &found.stride, &found.pad, &found.dilation})
        if (each->size() != 3) fail(FaultKind::InvalidArgument, "an attribute has {} values, expected 3", each->size());
    return found;
}

std::tuple<at::Tensor, at::Tensor> largest(LegacyArguments &call) {
    const Volumes over = volumes(call.attributes);
    return at::max_pool3d_with_indices(widened(call.in[0]), over.size, over.stride, over.pad, over.dilation,
                                       attribute<bool>(call.attributes, "ceil_mode", false));
}

// x, the gradient, where the maxima lie.
void largest_gradient(LegacyArguments &call) {
    const Volumes over = volumes(call.attributes);
    call.out[0].copy_(at::max_pool3d_with_indices_backward(
        widened(call.in[1]).contiguous(), widened(call.in[0]).contiguous(), over.size, over.stride, over.pad,
        over.dilation, attribute<bool>(call.attributes, "ceil_mode", false), call.in[2].to(at::kLong).contiguous()));
}

void check_largest(LegacyArguments &call) {
    volumes(call.attributes);
    allowed(call.in[0], kNative, "x");
    sizes(call.in[0], {-1, -1, -1, -1, -1}, "x");
}

void check_adaptive(LegacyArguments &call) {
    allowed(call.in[0], kNative, "x");
    const auto size = attribute<std::vector<int64_t>>(call.attributes, "output_size", {});
    if (size.size() != 2) fail(FaultKind::InvalidArgument, "attribute output_size has {} values", size.size());
    sizes(call.in[0], {-1, -1, -1, -1}, "x");
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(MaxPool, check_pooled(arguments), maxima(arguments))
LEGACY(MaxPoolGrad, check_maxima_gradient(arguments), maxima_gradient(arguments))
LEGACY(AvgPool, check_pooled(arguments), means(arguments))
LEGACY(AvgPoolGrad, check_means_gradient(arguments), means_gradient(arguments))
LEGACY(CustMaxPool3DWithArgmax, check_largest(arguments);
       allowed(out[1], {at::kInt, at::kLong}, "the places"), const auto [values, places] = largest(arguments);
       put(out[0], values); put(out[1], places))
LEGACY(CustMaxPool3DGradWithArgmax, check_largest(arguments); alike(out[0], in[0], "the gradient of x");
       holds(in[2], in[1].numel(), "the places"), largest_gradient(arguments))
LEGACY(CustAdaptiveAvgPool2D, check_adaptive(arguments),
       put(out[0],
           at::adaptive_avg_pool2d(widened(in[0]), attribute<std::vector<int64_t>>(attributes, "output_size", {}))))
