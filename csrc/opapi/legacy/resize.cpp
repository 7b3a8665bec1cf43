// Images of the old API in another size, NCHW, as MindSpore's layers ask for them. Three ways to lay one grid onto the
// other: the corners on each other, the pixels' centres, or, with neither attribute, the first pixels.
#include <cmath>

#include "opapi/aclnn/precision.h"
#include "opapi/legacy/legacy.h"
#include "opapi/legacy/operands.h"

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
void resized(LegacyArguments &call) {
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

at::Tensor nearest(const at::Tensor &x, int64_t axis, int64_t count, Grid over) {
    const at::Tensor at_ = origins(x.size(axis), count, over);
    const at::Tensor places =
        (over.corners ? (at_ + 0.5).floor() : at_.floor()).clamp(0, static_cast<double>(x.size(axis) - 1));
    return x.index_select(axis, places.to(at::kLong));
}

at::Tensor linear(const at::Tensor &x, int64_t axis, int64_t count, Grid over) {
    const int64_t last = x.size(axis) - 1;
    at::Tensor place = origins(x.size(axis), count, over);
    if (over.centres) place = (place - 0.5).clamp_min(0);
    const at::Tensor low = place.floor().clamp(0, static_cast<double>(last));
    std::vector<int64_t> form(static_cast<size_t>(x.dim()), 1);
    form[static_cast<size_t>(axis)] = count;
    const at::Tensor share = (place - low).clamp(0, 1).to(x.scalar_type()).reshape(form);
    const at::Tensor from = low.to(at::kLong), to = (from + 1).clamp_max(last);
    const at::Tensor first = x.index_select(axis, from);
    return first + (x.index_select(axis, to) - first) * share;
}

template <at::Tensor (*along)(const at::Tensor &, int64_t, int64_t, Grid)>
void resize(LegacyArguments &call) {
    const Grid over = grid(call.attributes);
    const at::Tensor rows = along(widened(call.in[0]), 2, call.out[0].size(2), over);
    call.out[0].copy_(along(rows, 3, call.out[0].size(3), over));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(ResizeNearestNeighborV2, resized(arguments), resize<nearest>(arguments))
LEGACY(ResizeBilinearV2, resized(arguments), resize<linear>(arguments))
