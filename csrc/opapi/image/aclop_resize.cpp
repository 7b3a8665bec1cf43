// Images of the old API in another size, NCHW, as MindSpore's layers ask for them. Three ways to lay one grid onto the
// other: the corners on each other, the pixels' centres, or, with neither attribute, the first pixels.
#include <cmath>

#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

struct Grid {
    bool corners, centres;
};

Grid grid(const aclopAttr &attributes) {
    const Grid found{attribute<bool>(attributes, "align_corners", false),
                     attribute<bool>(attributes, "half_pixel_centers", false)};
    if (found.corners && found.centres)
        fail(FaultKind::InvalidArgument, "attributes align_corners and half_pixel_centers are both true");
    return found;
}

// x, height and width.
void check_resized(LegacyArguments &call) {
    grid(call.attributes);
    allowed(call.in[0], kNative, "x");
    const std::vector<int64_t> size = ints(call.in[1]);
    if (call.in[0].dim() != 4 || size.size() != 2 || size[0] < 1 || size[1] < 1 || call.in[0].numel() == 0)
        fail(FaultKind::InvalidArgument, "x is {} and size has {} values, expected 4 dimensions and 2 positive values",
             describe(call.in[0]), size.size());
    sizes(call.out[0], {call.in[0].size(0), call.in[0].size(1), size[0], size[1]}, "the output");
}

// Where each of `count` pixels comes from among `from`.
at::Tensor origins(int64_t from, int64_t count, Grid over) {
    const at::Tensor each = at::arange(count, at::kDouble);
    if (over.corners) return each * (count > 1 ? static_cast<double>(from - 1) / static_cast<double>(count - 1) : 0.0);
    const double scale = static_cast<double>(from) / static_cast<double>(count);
    return over.centres ? (each + 0.5) * scale : each * scale;
}

at::Tensor nearest_places(int64_t from, int64_t count, Grid over) {
    const at::Tensor at_ = origins(from, count, over);
    return (over.corners ? (at_ + 0.5).floor() : at_.floor()).clamp(0, static_cast<double>(from - 1)).to(at::kLong);
}

at::Tensor nearest(const at::Tensor &x, int64_t axis, int64_t count, Grid over) {
    return x.index_select(axis, nearest_places(x.size(axis), count, over));
}

// The two pixels of `from` between which each pixel lies, and the second one's share.
struct Between {
    at::Tensor low, high, share;
};

// `like` has the pixels along `axis`, or will have `count` of them.
Between between(int64_t from, const at::Tensor &like, int64_t axis, Grid over, int64_t count = -1) {
    const int64_t last = from - 1;
    if (count < 0) count = like.size(axis);
    at::Tensor place = origins(from, count, over);
    if (over.centres) place = (place - 0.5).clamp_min(0);
    const at::Tensor low = place.floor().clamp(0, static_cast<double>(last));
    std::vector<int64_t> form(static_cast<size_t>(like.dim()), 1);
    form[static_cast<size_t>(axis)] = count;
    const at::Tensor whole = low.to(at::kLong);
    return {whole, (whole + 1).clamp_max(last), (place - low).clamp(0, 1).to(like.scalar_type()).reshape(form)};
}

at::Tensor linear(const at::Tensor &x, int64_t axis, int64_t count, Grid over) {
    const Between two = between(x.size(axis), x, axis, over, count);
    const at::Tensor first = x.index_select(axis, two.low);
    return first + (x.index_select(axis, two.high) - first) * two.share;
}

// The other way: what each pixel has given comes back to it.
at::Tensor nearest_back(const at::Tensor &slope, int64_t axis, int64_t from, Grid over) {
    std::vector<int64_t> form(slope.sizes().begin(), slope.sizes().end());
    form[static_cast<size_t>(axis)] = from;
    return at::zeros(form, slope.options()).index_add(axis, nearest_places(from, slope.size(axis), over), slope);
}

at::Tensor linear_back(const at::Tensor &slope, int64_t axis, int64_t from, Grid over) {
    std::vector<int64_t> form(slope.sizes().begin(), slope.sizes().end());
    form[static_cast<size_t>(axis)] = from;
    const Between two = between(from, slope, axis, over);
    return at::zeros(form, slope.options())
        .index_add(axis, two.low, slope * (1 - two.share))
        .index_add(axis, two.high, slope * two.share);
}

template <at::Tensor (*along)(const at::Tensor &, int64_t, int64_t, Grid)>
void resize_back(LegacyArguments &call) {
    const Grid over = grid(call.attributes);
    const at::Tensor columns = along(widened(call.in[0]), 3, call.out[0].size(3), over);
    call.out[0].copy_(along(columns, 2, call.out[0].size(2), over));
}

// A row of pixels is an image one pixel high: MindSpore's gradient of a row (ResizeLinear1DGrad) brings it without.
std::vector<int64_t> image_size(const at::Tensor &image) {
    if (image.defined() && image.dim() == 3) return {1, image.size(2)};
    sizes(image, {-1, -1, -1, -1}, "the image");
    return image.sizes().slice(2).vec();
}

// The gradient and, for its sizes, the image or its height and width.
void check_resized_back(LegacyArguments &call, at::IntArrayRef size) {
    grid(call.attributes);
    if (call.out[0].defined() && call.out[0].dim() == 3) call.out[0] = call.out[0].unsqueeze(2);
    allowed(call.in[0], kNative, "the gradient");
    sizes(call.in[0], {-1, -1, -1, -1}, "the gradient");
    if (size.size() != 2 || size[0] < 1 || size[1] < 1 || call.in[0].numel() == 0)
        fail(FaultKind::InvalidArgument, "the gradient is {} and the size has {} values", describe(call.in[0]),
             size.size());
    sizes(call.out[0], {call.in[0].size(0), call.in[0].size(1), size[0], size[1]}, "the gradient of x");
}

template <at::Tensor (*along)(const at::Tensor &, int64_t, int64_t, Grid)>
void resize(LegacyArguments &call) {
    const Grid over = grid(call.attributes);
    const at::Tensor rows = along(widened(call.in[0]), 2, call.out[0].size(2), over);
    call.out[0].copy_(along(rows, 3, call.out[0].size(3), over));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(ResizeNearestNeighborV2, check_resized(arguments), resize<nearest>(arguments))
LEGACY(ResizeBilinearV2, check_resized(arguments), resize<linear>(arguments))
LEGACY(ResizeNearestNeighborV2Grad, check_resized_back(arguments, ints(in[1])), resize_back<nearest_back>(arguments))
LEGACY(ResizeBilinearV2Grad, check_resized_back(arguments, image_size(in[1])), resize_back<linear_back>(arguments))
