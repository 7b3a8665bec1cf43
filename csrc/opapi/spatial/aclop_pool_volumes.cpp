// Windows of the old API in three dimensions, NCDHW, and adaptive means, as MindSpore's layers ask for them. In fp32
// and rounded once.
#include <limits>

#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

using List = std::vector<int64_t>;

struct Window {
    List size, stride, pads;  // pads: before and after depth, height and width
    bool ceil;
};

bool ceil_mode(const aclopAttr &attributes) {  // an integer of MaxPool3D, a bool of AvgPool3D
    const auto found = attributes.values.find("ceil_mode");
    if (found == attributes.values.end()) return false;
    if (const bool *flag = std::get_if<bool>(&found->second)) return *flag;
    return attribute<int64_t>(attributes, "ceil_mode", 0) != 0;
}

List spatial(const aclopAttr &attributes, const char *name) {
    const List given = attribute<List>(attributes, name, {});
    if (given.size() != 5)
        fail(FaultKind::InvalidArgument, "attribute {} has {} values, expected 5", name, given.size());
    for (const int64_t each : given)
        if (each < 1) fail(FaultKind::InvalidArgument, "attribute {} has the value {}", name, each);
    return {given.begin() + 2, given.end()};
}

Window window(const at::Tensor &x, const aclopAttr &attributes) {
    if (attribute<std::string>(attributes, "data_format", "NCDHW") != "NCDHW")
        fail(FaultKind::Unsupported, "The virtual NPU has data_format NCDHW only.");
    sizes(x, {-1, -1, -1, -1, -1}, "x");
    Window made{spatial(attributes, "ksize"), spatial(attributes, "strides"),
                attribute<List>(attributes, "pads", List(6, 0)), ceil_mode(attributes)};
    if (made.pads.size() != 6) fail(FaultKind::InvalidArgument, "attribute pads has {} values", made.pads.size());
    const auto padding = attribute<std::string>(attributes, "padding", "CALCULATED");
    if (padding == "VALID") made.pads = List(6, 0);
    for (size_t i = 0; padding == "SAME" && i < 3; ++i) {
        const int64_t side = x.size(static_cast<int64_t>(i) + 2), steps = (side + made.stride[i] - 1) / made.stride[i];
        const int64_t missing = std::max<int64_t>(0, (steps - 1) * made.stride[i] + made.size[i] - side);
        made.pads[2 * i] = missing / 2;
        made.pads[2 * i + 1] = missing - missing / 2;
    }
    return made;
}

// torch's functions pad both ends alike: what is missing of that is padded here, with a value that does not count.
at::Tensor padded(const at::Tensor &x, const Window &over, double value) {
    return at::constant_pad_nd(x, {over.pads[4], over.pads[5], over.pads[2], over.pads[3], over.pads[0], over.pads[1]},
                               value);
}

at::Tensor inner(const at::Tensor &whole, const at::Tensor &like, const Window &over) {
    at::Tensor part = whole;
    for (size_t i = 0; i < 3; ++i)
        part = part.narrow(static_cast<int64_t>(i) + 2, over.pads[2 * i], like.size(static_cast<int64_t>(i) + 2));
    return part;
}

List counted(const at::Tensor &x, const Window &over) {
    List out{x.size(0), x.size(1)};
    for (size_t i = 0; i < 3; ++i) {
        const int64_t side = x.size(static_cast<int64_t>(i) + 2) + over.pads[2 * i] + over.pads[2 * i + 1];
        if (side < over.size[i])
            fail(FaultKind::InvalidArgument, "windows of {} do not fit into {}", over.size[i], side);
        const int64_t steps = (side - over.size[i] + (over.ceil ? over.stride[i] - 1 : 0)) / over.stride[i] + 1;
        // No window begins in what is padded behind.
        const bool beyond =
            over.ceil && (steps - 1) * over.stride[i] >= x.size(static_cast<int64_t>(i) + 2) + over.pads[2 * i];
        out.push_back(beyond ? steps - 1 : steps);
    }
    return out;
}

constexpr double kLowest = -std::numeric_limits<double>::infinity();

std::tuple<at::Tensor, at::Tensor> maxima(const at::Tensor &x, const Window &over) {
    return at::max_pool3d_with_indices(padded(widened(x), over, kLowest), over.size, over.stride, {0, 0, 0}, {1, 1, 1},
                                       over.ceil);
}

