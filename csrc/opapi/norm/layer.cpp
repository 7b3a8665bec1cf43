// Layer norm and group norm. ATen's functions make their results anew, so every output is copied once. ATen's layer
// norm reads fp16 and bf16 input with fp32 parameters and statistics; without parameters, and for group norm, the input
// is widened.
#include <c10/util/accumulate.h>

#include <cmath>

#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

std::vector<int64_t> statistics_shape(const Operand &input, const Ints &normalized) {
    std::vector<int64_t> sizes = input.sizes().vec();
    std::fill(sizes.end() - static_cast<std::ptrdiff_t>(normalized.size()), sizes.end(), 1);
    return sizes;
}

void check_layer(const Operand &input, const Ints &normalized, std::initializer_list<const Operand *> parameters,
                 std::initializer_list<const Operand *> statistics) {
    network(input);
    const at::IntArrayRef sizes = input.sizes(), wanted = normalized;
    if (wanted.empty() || wanted.size() > sizes.size() || sizes.slice(sizes.size() - wanted.size()) != wanted)
        fail(FaultKind::InvalidArgument, "parameter normalizedShape is {}, expected the last sizes of input, {}",
             show(normalized), describe(input));
    for (const Operand *parameter : parameters)
        if (parameter->defined()) {
            network(*parameter);
            shape(*parameter, wanted);
            // (ops-nn: aclnn_layer_norm.cpp, aclnn_layer_norm_backward.cpp)
            on_chip(parameter->scalar_type() == at::kFloat || parameter->scalar_type() == input.scalar_type(),
                    "parameter {} is {}, allowed are float32 and the dtype of {}, {}", parameter->parameter(),
                    describe(*parameter), input.parameter(), describe(input));
        }
    const int64_t rows =
        c10::multiply_integers(sizes.begin(), sizes.end() - static_cast<std::ptrdiff_t>(wanted.size()));
    for (const Operand *statistic : statistics)
        if (statistic->defined() && (rows > 0 || statistic->numel() != 0)) {
            network(*statistic);
            shape(*statistic, statistics_shape(input, normalized));
        }
}

at::Tensor layer_input(const at::Tensor &input, const at::Tensor &weight, const at::Tensor &bias) {
    return weight.defined() || bias.defined() ? at::Tensor(input) : widened(input);
}

void layer_norm(at::Tensor &out, at::Tensor &mean, at::Tensor &rstd, const at::Tensor &input,
                at::IntArrayRef normalized, const at::Tensor &weight, const at::Tensor &bias, double eps) {
    const auto [result, average, inverse] =
        at::native_layer_norm(layer_input(input, weight, bias), normalized, widened(weight), widened(bias), eps);
    out.copy_(result);
    if (input.numel() == 0) return;
    give(mean, average);
    give(rstd, inverse);
}

struct Gradients {
    Operand &input, &weight, &bias;
};

// mask: which gradients are wanted; `like` is what the gradient of a parameter looks like.
void check_masked(const Bools &mask, Gradients gradients, const Operand &input, at::IntArrayRef like) {
    if (mask.size() != 3)
        fail(FaultKind::InvalidArgument, "parameter outputMask has {} values, expected 3", mask.size());
    if (mask[0]) same_shape(gradients.input, input);
    if (mask[1]) shape(gradients.weight, like);
    if (mask[2]) shape(gradients.bias, like);
    optional(gradients.input, gradients.weight, gradients.bias);
}

// A gradient can be asked for of a parameter that is there.
void check_asked(bool wanted, const Operand &parameter) {
    if (wanted && !parameter.defined())
        fail(FaultKind::NullArgument, "parameter {} is null, and outputMask asks for its gradient",
             parameter.parameter());
}

void give_gradients(const std::tuple<at::Tensor, at::Tensor, at::Tensor> &results, Gradients gradients,
                    std::array<bool, 3> mask) {
    if (mask[0]) give(gradients.input, std::get<0>(results));
    if (mask[1]) give(gradients.weight, std::get<1>(results));
    if (mask[2]) give(gradients.bias, std::get<2>(results));
}

void layer_norm_backward(Gradients gradients, const at::Tensor &grad, const at::Tensor &input,
                         at::IntArrayRef normalized, const at::Tensor &mean, const at::Tensor &rstd,
                         const at::Tensor &weight, const at::Tensor &bias, std::array<bool, 3> mask) {
    // Of narrow operands ATen sums the parameters' gradients in their dtype, over all rows. It reads the statistics as
    // if they were contiguous.
    give_gradients(at::native_layer_norm_backward(widened(grad), widened(input), normalized, widened(mean).contiguous(),
                                                  widened(rstd).contiguous(), widened(weight), widened(bias), mask),
                   gradients, mask);
}

void check_group(const Operand &input, int64_t n, int64_t c, int64_t hxw, int64_t group,
                 std::initializer_list<const Operand *> parameters, std::initializer_list<const Operand *> statistics) {
    network(input);
    if (group <= 0 || c % group != 0)
        fail(FaultKind::InvalidArgument, "parameter group is {}, expected a divisor of C, which is {}", group, c);
    if (input.numel() != n * c * hxw)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, which has not N x C x HxW = {} x {} x {} elements",
             input.parameter(), describe(input), n, c, hxw);
    for (const Operand *parameter : parameters)
        if (parameter->defined() && parameter->numel() != c)
            fail(FaultKind::InvalidArgument, "parameter {} has {} values, expected C = {}", parameter->parameter(),
                 parameter->numel(), c);
    for (const Operand *statistic : statistics)
        if (statistic->defined() && statistic->numel() != n * group)
            fail(FaultKind::InvalidArgument, "parameter {} has {} values, expected N x group = {}",
                 statistic->parameter(), statistic->numel(), n * group);
}

