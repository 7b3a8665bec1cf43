// Small operators of the old API that MindSpore's layers and losses call by their type: biases, activations, norms, in
// fp32 and rounded once.
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

// Where the channels are.
int64_t channel(const at::Tensor &x, const aclopAttr &attributes) {
    const auto format = attribute<std::string>(attributes, "data_format", "NHWC");
    if (x.dim() < 2) fail(FaultKind::InvalidArgument, "x is {}, expected 2 dimensions and more", describe(x));
    return format == "NHWC" || format == "NDHWC" ? x.dim() - 1 : 1;
}

void biased(LegacyArguments &call) {
    allowed(call.in[0], kNative, "x");
    holds(call.in[1], call.in[0].size(channel(call.in[0], call.attributes)), "the bias");
    alike(call.out[0], call.in[0], "the output");
}

void bias(LegacyArguments &call) {
    std::vector<int64_t> form(static_cast<size_t>(call.in[0].dim()), 1);
    form[static_cast<size_t>(channel(call.in[0], call.attributes))] = call.in[1].numel();
    call.out[0].copy_(widened(call.in[0]) + widened(call.in[1]).reshape(form));
}

void bias_gradient(LegacyArguments &call) {
    const int64_t kept = channel(call.in[0], call.attributes);
    std::vector<int64_t> axes;
    for (int64_t i = 0; i < call.in[0].dim(); ++i)
        if (i != kept) axes.push_back(i);
    put(call.out[0], widened(call.in[0]).sum(axes));
}

void pointwise(LegacyArguments &call, size_t inputs) {
    allowed(call.in[0], kNative, "an input");
    for (size_t i = 1; i < inputs; ++i) alike(call.in[i], call.in[0], "an input");
    alike(call.out[0], call.in[0], "the output");
}

at::Tensor relu6_gradient(const at::Tensor &gradient, const at::Tensor &x) {
    return at::where((x > 0).logical_and(x < 6), gradient, at::zeros_like(gradient));
}

// By the result.
at::Tensor elu_gradient(const at::Tensor &gradient, const at::Tensor &y) {
    return at::where(y > 0, gradient, gradient * (y + 1));
}

constexpr double kSeluScale = 1.0507009873554804934193349852946, kSeluAlpha = 1.6732632423543772848170429916717;
at::Tensor selu_gradient(const at::Tensor &gradient, const at::Tensor &y) {
    return gradient * at::where(y > 0, at::full_like(y, kSeluScale), y + kSeluScale * kSeluAlpha);
}

std::vector<int64_t> axes(const at::Tensor &x, const aclopAttr &attributes, const char *name) {
    const auto given = attribute<std::vector<int64_t>>(attributes, name, {});
    for (const int64_t axis : given)
        if (axis < -x.dim() || axis >= x.dim())
            fail(FaultKind::InvalidArgument, "attribute {} names axis {} of {}", name, axis, describe(x));
    return given;
}

at::Tensor normalized(const at::Tensor &x, const aclopAttr &attributes) {
    const at::Tensor squares = (x * x).sum(axes(x, attributes, "axis"), true);
    return x / squares.clamp_min(attribute<float>(attributes, "eps", 1e-4F)).sqrt();
}

at::Tensor norm(const at::Tensor &x, const aclopAttr &attributes) {
    const auto p = attribute<int64_t>(attributes, "p", 2);
    const bool kept = attribute<bool>(attributes, "keepdim", false);
    return at::norm(x, at::Scalar(p), axes(x, attributes, "axes"), kept)
        .clamp_min(attribute<float>(attributes, "epsilon", 1e-12F));
}

at::Tensor divergence(const at::Tensor &x, const at::Tensor &target, const aclopAttr &attributes) {
    const at::Tensor each = at::where(target > 0, target * (target.log() - x), at::zeros_like(target));
    const auto reduction = attribute<std::string>(attributes, "reduction", "mean");
    if (reduction == "none") return each;
    if (reduction == "sum") return each.sum();
    if (reduction == "mean") return each.mean();
    if (reduction == "batchmean") return each.sum() / static_cast<double>(std::max<int64_t>(1, x.size(0)));
    fail(FaultKind::InvalidArgument, "attribute reduction is \"{}\"", reduction);
}

void deviations(LegacyArguments &call) {
    const at::Tensor x = widened(call.in[0]);
    const bool kept = attribute<bool>(call.attributes, "keepdim", false);
    const auto correction = attribute<bool>(call.attributes, "unbiased", true) ? 1 : 0;
    std::vector<int64_t> over = axes(x, call.attributes, "dim");
    if (over.empty())
        for (int64_t i = 0; i < x.dim(); ++i) over.push_back(i);
    const auto [deviation, mean] = at::std_mean(x, at::OptionalIntArrayRef(over), at::Scalar(correction), kept);
    put(call.out[0], deviation);
    if (call.out.size() > 1) put(call.out[1], mean);
}

