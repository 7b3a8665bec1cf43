// Resizing in one, two and three dimensions, and its gradients. A scale that is not positive was not given (torch_npu
// passes 0): sizes decide then.
#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

std::optional<double> given(double scale) { return scale > 0 ? std::optional(scale) : std::nullopt; }

// `in` and `out` of the forward pass: [N, C, sizes...].
void check_upsample(const Operand &in, const Ints &output_size, const Operand &out, int64_t spatial) {
    rank(in, {spatial + 2});
    dtype(in, {at::kFloat, at::kHalf, at::kBFloat16, at::kByte, at::kDouble});
    same_dtype(out, in);
    if (static_cast<int64_t>(output_size.size()) != spatial)
        fail(FaultKind::InvalidArgument, "parameter outputSize has {} values, expected {}", output_size.size(),
             spatial);
    for (const int64_t size : output_size)
        if (size <= 0) fail(FaultKind::InvalidArgument, "parameter outputSize has the value {}, allowed is > 0", size);
    for (int64_t i = 2; i < in.dim(); ++i)
        if (in.size(i) == 0)
            fail(FaultKind::InvalidArgument, "parameter {} is {}: there is nothing to resize", in.parameter(),
                 describe(in));
    std::vector<int64_t> sizes{in.size(0), in.size(1)};
    sizes.insert(sizes.end(), output_size.begin(), output_size.end());
    shape(out, sizes);
}

// How much smaller the antialiasing kernels make an image (ops-cv: aclnn_upsample_bilinear2d_aa.cpp,
// aclnn_upsample_bicubic2d_aa.cpp).
void check_not_much_smaller(const Operand &in, const Ints &output_size, std::array<double, 2> scales) {
    for (size_t i = 0; i < 2 && i < output_size.size() && in.dim() == 4; ++i) {
        const int64_t size = in.size(static_cast<int64_t>(i) + 2);
        const double times =
            scales[i] > 0 ? 1 / scales[i] : static_cast<double>(size / std::max<int64_t>(output_size[i], 1));
        on_chip(static_cast<float>(times) <= 50,
                "Scales should not exceed 50: parameter outputSize has the value {} for {}", output_size[i],
                describe(in));
    }
}

// How much larger an image was made at most, for the kernels of some gradients (ops-cv:
// aclnn_upsample_nearest_exact*_backward.cpp, aclnn_upsample_bilinear2d_aa_backward.cpp,
// aclnn_upsample_bicubic2d_aa_grad.cpp).
void check_not_much_larger(const Operand &grad_input, const Ints &output_size, const Ints &input_size,
                           std::initializer_list<double> scales, double most = 50) {
    static constexpr const char *kNames[] = {"scales is", "scalesH and scalesW are",
                                             "scalesD, scalesH and scalesW are"};
    if (grad_input.numel() == 0) return;
    for (size_t i = 0; const double scale : scales) {
        const double times =
            scale > 0 ? scale : static_cast<double>(output_size[i]) / static_cast<double>(input_size[i + 2]);
        on_chip(times <= most, "{} too large: parameter outputSize has the value {} for {}, allowed is {} times",
                kNames[scales.size() - 1], output_size[i], input_size[i + 2], most);
        ++i;
    }
}

// Another kernel does a size that is not what the scale gives, and a long row (ops-cv:
// aclnn_upsample_linear_1d_backward.cpp).
void check_not_much_longer(const Operand &grad_input, const Ints &output_size, const Ints &input_size, double scale) {
    const auto in = static_cast<double>(input_size[2]), out = static_cast<double>(output_size[0]);
    const bool by_scale = std::abs(scale) <= 1e-9 || out == std::floor(in * scale);
    if (chip_is(Generation::k910B) && out < 1e6 && (in == out || by_scale))
        check_not_much_larger(grad_input, output_size, input_size, {scale}, 500);
}

// An empty batch passes most operators, images without channels some (ops-cv: aclnn_upsample_*.cpp).
void check_has_channels(const Operand &in) {
    on_chip(in.size(1) != 0, "Non-empty {}D data tensor expected but got a tensor with sizes: parameter {} is {}",
            in.dim(), in.parameter(), describe(in));
}

