// Sampling at the points of a grid, grids of affine maps, and sliding windows as columns.
#include <algorithm>

#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

// input [N, C, sizes...], grid [N, points..., coordinates], out [N, C, points...]
void check_sampler(const Operand &input, const Operand &grid, const Operand &out, int64_t spatial,
                   int64_t interpolation, int64_t padding) {
    rank(input, {spatial + 2});
    rank(grid, {spatial + 2});
    floating(input);
    same_dtype(grid, input);
    same_dtype(out, input);
    const int64_t last = spatial == 2 ? 2 : 1;
    if (interpolation < 0 || interpolation > last)
        fail(FaultKind::InvalidArgument, "parameter interpolationMode is {}, allowed is 0 to {}", interpolation, last);
    if (padding < 0 || padding > 2)
        fail(FaultKind::InvalidArgument, "parameter paddingMode is {}, allowed is 0 to 2", padding);
    if (grid.size(0) != input.size(0) || grid.size(-1) != spatial)
        fail(FaultKind::InvalidArgument, "parameter grid is {}, expected {} points of {} coordinates", describe(grid),
             input.size(0), spatial);
    std::vector<int64_t> sizes{input.size(0), input.size(1)};
    sizes.insert(sizes.end(), grid.sizes().begin() + 1, grid.sizes().end() - 1);
    shape(out, sizes);
}

// (ops-cv: aclnn_grid_sampler2d.cpp, aclnn_grid_sampler3d.cpp, aclnn_grid_sampler2d_backward.cpp; not the gradient of
// volumes, and of a volume not its depth)
void check_has_rows_and_columns(const Operand &input) {
    if (input.size(-1) == 0 || input.size(-2) == 0)
        fail(FaultKind::InvalidArgument,
             "expect input to have non-empty spatial dimensions: parameter input is {}, whose height and width may not "
             "be 0",
             describe(input));
}

// CANN starts nothing where there is nothing to sample: the output stays as it is, which torch_npu does not fill.
bool nothing(const at::Tensor &input) {
    const at::IntArrayRef spatial = input.sizes().slice(2);
    return std::find(spatial.begin(), spatial.end(), 0) != spatial.end();
}

void check_masked(const Bools &mask, Operand &input_grad, const Operand &input, Operand &grid_grad,
                  const Operand &grid) {
    if (mask.size() != 2)
        fail(FaultKind::InvalidArgument, "parameter outputMask has {} values, expected 2", mask.size());
    optional(input_grad, grid_grad);
    if (mask[0]) same_shape(input_grad, input);
    if (mask[1]) same_shape(grid_grad, grid);
}

void give_both(at::Tensor &input_grad, at::Tensor &grid_grad, const std::tuple<at::Tensor, at::Tensor> &results) {
    if (std::get<0>(results).defined()) give(input_grad, std::get<0>(results));
    if (std::get<1>(results).defined()) give(grid_grad, std::get<1>(results));
}

void check_affine(const Operand &theta, const Ints &size, const Operand &out) {
    network(theta, out);
    if (size.size() != 4 && size.size() != 5)
        fail(FaultKind::InvalidArgument, "parameter size has {} values, expected 4 or 5", size.size());
    const auto spatial = static_cast<int64_t>(size.size()) - 2;
    shape(theta, {size[0], spatial, spatial + 1});
    std::vector<int64_t> sizes{size[0]};
    sizes.insert(sizes.end(), size.begin() + 2, size.end());
    sizes.push_back(spatial);
    shape(out, sizes);
}

std::array<int64_t, 2> pair_of(const char *name, const Ints &list, int64_t least) {
    if (list.size() != 2) fail(FaultKind::InvalidArgument, "parameter {} has {} values, expected 2", name, list.size());
    for (const int64_t value : list)
        if (value < least)
            fail(FaultKind::InvalidArgument, "parameter {} has the value {}, allowed is >= {}", name, value, least);
    return {list[0], list[1]};
}

// image [N, C, H, W] (N may be missing), columns [N, C x window, positions]
void check_columns(const Operand &image, const Operand &columns, const Ints &kernel, const Ints &dilation,
                   const Ints &padding, const Ints &stride) {
    rank(image, {3, 4});
    const auto k = pair_of("kernelSize", kernel, 1), d = pair_of("dilation", dilation, 1);
    const auto p = pair_of("padding", padding, 0), s = pair_of("stride", stride, 1);
    at::DimVector sizes(image.sizes().begin(), image.sizes().end() - 3);
    sizes.push_back(image.size(-3) * k[0] * k[1]);
    int64_t positions = 1;
    for (size_t i = 0; i < 2; ++i) {
        const int64_t room = image.size(static_cast<int64_t>(i) - 2) + 2 * p[i] - d[i] * (k[i] - 1) - 1;
        if (room < 0)
            fail(FaultKind::InvalidArgument, "parameter kernelSize has the value {}, larger than {} with its padding",
                 k[i], describe(image));
        positions *= room / s[i] + 1;
    }
    sizes.push_back(positions);
    shape(columns, sizes);
}

}  // namespace
}  // namespace vnpu::opapi

#define SAMPLER(NAME, SPATIAL, FUNCTION)                                               \
    OP(NAME, check_sampler(input, grid, out, SPATIAL, interpolationMode, paddingMode); \
       check_has_rows_and_columns(input),                                              \
       if (!nothing(input))                                                            \
           give(out, FUNCTION(widened(input), widened(grid), interpolationMode, paddingMode, alignCorners)))
#define SAMPLER_BACKWARD(NAME, SPATIAL, LIMITS, FUNCTION)                                                             \
    OP(NAME, check_sampler(input, grid, gradOutput, SPATIAL, interpolationMode, paddingMode); LIMITS;                 \
       check_masked(outputMask, inputGrad, input, gridGrad, grid),                                                    \
       if (!nothing(input)) give_both(inputGrad, gridGrad,                                                            \
                                      FUNCTION(widened(gradOutput), widened(input), widened(grid), interpolationMode, \
                                               paddingMode, alignCorners, outputMask.mask<2>())))

SAMPLER(aclnnGridSampler2D, 2, at::grid_sampler_2d)
SAMPLER_BACKWARD(aclnnGridSampler2DBackward, 2, check_has_rows_and_columns(input), at::grid_sampler_2d_backward)
SAMPLER(aclnnGridSampler3D, 3, at::grid_sampler_3d)
SAMPLER_BACKWARD(aclnnGridSampler3DBackward, 3, (void)0, at::grid_sampler_3d_backward)
OP(aclnnAffineGrid, check_affine(theta, size, out),
   give(out, at::affine_grid_generator(widened(theta), size, alignCorners)))
OP(aclnnIm2col, check_columns(self, out, kernelSize, dilation, padding, stride);
   same_dtype(out, self), give(out, at::im2col(self, kernelSize, dilation, padding, stride)))
OP(aclnnIm2colBackward, network(gradOutput, out);
   check_columns(out, gradOutput, kernelSize, dilation, padding, stride),
   give(out, at::col2im(widened(gradOutput), inputSize, kernelSize, dilation, padding, stride)))
