// What a deformable convolution samples, in NHWC, or in NCHW by way of it: each kernel position of each output reads x
// where an offset moves it, bilinearly with zeros outside, times a weight. Offsets hold, per group of channels and
// kernel position, first all shifts along the width, then all along the height, then all weights.
#include <cmath>

#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

struct Grid {
    int64_t batch, height, width, channels, rows, columns, groups, kernel[2], stride[2], pad[2], dilation[2];
};

std::vector<int64_t> numbers(const aclopAttr &attributes, const char *name, size_t count) {
    const auto values = attribute<std::vector<int64_t>>(attributes, name, std::vector<int64_t>(count, 1));
    if (values.size() != count)
        fail(FaultKind::InvalidArgument, "attribute {} has {} values, expected {}", name, values.size(), count);
    return values;
}

bool channels_first(const aclopAttr &attributes) {
    const auto format = attribute<std::string>(attributes, "data_format", "NHWC");
    if ((format != "NHWC" && format != "NCHW") || !attribute<bool>(attributes, "modulated", true))
        fail(FaultKind::InvalidArgument, "attributes data_format and modulated are not NHWC or NCHW, and true");
    return format == "NCHW";
}

at::Tensor channels_last(const at::Tensor &tensor, const aclopAttr &attributes) {
    if (!channels_first(attributes)) return tensor;
    if (tensor.dim() != 4)
        fail(FaultKind::InvalidArgument, "an operand is {}, expected 4 dimensions", describe(tensor));
    return tensor.permute({0, 2, 3, 1});
}

// `y` has what was sampled, or its gradient. All in NHWC.
Grid grid(const at::Tensor &x, const at::Tensor &offsets, const at::Tensor &y, const aclopAttr &attributes) {
    allowed(x, kNative, "x");
    const size_t height = channels_first(attributes) ? 2 : 1;  // among the strides and dilations
    const auto kernel = numbers(attributes, "ksize", 2), stride = numbers(attributes, "strides", 4),
               pads = numbers(attributes, "pads", 4), dilation = numbers(attributes, "dilations", 4);
    if (x.dim() != 4 || offsets.dim() != 4)
        fail(FaultKind::InvalidArgument, "x is {} and offsets {}, expected 4 dimensions", describe(x),
             describe(offsets));
    const auto groups = attribute<int64_t>(attributes, "deformable_groups", 1);
    const Grid made{x.size(0),
                    x.size(1),
                    x.size(2),
                    x.size(3),
                    offsets.size(1),
                    offsets.size(2),
                    groups,
                    {kernel[0], kernel[1]},
                    {stride[height], stride[height + 1]},
                    {pads[0], pads[2]},
                    {dilation[height], dilation[height + 1]}};
    if (groups < 1 || made.channels % groups != 0)
        fail(FaultKind::InvalidArgument, "attribute deformable_groups is {} for {}", groups, describe(x));
    sizes(offsets, {made.batch, -1, -1, 3 * groups * kernel[0] * kernel[1]}, "offsets");
    sizes(y, {made.batch, made.rows * kernel[0], made.columns * kernel[1], made.channels}, "what is sampled");
    return made;
}

// visit(x, y, offset): the index of the first channel in a batch's sampled image, the index of its shift along the
// width in offsets, and where it reads.
template <class Visit>
void walk(const Grid &g, Visit visit) {
    const int64_t positions = g.kernel[0] * g.kernel[1], shifts = g.groups * positions;
    for (int64_t n = 0; n < g.batch; ++n)
        for (int64_t row = 0; row < g.rows; ++row)
            for (int64_t column = 0; column < g.columns; ++column)
                for (int64_t group = 0; group < g.groups; ++group)
                    for (int64_t k = 0; k < positions; ++k) {
                        const int64_t kh = k / g.kernel[1], kw = k % g.kernel[1];
                        const int64_t y =
                            ((n * g.rows * g.kernel[0] + row * g.kernel[0] + kh) * g.columns + column) * g.kernel[1] +
                            kw;
                        const int64_t shift =
                            ((n * g.rows + row) * g.columns + column) * 3 * shifts + group * positions + k;
                        visit(n, y * g.channels + group * (g.channels / g.groups), group, shift,
                              static_cast<float>(row * g.stride[0] - g.pad[0] + kh * g.dilation[0]),
                              static_cast<float>(column * g.stride[1] - g.pad[1] + kw * g.dilation[1]));
                    }
}

// A neighbour of a place: its weight, the weight's slopes along height and width, and where its channels begin.
struct Corner {
    float weight, by_height, by_width;
    int64_t at;
};

