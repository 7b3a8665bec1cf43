// Region of interest pooling by bilinear samples. endMode says where a region ends: 0 at its corner, 1 a pixel behind
// it, 2 and 3 at its corner with all coordinates half a pixel less (torchvision's aligned=True). Parameters have no
// names in CANN's public headers: a1 are the regions [K, 5] (batch, x0, y0, x1, y1).
#include "opapi/spatial/roi_align.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

void check_roi_align(const Operand &features, const Operand &regions, const Operand &pooled,
                     const RoiPooling &pooling) {
    rank(features, {4});
    rank(regions, {2});
    dtype(features, {at::kFloat, at::kHalf});
    dtype(regions, {at::kFloat, at::kHalf});
    shape(regions, {regions.size(0), 5});
    shape(pooled, {regions.size(0), features.size(1), pooling.height, pooling.width});
    if (pooling.height <= 0 || pooling.width <= 0)
        fail(FaultKind::InvalidArgument, "the pooled size is {} x {}, expected positive numbers", pooling.height,
             pooling.width);
    if (pooling.samples < 0 || pooling.end_mode < 0 || pooling.end_mode > 3)
        fail(FaultKind::InvalidArgument, "sample_num is {} and roi_end_mode is {}, allowed are >= 0 and 0 to 3",
             pooling.samples, pooling.end_mode);
}

// The four neighbours of a sample and their weights; outside of the picture by more than a pixel, none.
struct Corner {
    int64_t at;
    float weight;
};
int corners(float y, float x, int64_t height, int64_t width, Corner (&out)[4]) {
    if (y < -1 || y > static_cast<float>(height) || x < -1 || x > static_cast<float>(width)) return 0;
    y = std::max(y, 0.0F);
    x = std::max(x, 0.0F);
    const int64_t top = std::min(static_cast<int64_t>(y), height - 1),
                  left = std::min(static_cast<int64_t>(x), width - 1);
    const int64_t bottom = std::min(top + 1, height - 1), right = std::min(left + 1, width - 1);
    const float down = top == bottom ? 0 : y - static_cast<float>(top),
                across = left == right ? 0 : x - static_cast<float>(left);
    out[0] = {top * width + left, (1 - down) * (1 - across)};
    out[1] = {top * width + right, (1 - down) * across};
    out[2] = {bottom * width + left, down * (1 - across)};
    out[3] = {bottom * width + right, down * across};
    return 4;
}

// visit(region, batch, cell, pixel, weight) for every sample's neighbour.
template <class Visit>
void samples(const float *regions, int64_t first, int64_t last, int64_t height, int64_t width,
             const RoiPooling &pooling, Visit visit) {
    const auto scale = static_cast<float>(pooling.scale);
    // ops-cv: roi_align_grad_simt.h, and torch_npu's test of its ROIAlign, whose aligned=True is mode 3. A kernel among
    // ops-cv's experimental ones takes 3 for 1 without the least size.
    const bool aligned = pooling.end_mode >= 2;
    const float shift = aligned ? 0.5F : 0.0F, beyond = pooling.end_mode == 1 ? 1.0F : 0.0F;
    for (int64_t r = first; r < last; ++r) {
        const float *region = regions + 5 * r;
        const float x0 = region[1] * scale - shift, y0 = region[2] * scale - shift;
        float wide = (region[3] + beyond) * scale - shift - x0, high = (region[4] + beyond) * scale - shift - y0;
        if (!aligned) {
            wide = std::max(wide, 1.0F);
            high = std::max(high, 1.0F);
        }
        const float cell_h = high / static_cast<float>(pooling.height),
                    cell_w = wide / static_cast<float>(pooling.width);
        const int64_t down = pooling.samples > 0 ? pooling.samples : static_cast<int64_t>(std::ceil(cell_h));
        const int64_t across = pooling.samples > 0 ? pooling.samples : static_cast<int64_t>(std::ceil(cell_w));
        const float share = 1.0F / static_cast<float>(std::max<int64_t>(down * across, 1));
        for (int64_t cell = 0; cell < pooling.height * pooling.width; ++cell) {
            const auto row = static_cast<float>(cell / pooling.width),
                       column = static_cast<float>(cell % pooling.width);
            for (int64_t sample = 0; sample < down * across; ++sample) {
                const float y =
                    y0 + cell_h * (row + (static_cast<float>(sample / across) + 0.5F) / static_cast<float>(down));
                const float x =
                    x0 + cell_w * (column + (static_cast<float>(sample % across) + 0.5F) / static_cast<float>(across));
                Corner near[4];
                const int count = corners(y, x, height, width, near);
                for (int i = 0; i < count; ++i)
                    visit(r, static_cast<int64_t>(region[0]), cell, near[i].at, near[i].weight * share);
            }
        }
    }
}

