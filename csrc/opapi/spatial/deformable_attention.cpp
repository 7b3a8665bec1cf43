// Attention that looks at a few points of feature maps of several sizes, between their pixels (ops-nn:
// multi_scale_deformable_attn_function, multi_scale_deformable_attention_grad).
#include "aclnn_mindspore.h"
#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"

namespace vnpu::opapi {
namespace {

// values [batch, pixels of all maps, heads, channels], maps [levels, 2] (rows and columns of each), starts [levels]
// (its first pixel), places [batch, queries, heads, levels, points, 2] (across, down; 0 to 1), weights without the
// last.
struct Maps {
    const Operand &values, &maps, &starts, &places, &weights;
};

bool nothing(const Maps &m) {
    return m.values.numel() == 0 || m.maps.numel() == 0 || m.starts.numel() == 0 || m.places.numel() == 0 ||
           m.weights.numel() == 0;
}

void check_maps(const Maps &m) {
    for (const Operand *each : {&m.values, &m.places, &m.weights}) dtype(*each, {at::kFloat, at::kHalf, at::kBFloat16});
    for (const Operand *each : {&m.maps, &m.starts}) dtype(*each, {at::kInt, at::kLong});
    rank(m.values, {4});
    rank(m.maps, {2});
    rank(m.starts, {1});
    rank(m.places, {6});
    rank(m.weights, {5});
    const int64_t batch = m.values.size(0), heads = m.values.size(2), channels = m.values.size(3),
                  levels = m.maps.size(0), queries = m.places.size(1), points = m.places.size(4);
    shape(m.maps, {levels, 2});
    shape(m.starts, {levels});
    shape(m.places, {batch, queries, heads, levels, points, 2});
    shape(m.weights, {batch, queries, heads, levels, points});
    on_chip(channels % 8 == 0 && channels <= 256,
            "parameter value is {}, allowed are multiples of 8 channels up to 256", describe(m.values));
    on_chip(heads <= 16 && levels <= 16 && points <= 16,
            "parameter location is {}, allowed are 16 heads, levels and points", describe(m.places));
}

void check_output(const Maps &m, const Operand &output) {
    shape(output, {m.values.size(0), m.places.size(1), m.values.size(2) * m.values.size(3)});
}

void check_forward(const Maps &m, const Operand &output) {
    check_maps(m);
    same_dtype(output, m.values);
    check_output(m, output);
    on_chip(m.places.size(1) >= 32, "parameter location is {}, allowed are 32 queries and more", describe(m.places));
}

void check_backward(const Maps &m, const Operand &slope, std::initializer_list<const Operand *> gradients) {
    check_maps(m);
    dtype(slope, {at::kFloat, at::kHalf, at::kBFloat16});
    check_output(m, slope);
    on_chip(m.places.size(1) < 500000, "parameter location is {}, allowed are less than 500000 queries",
            describe(m.places));
    const Operand *const like[] = {&m.values, &m.places, &m.weights};
    for (size_t i = 0; i < 3; ++i) {
        const Operand &gradient = *gradients.begin()[i];
        dtype(gradient, {at::kFloat, at::kHalf, at::kBFloat16});
        same_shape(gradient, *like[i]);
    }
}

// One map, as ATen's sampler takes it: every head of every image is an image. In double, as its coordinates are not
// those of the kernel, which has a pixel's centre at place * size - 0.5 without a detour.
struct Map {
    int64_t first, rows, columns;
    at::Tensor image;    // [batch * heads, channels, rows, columns]
    at::Tensor grid;     // [batch * heads, queries, points, 2]
    at::Tensor weights;  // [batch * heads, 1, queries, points]
};

at::Tensor heads_first(const at::Tensor &x) { return x.transpose(1, 2).flatten(0, 1); }

std::vector<Map> taken_apart(const at::Tensor &values, const at::Tensor &sizes, const at::Tensor &starts,
                             const at::Tensor &places, const at::Tensor &weights) {
    const at::Tensor shapes = sizes.to(at::kLong).contiguous(), begin = starts.to(at::kLong).contiguous();
    const int64_t levels = shapes.size(0), pixels = values.size(1);
    const auto *size = shapes.const_data_ptr<int64_t>(), *start = begin.const_data_ptr<int64_t>();
    // [batch, heads, pixels, channels]
    const at::Tensor images = values.to(at::kDouble).transpose(1, 2);
    const at::Tensor grid = heads_first(places.to(at::kDouble) * 2 - 1), factors = heads_first(weights.to(at::kDouble));
    std::vector<Map> maps;
    for (int64_t level = 0; level < levels; ++level) {
        const int64_t rows = size[2 * level], columns = size[2 * level + 1], first = start[level];
        if (rows < 0 || columns < 0 || first < 0 || first > pixels || (rows > 0 && columns > (pixels - first) / rows))
            fail(FaultKind::InvalidArgument,
                 "level {} begins at pixel {} and has {} rows of {}, of {} pixels that value has", level, first, rows,
                 columns, pixels);
        maps.push_back({first, rows, columns,
                        images.slice(2, first, first + rows * columns)
                            .flatten(0, 1)
                            .transpose(1, 2)
                            .reshape({-1, values.size(3), rows, columns}),
                        grid.select(2, level).contiguous(), factors.select(2, level).unsqueeze(1)});
    }
    return maps;
}

// Bilinear, zeros beyond the edges, coordinates of the edges and not of the centres of the outer pixels.
constexpr int64_t kBilinear = 0, kZeros = 0;

at::Tensor sampled(const Map &map) { return at::grid_sampler_2d(map.image, map.grid, kBilinear, kZeros, false); }

void look(const at::Tensor &values, const at::Tensor &sizes, const at::Tensor &starts, const at::Tensor &places,
          const at::Tensor &weights, at::Tensor &output) {
    const int64_t batch = values.size(0), heads = values.size(2);
    at::Tensor sum;  // [batch * heads, channels, queries]
    for (const Map &map : taken_apart(values, sizes, starts, places, weights)) {
        if (map.rows == 0 || map.columns == 0) continue;
        const at::Tensor part = (sampled(map) * map.weights).sum(3);
        sum = sum.defined() ? sum.add_(part) : part;
    }
    if (!sum.defined()) {
        output.zero_();
        return;
    }
    output.copy_(sum.unflatten(0, {batch, heads}).permute({0, 3, 1, 2}).reshape(output.sizes()));
}

void look_backward(const at::Tensor &values, const at::Tensor &sizes, const at::Tensor &starts,
                   const at::Tensor &places, const at::Tensor &weights, const at::Tensor &slope, at::Tensor &of_values,
                   at::Tensor &of_places, at::Tensor &of_weights) {
    const int64_t batch = values.size(0), heads = values.size(2), channels = values.size(3);
    // [batch * heads, channels, queries, 1]
    const at::Tensor back =
        slope.to(at::kDouble).unflatten(2, {heads, channels}).permute({0, 2, 3, 1}).flatten(0, 1).unsqueeze(3);
    at::Tensor images = at::zeros({batch, heads, values.size(1), channels}, back.options());
    std::vector<at::Tensor> grids, factors;
    for (const Map &map : taken_apart(values, sizes, starts, places, weights)) {
        if (map.rows == 0 || map.columns == 0) {
            grids.push_back(at::zeros_like(map.grid));
            factors.push_back(at::zeros_like(map.weights.squeeze(1)));
            continue;
        }
        factors.push_back((sampled(map) * back).sum(1));
        const auto [image, grid] = at::grid_sampler_2d_backward((back * map.weights).contiguous(), map.image, map.grid,
                                                                kBilinear, kZeros, false, {true, true});
        images.slice(2, map.first, map.first + map.rows * map.columns)
            .add_(image.unflatten(0, {batch, heads}).flatten(3).transpose(2, 3));
        grids.push_back(grid * 2);
    }
    const auto together = [&](const std::vector<at::Tensor> &levels) {
        return at::stack(levels, 2).unflatten(0, {batch, heads}).transpose(1, 2);
    };
    of_values.copy_(images.transpose(1, 2));
    of_places.copy_(together(grids));
    of_weights.copy_(together(factors));
}

}  // namespace
}  // namespace vnpu::opapi

#define MAPS \
    Maps { value, spatialShape, levelStartIndex, location, attnWeight }

OP(aclnnMultiScaleDeformableAttnFunction, check_forward(MAPS, output),
   if (!nothing(MAPS)) look(value, spatialShape, levelStartIndex, location, attnWeight, output))
OP(aclnnMultiScaleDeformableAttentionGrad,
   check_backward(MAPS, gradOutput, {&gradValue, &gradLocation, &gradAttnWeight}),
   if (!nothing(MAPS) && gradOutput.numel() != 0)
       look_backward(value, spatialShape, levelStartIndex, location, attnWeight, gradOutput, gradValue, gradLocation,
                     gradAttnWeight))
