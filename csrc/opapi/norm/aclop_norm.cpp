// Normalizations of the old API over a row, an image or neighbours, with the gradients. In fp32 and rounded once.
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

void check_layer_norm(LegacyArguments &call) {
    allowed(call.in[0], kNative, "x");
    alike(call.in[2], call.in[1], "beta");
    alike(call.out[0], call.in[0], "the output");
    const int64_t axis = axis_of(call.in[0], call.attributes, "begin_norm_axis", 0);
    sizes(call.in[1], call.in[0].sizes().slice(static_cast<size_t>(axis)), "gamma");
}

void layer_norm(LegacyArguments &call) {
    const at::Tensor x = widened(call.in[0]);
    const int64_t axis = axis_of(x, call.attributes, "begin_norm_axis", 0);
    const at::Tensor gamma = widened(call.in[1]), beta = widened(call.in[2]);
    const auto [y, mean, rstd] = at::native_layer_norm(x, x.sizes().slice(static_cast<size_t>(axis)), gamma, beta,
                                                       attribute<float>(call.attributes, "epsilon", 1e-5F));
    call.out[0].copy_(y);
    put(call.out[1], mean);
    put(call.out[2], rstd);
}

// Mean and variance, of which the gradient takes the variance.
void check_layer_norm_variance(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    allowed(x, kNative, "x");
    const int64_t axis = axis_of(x, call.attributes, "begin_norm_axis", 0);
    for (const size_t i : {1, 2}) sizes(call.in[i], x.sizes().slice(static_cast<size_t>(axis)), "gamma or beta");
    alike(call.out[0], x, "the output");
}

void layer_norm_variance(LegacyArguments &call) {
    const at::Tensor x = widened(call.in[0]);
    const int64_t axis = axis_of(x, call.attributes, "begin_norm_axis", 0);
    std::vector<int64_t> axes;
    for (int64_t i = axis; i < x.dim(); ++i) axes.push_back(i);
    const auto [variance, mean] = at::var_mean(x, at::OptionalIntArrayRef(axes), /*correction=*/at::Scalar(0), true);
    const at::Tensor rstd = (variance + attribute<float>(call.attributes, "epsilon", 1e-5F)).rsqrt();
    call.out[0].copy_((x - mean) * rstd * widened(call.in[1]) + widened(call.in[2]));
    put(call.out[1], mean);
    put(call.out[2], variance);
}

// in: gradient, x, variance, mean, gamma. The variance has its epsilon here (ops-nn: layer_norm_grad).
void check_layer_norm_grad(LegacyArguments &call) {
    allowed(call.in[0], kNative, "the gradient");
    alike(call.in[1], call.in[0], "x");
    const int64_t width = call.in[4].numel(), rows = width == 0 ? 0 : call.in[1].numel() / width;
    sizes(call.in[4],
          call.in[1].sizes().slice(static_cast<size_t>(std::max(call.in[1].dim() - call.in[4].dim(), int64_t{0}))),
          "gamma");
    holds(call.in[2], rows, "variance");
    holds(call.in[3], rows, "mean");
    alike(call.out[0], call.in[1], "the gradient of x");
    for (const size_t i : {1, 2}) holds(call.out[i], width, "the gradient of gamma or beta");
}

void layer_norm_grad(LegacyArguments &call) {
    const double epsilon = call.in[1].scalar_type() == at::kFloat ? 1e-12 : 1e-5;
    const at::Tensor x = widened(call.in[1]), gamma = widened(call.in[4]);
    const at::Tensor rstd = (widened(call.in[2]) + epsilon).rsqrt();
    const at::Tensor dy = widened(call.in[0]).view({-1, gamma.numel()});
    const at::Tensor unit = (x.view(dy.sizes()) - widened(call.in[3]).view({-1, 1})) * rstd.view({-1, 1});
    const at::Tensor slope = dy * gamma.flatten();
    put(call.out[0], (slope - slope.mean(-1, true) - unit * (slope * unit).mean(-1, true)) * rstd.view({-1, 1}));
    put(call.out[1], (dy * unit).sum(0));
    put(call.out[2], dy.sum(0));
}

// Rows of different lengths; what lies behind a row's end counts for nothing, and is normalized too.
void check_normalize_batch(LegacyArguments &call) {
    allowed(call.in[0], at::kFloat, "x");
    sizes(call.in[0], {-1, -1, -1}, "x");
    allowed(call.in[1], at::kInt, "seq_len");
    holds(call.in[1], call.in[0].size(0), "seq_len");
    alike(call.out[0], call.in[0], "the output");
    const auto type = attribute<std::string>(call.attributes, "normalize_type", "");
    if (type != "per_feature" && type != "all_features")
        fail(FaultKind::InvalidArgument, "attribute normalize_type is \"{}\", allowed are per_feature and all_features",
             type);
}

