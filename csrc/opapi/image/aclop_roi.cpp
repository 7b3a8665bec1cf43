// Places in images: what regions of interest sample, NCHW, and grids of places under an affine map, for which MindSpore
// has kernels of its own.
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"
#include "opapi/spatial/roi_align.h"

namespace vnpu::opapi {
namespace {

RoiPooling pooling(const aclopAttr &attributes, const at::Tensor &features, const at::Tensor &regions,
                   const at::Tensor &pooled) {
    allowed(features, {at::kHalf, at::kFloat}, "the features");
    sizes(features, {-1, -1, -1, -1}, "the features");
    allowed(regions, {at::kHalf, at::kFloat}, "rois");
    sizes(regions, {-1, 5}, "rois");
    const auto number = [&](const char *name, int64_t otherwise) {
        return attribute<int64_t>(attributes, name, otherwise);
    };
    // MindSpore's own test has -1 samples: as many as a cell has pixels, as with 0.
    const RoiPooling made{attribute<float>(attributes, "spatial_scale", 0), number("pooled_height", 0),
                          number("pooled_width", 0), std::max<int64_t>(number("sample_num", 2), 0),
                          number("roi_end_mode", 1)};
    if (made.height < 1 || made.width < 1 || made.end_mode < 0 || made.end_mode > 3)
        fail(FaultKind::InvalidArgument,
             "pooled_height is {}, pooled_width {} and roi_end_mode {}; allowed are 1 or more and 0 to 3", made.height,
             made.width, made.end_mode);
    allowed(pooled, features.scalar_type(), "what is pooled");
    sizes(pooled, {regions.size(0), features.size(1), made.height, made.width}, "what is pooled");
    return made;
}

// theta, and the sizes of what is sampled: N, C, then two or three.
void check_grid(const at::Tensor &theta, const at::Tensor &size, const at::Tensor &places) {
    const std::vector<int64_t> sampled = ints(size);
    if (sampled.size() != 4 && sampled.size() != 5)
        fail(FaultKind::InvalidArgument, "the size has {} values, expected 4 or 5", sampled.size());
    const auto axes = static_cast<int64_t>(sampled.size()) - 2;
    allowed(theta, {at::kHalf, at::kFloat}, "theta");
    sizes(theta, {sampled[0], axes, axes + 1}, "theta");
    std::vector<int64_t> expected{sampled[0]};
    expected.insert(expected.end(), sampled.begin() + 2, sampled.end());
    expected.push_back(axes);
    allowed(places, theta.scalar_type(), "the grid");
    sizes(places, expected, "the grid");
}

bool corners(const aclopAttr &attributes) { return attribute<bool>(attributes, "align_corners", false); }

}  // namespace
}  // namespace vnpu::opapi

LEGACY(ROIAlign, pooling(attributes, in[0], in[1], out[0]),
       roi_align(in[0], in[1], pooling(attributes, in[0], in[1], out[0]), out[0]))
// in: the gradient, the regions.
LEGACY(ROIAlignGrad, pooling(attributes, out[0], in[1], in[0]),
       roi_align_backward(in[0], in[1], pooling(attributes, out[0], in[1], in[0]), out[0]))
LEGACY(CustAffineGrid, check_grid(in[0], in[1], out[0]),
       out[0].copy_(at::affine_grid_generator(in[0].to(at::kDouble), ints(in[1]), corners(attributes))))
LEGACY(CustAffineGridGrad, check_grid(out[0], in[1], in[0]),
       out[0].copy_(at::affine_grid_generator_backward(in[0].to(at::kDouble), ints(in[1]), corners(attributes))))