void batches_exist(const at::Tensor &regions, int64_t batches) {
    if (regions.size(0) == 0) return;
    const at::Tensor batch = regions.select(1, 0);
    TORCH_CHECK(batch.ge(0).logical_and_(batch.lt(batches)).all().item().toBool(),
                "the regions name a picture outside of 0 to ", batches - 1);
}

}  // namespace

void roi_align(const at::Tensor &features, const at::Tensor &regions, const RoiPooling &pooling, at::Tensor &out) {
    const at::Tensor in = features.to(at::kFloat).contiguous(), rois = regions.to(at::kFloat).contiguous();
    batches_exist(rois, in.size(0));
    at::Tensor pooled = at::zeros(out.sizes(), at::kFloat);
    const int64_t channels = in.size(1), pixels = in.size(2) * in.size(3), cells = pooling.height * pooling.width;
    const float *from = in.const_data_ptr<float>();
    float *to = pooled.mutable_data_ptr<float>();
    at::parallel_for(0, rois.size(0), 1, [&](int64_t first, int64_t last) {
        samples(rois.const_data_ptr<float>(), first, last, in.size(2), in.size(3), pooling,
                [&](int64_t r, int64_t batch, int64_t cell, int64_t pixel, float weight) {
                    for (int64_t c = 0; c < channels; ++c)
                        to[(r * channels + c) * cells + cell] += weight * from[(batch * channels + c) * pixels + pixel];
                });
    });
    out.copy_(pooled);
}

// One thread: regions overlap.
void roi_align_backward(const at::Tensor &grad, const at::Tensor &regions, const RoiPooling &pooling, at::Tensor &out) {
    const at::Tensor in = grad.to(at::kFloat).contiguous(), rois = regions.to(at::kFloat).contiguous();
    batches_exist(rois, out.size(0));
    at::Tensor features = at::zeros(out.sizes(), at::kFloat);
    const int64_t channels = out.size(1), pixels = out.size(2) * out.size(3), cells = pooling.height * pooling.width;
    const float *from = in.const_data_ptr<float>();
    float *to = features.mutable_data_ptr<float>();
    samples(rois.const_data_ptr<float>(), 0, rois.size(0), out.size(2), out.size(3), pooling,
            [&](int64_t r, int64_t batch, int64_t cell, int64_t pixel, float weight) {
                for (int64_t c = 0; c < channels; ++c)
                    to[(batch * channels + c) * pixels + pixel] += weight * from[(r * channels + c) * cells + cell];
            });
    out.copy_(features);
}

}  // namespace vnpu::opapi

OP(aclnnROIAlign, check_roi_align(a0, a1, a7, {a2, a3, a4, a5, a6}), roi_align(a0, a1, {a2, a3, a4, a5, a6}, a7))
// Here the width comes before the height, and a2 is the shape of the gradient.
OP(aclnnROIAlignBackward, shape(a8, a2);
   check_roi_align(a8, a1, a0, {a5, a4, a3, a6, a7}), roi_align_backward(a0, a1, {a5, a4, a3, a6, a7}, a8))
