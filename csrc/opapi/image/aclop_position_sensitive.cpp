// Pooling of regions where every cell of a region reads channels of its own (R-FCN): channel (c * group + row) * group
// + column gives cell (row, column) of output channel c. A cell without pixels is 0.
#include <cmath>

#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

struct Pooling {
    float scale;
    int64_t group, channels;
};

// `x` has what is pooled, [batch, channels * group * group, height, width]; regions are [batch, 5, regions].
Pooling pooling(LegacyArguments &call, const at::Tensor &x, const at::Tensor &y) {
    const Pooling made{attribute<float>(call.attributes, "spatial_scale", 1),
                       attribute<int64_t>(call.attributes, "group_size", 0),
                       attribute<int64_t>(call.attributes, "output_dim", 0)};
    allowed(x, {at::kHalf, at::kFloat}, "features");
    allowed(call.in[1], x.scalar_type(), "rois");
    sizes(call.in[1], {-1, 5, -1}, "rois");
    if (made.group < 1 || made.group > 127 || made.channels < 1)
        fail(FaultKind::InvalidArgument, "attribute group_size is {}, allowed are 1 to 127, and output_dim {}",
             made.group, made.channels);
    sizes(x, {-1, made.channels * made.group * made.group, -1, -1}, "features");
    sizes(y, {call.in[1].size(0) * call.in[1].size(2), made.channels, made.group, made.group}, "what is pooled");
    return made;
}

// Pixels [first, last) of cell `index` along one side.
std::pair<int64_t, int64_t> cell(float low, float high, float scale, int64_t index, int64_t group, int64_t size) {
    const float start = std::round(low) * scale, end = std::round(high + 1) * scale;
    const float step = std::max(end - start, 0.1F) / static_cast<float>(group);
    const auto at = [&](float place) { return std::clamp<int64_t>(static_cast<int64_t>(place), 0, size); };
    return {at(std::floor(start + static_cast<float>(index) * step)),
            at(std::ceil(start + static_cast<float>(index + 1) * step))};
}

// visit(index of a pixel in the features, index of a cell in the output, the pixel's share of the cell)
template <class Visit>
void walk(const Pooling &p, at::IntArrayRef features, const at::Tensor &rois, Visit visit) {
    const at::Tensor regions = rois.to(at::kFloat).contiguous();
    const int64_t batches = regions.size(0), count = regions.size(2), height = features[2], width = features[3];
    for (int64_t r = 0; r < batches * count; ++r) {
        const float *region = regions.const_data_ptr<float>() + r / count * 5 * count + r % count;
        const auto image = static_cast<int64_t>(region[0]);
        if (image < 0 || image >= features[0]) continue;
        for (int64_t c = 0; c < p.channels * p.group * p.group; ++c) {
            const auto rows =
                cell(region[2 * count], region[4 * count], p.scale, c / p.group % p.group, p.group, height);
            const auto columns = cell(region[count], region[3 * count], p.scale, c % p.group, p.group, width);
            const int64_t pixels = (rows.second - rows.first) * (columns.second - columns.first);
            for (int64_t y = rows.first; y < rows.second; ++y)
                for (int64_t x = columns.first; x < columns.second; ++x)
                    visit(((image * p.channels * p.group * p.group + c) * height + y) * width + x,
                          r * p.channels * p.group * p.group + c, 1 / static_cast<float>(pixels));
        }
    }
}

void pool(const Pooling &p, const at::Tensor &features, const at::Tensor &rois, at::Tensor &out) {
    const at::Tensor from = features.to(at::kFloat).contiguous();
    at::Tensor result = at::zeros(out.sizes(), at::kFloat);
    const float *source = from.const_data_ptr<float>();
    float *to = result.mutable_data_ptr<float>();
    walk(p, from.sizes(), rois, [&](int64_t pixel, int64_t place, float share) { to[place] += source[pixel] * share; });
    out.copy_(result);
}

void pool_grad(const Pooling &p, const at::Tensor &gradient, const at::Tensor &rois, at::Tensor &out) {
    const at::Tensor from = gradient.to(at::kFloat).contiguous();
    at::Tensor result = at::zeros(out.sizes(), at::kFloat);
    const float *source = from.const_data_ptr<float>();
    float *to = result.mutable_data_ptr<float>();
    walk(p, result.sizes(), rois,
         [&](int64_t pixel, int64_t place, float share) { to[pixel] += source[place] * share; });
    out.copy_(result);
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(PSROIPoolingV2, pooling(arguments, in[0], out[0]), pool(pooling(arguments, in[0], out[0]), in[0], in[1], out[0]))
LEGACY(PSROIPoolingGradV2D, pooling(arguments, out[0], in[0]),
       pool_grad(pooling(arguments, out[0], in[0]), in[0], in[1], out[0]))