// x, y, gradient.
void maxima_gradient(LegacyArguments &call) {
    const Window over = window(call.in[0], call.attributes);
    const at::Tensor x = padded(widened(call.in[0]), over, kLowest);
    const at::Tensor slope =
        at::max_pool3d_with_indices_backward(widened(call.in[2]).contiguous(), x, over.size, over.stride, {0, 0, 0},
                                             {1, 1, 1}, over.ceil, std::get<1>(maxima(call.in[0], over)));
    call.out[0].copy_(inner(slope, call.out[0], over));
}

// What the elements of a window are divided by: their number, with the padding or without it, or a number that is
// given.
at::Tensor divisors(const at::Tensor &x, const Window &over, const aclopAttr &attributes) {
    const double whole = static_cast<double>(c10::multiply_integers(over.size));
    if (const auto given = attribute<int64_t>(attributes, "divisor_override", 0); given != 0)
        return at::full({}, static_cast<double>(given));
    const bool padding_counts = attribute<bool>(attributes, "count_include_pad", true);
    const at::Tensor ones = at::ones({1, 1, x.size(2), x.size(3), x.size(4)});
    // Beyond the padding, where ceil_mode lets the last windows reach, nothing counts.
    return at::avg_pool3d(padded(ones, over, padding_counts ? 1 : 0), over.size, over.stride, {0, 0, 0}, over.ceil,
                          false, static_cast<int64_t>(whole)) *
           whole;
}

at::Tensor sums(const at::Tensor &x, const Window &over) {
    return at::avg_pool3d(padded(widened(x), over, 0), over.size, over.stride, {0, 0, 0}, over.ceil, false, 1);
}

// The shape of x, gradient.
void means_gradient(LegacyArguments &call) {
    const Window over = window(call.out[0], call.attributes);
    const at::Tensor x = padded(at::zeros(call.out[0].sizes()), over, 0);
    const at::Tensor shares = (widened(call.in[1]) / divisors(call.out[0], over, call.attributes)).contiguous();
    call.out[0].copy_(inner(at::avg_pool3d_backward(shares, x, over.size, over.stride, {0, 0, 0}, over.ceil, false, 1),
                            call.out[0], over));
}

void check_pool(LegacyArguments &call) {
    allowed(call.in[0], kNative, "x");
    sizes(call.out[0], counted(call.in[0], window(call.in[0], call.attributes)), "the output");
}

void check_adaptive(const at::Tensor &x, const at::Tensor &gradient, const List &shape) {
    allowed(gradient, kNative, "the gradient");
    sizes(x, shape, "the gradient of x");
    if (gradient.dim() != x.dim() || gradient.size(0) != x.size(0) || gradient.size(1) != x.size(1))
        fail(FaultKind::InvalidArgument, "the gradient is {} for {}", describe(gradient), describe(x));
}

void check_three(LegacyArguments &call) {
    allowed(call.in[0], kNative, "x");
    const List size = attribute<List>(call.attributes, "output_size", {});
    if (size.size() != 3) fail(FaultKind::InvalidArgument, "attribute output_size has {} values", size.size());
    holds(call.out[0], call.in[0].size(0) * call.in[0].size(1) * c10::multiply_integers(size), "the output");
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(MaxPool3D, check_pool(arguments), put(out[0], std::get<0>(maxima(in[0], window(in[0], attributes)))))
LEGACY(MaxPool3DGrad, allowed(in[0], kNative, "x"); alike(out[0], in[0], "the gradient of x");
       sizes(in[2], counted(in[0], window(in[0], attributes)), "the gradient"), maxima_gradient(arguments))
LEGACY(AvgPool3D, check_pool(arguments), const Window over = window(in[0], attributes);
       put(out[0], sums(in[0], over) / divisors(in[0], over, attributes)))
LEGACY(AvgPool3DGrad, allowed(in[1], kNative, "the gradient"); sizes(out[0], ints(in[0]), "the gradient of x");
       sizes(in[1], counted(out[0], window(out[0], attributes)), "the gradient"), means_gradient(arguments))
LEGACY(CustAdaptiveAvgPool2DGrad, check_adaptive(out[0], in[0], ints(in[1])),
       put(out[0], at::_adaptive_avg_pool2d_backward(widened(in[0]), at::zeros(out[0].sizes()))))
LEGACY(CustAdaptiveAvgPool3d, check_three(arguments),
       put(out[0], at::adaptive_avg_pool3d(widened(in[0]), attribute<List>(attributes, "output_size", {}))))
LEGACY(CustAdaptiveAvgPool3dGrad, check_adaptive(out[0], in[0], ints(in[1])),
       put(out[0], at::_adaptive_avg_pool3d_backward(widened(in[0]), at::zeros(out[0].sizes()))))