// x [batch, channels, ...], gamma, beta; then the mean and the variance of each image's channel.
void instances_check(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    allowed(x, kNative, "x");
    if (x.dim() < 3) fail(FaultKind::InvalidArgument, "x is {}, expected 3 dimensions and more", describe(x));
    for (const size_t i : {1, 2}) holds(call.in[i], x.size(1), "gamma or beta");
    alike(call.out[0], x, "the output");
    for (const size_t i : {1, 2}) holds(call.out[i], x.size(0) * x.size(1), "a statistic");
}

void instances(LegacyArguments &call) {
    const at::Tensor x = widened(call.in[0]);
    std::vector<int64_t> over, form(static_cast<size_t>(x.dim()), 1);
    for (int64_t i = 2; i < x.dim(); ++i) over.push_back(i);
    form[1] = x.size(1);
    const at::Tensor mean = x.mean(over, true), variance = (x - mean).square().mean(over, true);
    const at::Tensor unit = (x - mean) / (variance + attribute<float>(call.attributes, "epsilon", 1e-6F)).sqrt();
    call.out[0].copy_(unit * widened(call.in[1]).reshape(form) + widened(call.in[2]).reshape(form));
    put(call.out[1], mean);
    put(call.out[2], variance);
}

// Each element over the squares of its neighbours among the channels, NCHW.
at::Tensor by_neighbours(const at::Tensor &x, const aclopAttr &attributes) {
    const auto radius = attribute<int64_t>(attributes, "depth_radius", 5);
    const at::Tensor squares = at::constant_pad_nd(x.square(), {0, 0, 0, 0, radius, radius});
    at::Tensor sums = at::zeros_like(x);
    for (int64_t i = 0; i <= 2 * radius; ++i) sums += squares.narrow(1, i, x.size(1));
    return x / (sums * attribute<float>(attributes, "alpha", 1) + attribute<float>(attributes, "bias", 1))
                   .pow(attribute<float>(attributes, "beta", 0.5F));
}

// [a, b] becomes [a, b, a, b], with the values where both halves of the index are the same.
at::Tensor on_diagonal(const at::Tensor &x, const at::Tensor &out) {
    return at::diag(x.flatten()).reshape(out.sizes());
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(BiasAdd, biased(arguments), bias(arguments))
LEGACY(BiasAddGrad, allowed(in[0], kNative, "the gradient");
       holds(out[0], in[0].size(channel(in[0], attributes)), "the output"), bias_gradient(arguments))
LEGACY(Relu6, pointwise(arguments, 1), out[0].copy_(at::relu6(in[0])))
LEGACY(Relu6Grad, pointwise(arguments, 2), out[0].copy_(relu6_gradient(in[0], in[1])))
LEGACY(Elu, pointwise(arguments, 1),
       out[0].copy_(at::elu(widened(in[0]), attribute<float>(attributes, "alpha", 1),
                            attribute<float>(attributes, "scale", 1), attribute<float>(attributes, "input_scale", 1))))
LEGACY(EluGrad, pointwise(arguments, 2), out[0].copy_(elu_gradient(widened(in[0]), widened(in[1]))))
LEGACY(Selu, pointwise(arguments, 1), out[0].copy_(at::selu(widened(in[0]))))
LEGACY(SeluGrad, pointwise(arguments, 2), out[0].copy_(selu_gradient(widened(in[0]), widened(in[1]))))
LEGACY(L2Normalize, pointwise(arguments, 1);
       axes(in[0], attributes, "axis"), out[0].copy_(normalized(widened(in[0]), attributes)))
LEGACY(LpNorm, allowed(in[0], kNative, "x");
       axes(in[0], attributes, "axes"), put(out[0], norm(widened(in[0]), attributes)))
LEGACY(KLDiv, allowed(in[0], kNative, "x");
       alike(in[1], in[0], "the target"), put(out[0], divergence(widened(in[0]), widened(in[1]), attributes)))
LEGACY(ReduceStd, allowed(in[0], kNative, "x"); axes(in[0], attributes, "dim"), deviations(arguments))
LEGACY(Diag, allowed(in[0], kAll, "x");
       holds(out[0], in[0].numel() * in[0].numel(), "the output"), out[0].copy_(on_diagonal(in[0], out[0])))
LEGACY(InstanceNorm, instances_check(arguments), instances(arguments))
LEGACY(LRN, pointwise(arguments, 1);
       sizes(in[0], {-1, -1, -1, -1}, "x"), out[0].copy_(by_neighbours(widened(in[0]), attributes)))
LEGACY(
    SquareSumAll,
    for (size_t i = 0; i < 2; ++i) {
        allowed(in[i], kNative, "an input");
        holds(out[i], 1, "an output");
    },
    for (size_t i = 0; i < 2; ++i) put(out[i], widened(in[i]).square().sum()))