std::vector<Corner> corners(const Grid &g, int64_t n, int64_t group, float h, float w) {
    std::vector<Corner> found;
    if (!(h > -1 && w > -1 && h < static_cast<float>(g.height) && w < static_cast<float>(g.width))) return found;
    const float top = std::floor(h), left = std::floor(w);
    for (int i = 0; i < 4; ++i) {
        const bool low = (i & 2) != 0, right = (i & 1) != 0;
        const auto row = static_cast<int64_t>(top) + low, column = static_cast<int64_t>(left) + right;
        if (row < 0 || row >= g.height || column < 0 || column >= g.width) continue;
        const float along_h = low ? h - top : 1 - (h - top), along_w = right ? w - left : 1 - (w - left);
        found.push_back({along_h * along_w, low ? along_w : -along_w, right ? along_h : -along_h,
                         ((n * g.height + row) * g.width + column) * g.channels + group * (g.channels / g.groups)});
    }
    return found;
}

void sample(const Grid &g, const at::Tensor &x, const at::Tensor &offsets, at::Tensor &out) {
    const at::Tensor from = x.to(at::kFloat).contiguous(), moves = offsets.to(at::kFloat).contiguous();
    at::Tensor result = at::zeros(out.sizes(), at::kFloat);
    const float *source = from.const_data_ptr<float>(), *shift = moves.const_data_ptr<float>();
    float *to = result.mutable_data_ptr<float>();
    const int64_t apart = g.groups * g.kernel[0] * g.kernel[1], channels = g.channels / g.groups;
    walk(g, [&](int64_t n, int64_t y, int64_t group, int64_t at, float h, float w) {
        for (const Corner &corner : corners(g, n, group, h + shift[at + apart], w + shift[at]))
            for (int64_t c = 0; c < channels; ++c)
                to[y + c] += corner.weight * shift[at + 2 * apart] * source[corner.at + c];
    });
    out.copy_(result);
}

void sample_grad(const Grid &g, const at::Tensor &grad, const at::Tensor &x, const at::Tensor &offsets,
                 at::Tensor &grad_x, at::Tensor &grad_offsets) {
    const at::Tensor from = x.to(at::kFloat).contiguous(), moves = offsets.to(at::kFloat).contiguous(),
                     given = grad.to(at::kFloat).contiguous();
    at::Tensor to_x = at::zeros(x.sizes(), at::kFloat), to_moves = at::zeros(offsets.sizes(), at::kFloat);
    const float *source = from.const_data_ptr<float>(), *shift = moves.const_data_ptr<float>(),
                *slope = given.const_data_ptr<float>();
    float *dx = to_x.mutable_data_ptr<float>(), *dmoves = to_moves.mutable_data_ptr<float>();
    const int64_t apart = g.groups * g.kernel[0] * g.kernel[1], channels = g.channels / g.groups;
    walk(g, [&](int64_t n, int64_t y, int64_t group, int64_t at, float h, float w) {
        const float weight = shift[at + 2 * apart];
        double by_width = 0, by_height = 0, by_weight = 0;  // differences of corners, which cancel
        for (const Corner &corner : corners(g, n, group, h + shift[at + apart], w + shift[at])) {
            double value = 0;
            for (int64_t c = 0; c < channels; ++c) {
                value += static_cast<double>(slope[y + c]) * source[corner.at + c];
                dx[corner.at + c] += corner.weight * weight * slope[y + c];
            }
            by_width += corner.by_width * value;
            by_height += corner.by_height * value;
            by_weight += corner.weight * value;
        }
        dmoves[at] = static_cast<float>(by_width * weight);
        dmoves[at + apart] = static_cast<float>(by_height * weight);
        dmoves[at + 2 * apart] = static_cast<float>(by_weight);
    });
    grad_x.copy_(to_x);
    grad_offsets.copy_(to_moves);
}

Grid forward_grid(LegacyArguments &call) {
    const auto last = [&](const at::Tensor &tensor) { return channels_last(tensor, call.attributes); };
    return grid(last(call.in[0]), last(call.in[1]), last(call.out[0]), call.attributes);
}

// in: the gradient, x, offsets.
Grid backward_grid(LegacyArguments &call) {
    const auto last = [&](const at::Tensor &tensor) { return channels_last(tensor, call.attributes); };
    sizes(call.out[0], call.in[1].sizes(), "the gradient of x");
    sizes(call.out[1], call.in[2].sizes(), "the gradient of offsets");
    return grid(last(call.in[1]), last(call.in[2]), last(call.in[0]), call.attributes);
}

void forward(LegacyArguments &call) {
    const auto last = [&](const at::Tensor &tensor) { return channels_last(tensor, call.attributes); };
    at::Tensor out = last(call.out[0]);
    sample(forward_grid(call), last(call.in[0]), last(call.in[1]), out);
}

void backward(LegacyArguments &call) {
    const auto last = [&](const at::Tensor &tensor) { return channels_last(tensor, call.attributes); };
    at::Tensor to_x = last(call.out[0]), to_offsets = last(call.out[1]);
    sample_grad(backward_grid(call), last(call.in[0]), last(call.in[1]), last(call.in[2]), to_x, to_offsets);
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(DeformableOffsets, forward_grid(arguments), forward(arguments))
LEGACY(DeformableOffsetsGrad, backward_grid(arguments), backward(arguments))