void check_not_empty(const Operand &grad) {
    on_chip(grad.numel() != 0, "Input and output sizes should greater than 0: parameter {} is {}", grad.parameter(),
            describe(grad));
}

// ATen stops at images without channels.
template <class Resize>
void resized(at::Tensor &out, Resize resize) {
    if (out.numel() != 0) rounded(out, resize);
}

void check_backward(const Operand &grad, const Ints &output_size, const Ints &input_size, const Operand &grad_input,
                    int64_t spatial) {
    shape(grad_input, input_size);
    check_upsample(grad_input, output_size, grad, spatial);
}

}  // namespace
}  // namespace vnpu::opapi

// UPSAMPLE(name, dimensions, input, at function, its arguments after the output size): narrow dtypes are computed in
// fp32. LIMITED has what the operator alone refuses behind the dimensions.
#define UPSAMPLE(NAME, DIMENSIONS, IN, FUNCTION, ...) LIMITED(NAME, DIMENSIONS, (void)0, IN, FUNCTION, __VA_ARGS__)
#define LIMITED(NAME, DIMENSIONS, LIMITS, IN, FUNCTION, ...)  \
    OP(NAME, check_upsample(IN, outputSize, out, DIMENSIONS); \
       LIMITS, resized(out, [&](at::Tensor &target) { FUNCTION(target, widened(IN), outputSize, __VA_ARGS__); }))
#define UPSAMPLE_BACKWARD(NAME, DIMENSIONS, GRAD, OUT, FUNCTION, ...) \
    LIMITED_BACKWARD(NAME, DIMENSIONS, (void)0, GRAD, OUT, FUNCTION, __VA_ARGS__)
#define LIMITED_BACKWARD(NAME, DIMENSIONS, LIMITS, GRAD, OUT, FUNCTION, ...) \
    OP(NAME, check_backward(GRAD, outputSize, inputSize, OUT, DIMENSIONS);   \
       LIMITS,                                                               \
       resized(OUT, [&](at::Tensor &target) { FUNCTION(target, widened(GRAD), outputSize, inputSize, __VA_ARGS__); }))
#define SMOOTH(NAME, LIMITS, IN, FUNCTION)                                                                       \
    OP(NAME, check_not_much_smaller(IN, outputSize, {scalesH, scalesW}); check_upsample(IN, outputSize, out, 2); \
       LIMITS,                                                                                                   \
       resized(out, [&](at::Tensor &target) { FUNCTION(target, widened(IN), outputSize, alignCorners, SCALES2); }))
#define NOT_MUCH_LARGER(OUT, ...) check_not_much_larger(OUT, outputSize, inputSize, {__VA_ARGS__})
#define SCALES2 given(scalesH), given(scalesW)
#define SCALES3 given(scalesD), given(scalesH), given(scalesW)

LIMITED(aclnnUpsampleNearest1d, 1, check_has_channels(self), self, at::upsample_nearest1d_out, std::nullopt)
LIMITED(aclnnUpsampleNearest1dV2, 1, check_has_channels(self), self, at::upsample_nearest1d_out, given(scaleL))
UPSAMPLE_BACKWARD(aclnnUpsampleNearest1dBackward, 1, gradOut, out, at::upsample_nearest1d_backward_out, given(scales))
UPSAMPLE(aclnnUpsampleNearest2d, 2, self, at::upsample_nearest2d_out, std::nullopt, std::nullopt)
UPSAMPLE(aclnnUpsampleNearest2dV2, 2, self, at::upsample_nearest2d_out, SCALES2)
UPSAMPLE_BACKWARD(aclnnUpsampleNearest2dBackward, 2, gradOut, gradInput, at::upsample_nearest2d_backward_out, SCALES2)
LIMITED(aclnnUpsampleNearest3d, 3, check_has_channels(self), self, at::upsample_nearest3d_out, SCALES3)
UPSAMPLE_BACKWARD(aclnnUpsampleNearest3dBackward, 3, gradOut, gradInput, at::upsample_nearest3d_backward_out, SCALES3)
LIMITED(aclnnUpsampleNearestExact1d, 1, check_not_empty(self), self, at::_upsample_nearest_exact1d_out, given(scales))
LIMITED_BACKWARD(aclnnUpsampleNearestExact1dBackward, 1, check_not_empty(gradOutput);
                 NOT_MUCH_LARGER(out, scales), gradOutput, out, at::_upsample_nearest_exact1d_backward_out,
                 given(scales))
