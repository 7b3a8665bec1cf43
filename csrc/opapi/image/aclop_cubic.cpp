// Images of the old API in another size by weights of neighbours: each axis is a matrix of them, and the gradient its
// transpose. In double, rounded once.
#include <fmt/ranges.h>

#include <cmath>

#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

using List = std::vector<int64_t>;

enum class Origin : uint8_t { Corners, Centres, First };

// Where pixel `i` of `count` comes from among `from`.
double place(int64_t i, int64_t from, int64_t count, Origin origin) {
    const auto at = static_cast<double>(i), all = static_cast<double>(from);
    if (origin == Origin::Corners) return count > 1 ? at * (all - 1) / static_cast<double>(count - 1) : 0;
    const double scale = all / static_cast<double>(count);
    return origin == Origin::Centres ? (at + 0.5) * scale - 0.5 : at * scale;
}

// Keys' cubic kernel with coefficient `a`, at a distance.
double keys(double distance, double a) {
    const double d = std::abs(distance);
    if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

struct Kernel {
    bool cubic;
    double a;          // Keys' coefficient
    bool inside;       // of a cubic kernel: pixels beyond the edges have no weight, rather than the edge's value
    int64_t fraction;  // steps between two pixels that are told apart; 0: all
};

// [count, from].
at::Tensor weights(int64_t from, int64_t count, Origin origin, const Kernel &kernel) {
    at::Tensor made = at::zeros({count, from}, at::kDouble);
    double *to = made.mutable_data_ptr<double>();
    for (int64_t i = 0; i < count; ++i, to += from) {
        double at = place(i, from, count, origin);
        if (!kernel.cubic) at = std::max(at, 0.0);
        const double low = std::floor(at);
        double share = at - low;
        if (kernel.fraction > 0)
            share = std::nearbyint(share * static_cast<double>(kernel.fraction)) / static_cast<double>(kernel.fraction);
        double sum = 0;
        for (int64_t k = kernel.cubic ? -1 : 0; k <= (kernel.cubic ? 2 : 1); ++k) {
            const double distance = share - static_cast<double>(k);
            const double weight = kernel.cubic ? keys(distance, kernel.a) : 1 - std::abs(distance);
            const int64_t pixel = static_cast<int64_t>(low) + k, near = std::clamp<int64_t>(pixel, 0, from - 1);
            if (kernel.cubic && kernel.inside && near != pixel) continue;
            to[near] += weight;
            sum += weight;
        }
        if (kernel.cubic && kernel.inside && sum != 0)
            for (int64_t j = 0; j < from; ++j) to[j] /= sum;
    }
    return made;
}

// Height and width of an image, [N, C, H, W].
struct Resizing {
    at::Tensor height, width;
};

at::Tensor resized(const at::Tensor &x, const Resizing &by) {
    return at::matmul(at::matmul(by.height, x.to(at::kDouble)), by.width.t());
}

at::Tensor slope(const at::Tensor &given, const Resizing &by) {
    return at::matmul(at::matmul(by.height.t(), given.to(at::kDouble)), by.width);
}

Resizing of(const at::Tensor &small, const at::Tensor &large, Origin origin, const Kernel &kernel) {
    return {weights(small.size(2), large.size(2), origin, kernel),
            weights(small.size(3), large.size(3), origin, kernel)};
}

// MindSpore's own kernel (resize_bicubic.cc), which is TensorFlow's: a table of 1024 steps; with the centres on each
// other Keys' own coefficient, and no weight for what lies outside.
Resizing bicubic(const at::Tensor &x, const at::Tensor &y, const aclopAttr &attributes) {
    constexpr int64_t kSteps = 1024;
    const bool corners = attribute<bool>(attributes, "align_corners", false),
               centres = attribute<bool>(attributes, "half_pixel_centers", false);
    if (corners && centres)
        fail(FaultKind::InvalidArgument, "attributes align_corners and half_pixel_centers are both true");
    return of(x, y,
              corners   ? Origin::Corners
              : centres ? Origin::Centres
                        : Origin::First,
              {true, centres ? -0.5 : -0.75, centres, kSteps});
}

void check_image(const at::Tensor &tensor, std::string_view what) {
    allowed(tensor, {at::kHalf, at::kFloat, at::kDouble}, what);
    sizes(tensor, {-1, -1, -1, -1}, what);
    if (tensor.size(2) < 1 || tensor.size(3) < 1)
        fail(FaultKind::InvalidArgument, "{} is {}, which has no pixels", what, describe(tensor));
}

// One has the batch and the channels of the other.
void check_images(const at::Tensor &x, const at::Tensor &y) {
    check_image(x, "the image");
    check_image(y, "the resized image");
    sizes(y, {x.size(0), x.size(1), -1, -1}, "the resized image");
}

void check_bicubic(LegacyArguments &call) {
    check_images(call.in[0], call.out[0]);
    const List size = ints(call.in[1]);
    if (size.size() != 2) fail(FaultKind::InvalidArgument, "size has {} values, expected 2", size.size());
    sizes(call.out[0], {call.in[0].size(0), call.in[0].size(1), size[0], size[1]}, "the output");
    bicubic(call.in[0], call.out[0], call.attributes);
}

// ResizeD and its gradient: linear along the width of images that are one pixel high, or cubic.
Resizing by_mode(const at::Tensor &x, const at::Tensor &y, const aclopAttr &attributes) {
    const auto mode = attribute<std::string>(attributes, "mode", "nearest");
    const auto origin = attribute<std::string>(attributes, "coordinate_transformation_mode", "half_pixel");
    if (mode != "linear" && mode != "cubic")
        fail(FaultKind::InvalidArgument, "attribute mode is \"{}\", allowed are linear and cubic", mode);
    if (mode == "linear" && (x.size(2) != 1 || y.size(2) != 1))
        fail(FaultKind::InvalidArgument, "images are {} and {}, expected a height of 1 where mode is linear",
             describe(x), describe(y));
    if (origin != "half_pixel" && origin != "align_corners" && origin != "asymmetric" && origin != "pytorch_half_pixel")
        fail(FaultKind::Unsupported, "The virtual NPU does not have coordinate_transformation_mode {} of ResizeD.",
             origin);
    if (attribute<int64_t>(attributes, "exclude_outside", 0) != 0)
        fail(FaultKind::Unsupported, "The virtual NPU does not have exclude_outside of ResizeD.");
    return of(x, y,
              origin == "align_corners" ? Origin::Corners
              : origin == "asymmetric"  ? Origin::First
                                        : Origin::Centres,
              {mode == "cubic", attribute<float>(attributes, "cubic_coeff_a", -0.75F), false, 0});
}

// `sizes` and `original_size` end with what they are of: the width, height and width, or all four.
void check_size(const at::Tensor &tensor, const aclopAttr &attributes, const char *name) {
    const List given = attribute<List>(attributes, name, {});
    const at::IntArrayRef whole = tensor.sizes();
    if (given.empty() || given.size() > 4 || whole.slice(4 - given.size()) != at::IntArrayRef(given))
        fail(FaultKind::InvalidArgument, "attribute {} is [{}] for {}", name, fmt::join(given, ", "), describe(tensor));
}

void check_mode(const at::Tensor &x, const at::Tensor &y, const at::Tensor &sized_one, const aclopAttr &attributes,
                const char *name) {
    check_images(x, y);
    allowed(y, x.scalar_type(), "the resized image");
    check_size(sized_one, attributes, name);
    by_mode(x, y, attributes);
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(CustResizeBicubic, check_bicubic(arguments), out[0].copy_(resized(in[0], bicubic(in[0], out[0], attributes))))
// in: the gradient, the image. In NHWC by CANN's prototype; MindSpore brings NCHW.
LEGACY(ResizeBicubicGrad, check_images(in[1], in[0]); alike(out[0], in[1], "the output");
       bicubic(in[1], in[0], attributes), out[0].copy_(slope(in[0], bicubic(in[1], in[0], attributes))))
LEGACY(ResizeD, check_mode(in[0], out[0], out[0], attributes, "sizes"),
       out[0].copy_(resized(in[0], by_mode(in[0], out[0], attributes))))
LEGACY(ResizeGradD, check_mode(out[0], in[0], out[0], attributes, "original_size"),
       out[0].copy_(slope(in[0], by_mode(out[0], in[0], attributes))))