// (ops-nn: aclnn_group_norm.cpp)
void check_group_epsilon(double eps) { on_chip(eps > 0, "parameter eps is {}, allowed is > 0", eps); }

void check_group_shapes(const Operand &self, int64_t n, int64_t c, int64_t group,
                        std::initializer_list<const Operand *> statistics) {
    fewest_dimensions(self, 2);
    on_chip(self.dim() < 2 || (self.size(0) == n && self.size(1) == c),
            "Expected self.shape[0] == N and self.shape[1] == C to be true: parameter self is {}, N {}, C {}",
            describe(self), n, c);
    for (const Operand *statistic : statistics)
        on_chip(!statistic->defined() || statistic->sizes() == at::IntArrayRef({n, group}),
                "parameter {} is {}, expected N x group = [{}, {}]", statistic->parameter(), describe(*statistic), n,
                group);
}

// What a core's memory holds of the gradient (ops-nn: aclnn_group_norm_backward.cpp).
void check_group_gradient_fits(int64_t c, int64_t group) {
    on_chip(c / group <= 8000 && c <= 240000,
            "parameter C is {} in {} groups, allowed are at most 8000 in a group and 240000 in all", c, group);
}

void group_norm(at::Tensor &out, at::Tensor &mean, at::Tensor &rstd, const at::Tensor &self, const at::Tensor &gamma,
                const at::Tensor &beta, int64_t n, int64_t c, int64_t hxw, int64_t group, double eps) {
    if (self.numel() == 0) return;
    const auto [result, average, inverse] =
        at::native_group_norm(widened(self).contiguous(), widened(gamma), widened(beta), n, c, hxw, group, eps);
    out.copy_(result);
    mean.copy_(average.reshape(mean.sizes()));
    rstd.copy_(inverse.reshape(rstd.sizes()));
}

// The mean of each group as the gradient needs it. It comes rounded to the input's dtype: where it is that of the
// input, to one unit in the last place, the unrounded one counts. Beside the deviation of a group of few elements its
// rounding would be seen in the gradient (7 units in the last place of float16).
at::Tensor group_mean(const at::Tensor &mean, const at::Tensor &input, at::IntArrayRef groups) {
    const at::Tensor given = widened(mean).reshape({groups[0], groups[1]});
    if (!narrow(mean) || input.numel() == 0) return given;
    const at::Tensor own = widened(input).reshape(groups).mean(-1);
    const double unit = mean.scalar_type() == at::kHalf ? std::ldexp(1.0, -10) : std::ldexp(1.0, -7);
    return at::where((own - given).abs() <= own.abs() * unit, own, given);
}

void group_norm_backward(Gradients gradients, const at::Tensor &grad, const at::Tensor &input, const at::Tensor &mean,
                         const at::Tensor &rstd, const at::Tensor &gamma, int64_t n, int64_t c, int64_t hxw,
                         int64_t group, std::array<bool, 3> mask) {
    give_gradients(
        at::native_group_norm_backward(widened(grad).contiguous(), widened(input).contiguous(),
                                       group_mean(mean, input, {n, group, c / group * hxw}),
                                       widened(rstd).reshape({n, group}), widened(gamma), n, c, hxw, group, mask),
        gradients, mask);
}

}  // namespace
}  // namespace vnpu::opapi

#define LAYER_NORM(NAME)                                                                                            \
    OP(NAME,                                                                                                        \
       check_layer(input, normalizedShape, {&weightOptional, &biasOptional}, {&meanOutOptional, &rstdOutOptional}); \
       same_shape(out, input),                                                                                      \
       layer_norm(out, meanOutOptional, rstdOutOptional, input, normalizedShape, weightOptional, biasOptional, eps))

LAYER_NORM(aclnnLayerNorm)
LAYER_NORM(aclnnFastLayerNorm)
OP(aclnnLayerNormBackward, check_layer(input, normalizedShape, {&weightOptional, &biasOptional}, {&mean, &rstd});
   same_shape(gradOut, input);
   check_masked(outputMask, {gradInputOut, gradWeightOut, gradBiasOut}, input, normalizedShape);
   check_asked(outputMask[1], weightOptional);
   check_asked(outputMask[2], biasOptional),
   layer_norm_backward({gradInputOut, gradWeightOut, gradBiasOut}, gradOut, input, normalizedShape, mean, rstd,
                       weightOptional, biasOptional, outputMask.mask<3>()))
OP(aclnnGroupNorm, optional(gamma, beta); check_group(self, N, C, HxW, group, {&gamma, &beta}, {&meanOut, &rstdOut});
   same_shape(out, self); check_group_epsilon(eps);
   check_group_shapes(self, N, C, group, {&meanOut, &rstdOut}),
   group_norm(out, meanOut, rstdOut, self, gamma, beta, N, C, HxW, group, eps))
OP(aclnnGroupNormBackward, optional(gamma); check_group(input, N, C, HxW, group, {&gamma}, {&mean, &rstd});
   check_group_gradient_fits(C, group); same_shape(gradOut, input);
   check_masked(outputMask, {gradInput, gradGammaOut, gradBetaOut}, input, {C}),
   group_norm_backward({gradInput, gradGammaOut, gradBetaOut}, gradOut, input, mean, rstd, gamma, N, C, HxW, group,
                       outputMask.mask<3>()))