void normalize_batch(LegacyArguments &call) {
    const bool all = attribute<std::string>(call.attributes, "normalize_type", "") == "all_features";
    const std::vector<int64_t> dims = all ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{1};
    const std::vector<int64_t> lengths = ints(call.in[1]);
    for (int64_t i = 0; i < call.in[0].size(0); ++i) {
        const at::Tensor x = call.in[0][i];
        const at::Tensor counted = x.narrow(1, 0, std::clamp<int64_t>(lengths[static_cast<size_t>(i)], 0, x.size(1)));
        const auto [deviation, mean] = at::std_mean(counted, dims, /*unbiased=*/true, /*keepdim=*/true);
        call.out[0][i].copy_((x - mean) / (deviation + attribute<float>(call.attributes, "epsilon", 1e-5F)));
    }
}

// x [batch, channels, ...], gamma, beta; then the mean and the variance of each image's channel.
void check_instance_norm(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    allowed(x, kNative, "x");
    if (x.dim() < 3) fail(FaultKind::InvalidArgument, "x is {}, expected 3 dimensions and more", describe(x));
    for (const size_t i : {1, 2}) holds(call.in[i], x.size(1), "gamma or beta");
    alike(call.out[0], x, "the output");
    for (const size_t i : {1, 2}) holds(call.out[i], x.size(0) * x.size(1), "a statistic");
}

void instance_norm(LegacyArguments &call) {
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

at::Tensor normalized(const at::Tensor &x, const aclopAttr &attributes) {
    const at::Tensor squares = (x * x).sum(axes_of(x, attributes, "axis"), true);
    return x / squares.clamp_min(attribute<float>(attributes, "eps", 1e-4F)).sqrt();
}

// x, y = x / max(norm, root of eps), gradient. Where the norm is below, y is linear in x.
void l2_gradient(LegacyArguments &call) {
    const at::Tensor x = widened(call.in[0]), y = widened(call.in[1]), gradient = widened(call.in[2]);
    const auto over = attribute<std::vector<int64_t>>(call.attributes, "dim", {});
    const auto epsilon = attribute<float>(call.attributes, "eps", 1e-4F);
    const at::Tensor squares = x.square().sum(over, true);
    const at::Tensor along = at::where(squares > epsilon, (gradient * y).sum(over, true), at::zeros_like(squares));
    call.out[0].copy_((gradient - y * along) / squares.clamp_min(epsilon).sqrt());
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

// gradient, x, y = x / (bias + alpha * squares of neighbours)^beta.
void neighbours_gradient(LegacyArguments &call) {
    const at::Tensor gradient = widened(call.in[0]), x = widened(call.in[1]), y = widened(call.in[2]);
    const auto radius = attribute<int64_t>(call.attributes, "depth_radius", 5);
    const auto alpha = attribute<float>(call.attributes, "alpha", 1),
               beta = attribute<float>(call.attributes, "beta", 0.5F);
    const auto around = [&](const at::Tensor &values) {
        const at::Tensor wide = at::constant_pad_nd(values, {0, 0, 0, 0, radius, radius});
        at::Tensor sums = at::zeros_like(values);
        for (int64_t i = 0; i <= 2 * radius; ++i) sums += wide.narrow(1, i, values.size(1));
        return sums;
    };
    const at::Tensor base = around(x.square()) * alpha + attribute<float>(call.attributes, "bias", 1);
    call.out[0].copy_(gradient * base.pow(-beta) - x * around(gradient * y / base) * (2 * alpha * beta));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(LayerNormV3, check_layer_norm(arguments), layer_norm(arguments))
LEGACY(LayerNorm, check_layer_norm_variance(arguments), layer_norm_variance(arguments))
LEGACY(LayerNormGrad, check_layer_norm_grad(arguments), layer_norm_grad(arguments))
LEGACY(NormalizeBatch, check_normalize_batch(arguments), normalize_batch(arguments))
LEGACY(InstanceNorm, check_instance_norm(arguments), instance_norm(arguments))
LEGACY(L2Normalize, check_like_first(arguments, 1, kNative);
       axes_of(in[0], attributes, "axis"), out[0].copy_(normalized(widened(in[0]), attributes)))
LEGACY(L2NormalizeGrad, check_like_first(arguments, 3, kNative), l2_gradient(arguments))
LEGACY(LRN, check_like_first(arguments, 1, kNative);
       sizes(in[0], {-1, -1, -1, -1}, "x"), out[0].copy_(by_neighbours(widened(in[0]), attributes)))
LEGACY(LRNGrad, check_like_first(arguments, 3, kNative);
       sizes(in[0], {-1, -1, -1, -1}, "the gradient"), neighbours_gradient(arguments))