UPSAMPLE(aclnnUpsampleNearestExact2d, 2, self, at::_upsample_nearest_exact2d_out, SCALES2)
LIMITED_BACKWARD(aclnnUpsampleNearestExact2dBackward, 2, NOT_MUCH_LARGER(out, scalesH, scalesW), gradOutput, out,
                 at::_upsample_nearest_exact2d_backward_out, SCALES2)
LIMITED(aclnnUpsampleNearestExact3d, 3, check_has_channels(self), self, at::_upsample_nearest_exact3d_out, SCALES3)
LIMITED_BACKWARD(aclnnUpsampleNearestExact3dBackward, 3, NOT_MUCH_LARGER(gradInput, scalesD, scalesH, scalesW), gradOut,
                 gradInput, at::_upsample_nearest_exact3d_backward_out, SCALES3)

LIMITED(aclnnUpsampleLinear1d, 1, check_has_channels(self), self, at::upsample_linear1d_out, alignCorners, given(scale))
LIMITED_BACKWARD(aclnnUpsampleLinear1dBackward, 1, check_not_much_longer(out, outputSize, inputSize, scales), gradOut,
                 out, at::upsample_linear1d_backward_out, alignCorners, given(scales))
UPSAMPLE(aclnnUpsampleBilinear2d, 2, self, at::upsample_bilinear2d_out, alignCorners, SCALES2)
UPSAMPLE_BACKWARD(aclnnUpsampleBilinear2dBackward, 2, gradOut, out, at::upsample_bilinear2d_backward_out, alignCorners,
                  SCALES2)
UPSAMPLE_BACKWARD(aclnnUpsampleBilinear2dBackwardV2, 2, gradOut, out, at::upsample_bilinear2d_backward_out,
                  alignCorners, SCALES2)
LIMITED(aclnnUpsampleTrilinear3d, 3, check_has_channels(self), self, at::upsample_trilinear3d_out, alignCorners,
        SCALES3)
UPSAMPLE_BACKWARD(aclnnUpsampleTrilinear3dBackward, 3, gradOut, gradInput, at::upsample_trilinear3d_backward_out,
                  alignCorners, SCALES3)
LIMITED(aclnnUpsampleBicubic2d, 2, check_has_channels(self), self, at::upsample_bicubic2d_out, alignCorners, SCALES2)
UPSAMPLE_BACKWARD(aclnnUpsampleBicubic2dBackward, 2, gradOut, gradInput, at::upsample_bicubic2d_backward_out,
                  alignCorners, SCALES2)
SMOOTH(aclnnUpsampleBilinear2dAA, check_not_empty(input), input, at::_upsample_bilinear2d_aa_out)
LIMITED_BACKWARD(aclnnUpsampleBilinear2dAABackward, 2, check_not_empty(gradOutput);
                 if (chip_is(vnpu::Generation::k910B)) NOT_MUCH_LARGER(out, scalesH, scalesW), gradOutput, out,
                 at::_upsample_bilinear2d_aa_backward_out, alignCorners, SCALES2)
SMOOTH(aclnnUpsampleBicubic2dAA, check_has_channels(x), x, at::_upsample_bicubic2d_aa_out)
LIMITED_BACKWARD(aclnnUpsampleBicubic2dAAGrad, 2, check_not_empty(gradOutput);
                 NOT_MUCH_LARGER(out, scalesH, scalesW), gradOutput, out, at::_upsample_bicubic2d_aa_backward_out,
                 alignCorners, SCALES2)
