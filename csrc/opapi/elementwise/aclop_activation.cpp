// Activations, their gradients and normalizations of the old API, in fp32 and rounded once.
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

void gradient(LegacyArguments &call, size_t inputs) {
    allowed(call.in[0], kNative, "the gradient");
    for (size_t i = 1; i < inputs; ++i) alike(call.in[i], call.in[0], "an input");
    alike(call.out[0], call.in[0], "the output");
}

at::Tensor swish_slope(const at::Tensor &x, double scale) {
    const at::Tensor gate = (x * scale).sigmoid();
    return gate * (1 + scale * x * (1 - gate));
}

// The labels are weights of the classes, whatever their sum is.
void cross_entropy(LegacyArguments &call) {
    allowed(call.in[0], kNative, "logits");
    alike(call.in[1], call.in[0], "labels");
    if (call.in[0].dim() != 2 && call.in[0].dim() != 4)
        fail(FaultKind::InvalidArgument, "the logits are {}, expected 2 or 4 dimensions", describe(call.in[0]));
    alike(call.out[1], call.in[0], "the gradient");
    const int64_t classes = call.in[0].size(call.in[0].dim() == 2 ? 1 : -1);
    holds(call.out[0], classes == 0 ? call.out[0].numel() : call.in[0].numel() / classes, "the loss");
}

int64_t first_normalized(const at::Tensor &x, const aclopAttr &attributes) {
    const auto axis = attribute<int64_t>(attributes, "begin_norm_axis", 0);
    if (axis < -x.dim() || axis >= x.dim())
        fail(FaultKind::InvalidArgument, "attribute begin_norm_axis is {} for {}", axis, describe(x));
    return axis < 0 ? axis + x.dim() : axis;
}

void layer_norm_check(LegacyArguments &call) {
    allowed(call.in[0], kNative, "x");
    alike(call.in[2], call.in[1], "beta");
    alike(call.out[0], call.in[0], "the output");
    const int64_t axis = first_normalized(call.in[0], call.attributes);
    sizes(call.in[1], call.in[0].sizes().slice(static_cast<size_t>(axis)), "gamma");
}

void layer_norm(LegacyArguments &call) {
    const at::Tensor x = widened(call.in[0]);
    const int64_t axis = first_normalized(x, call.attributes);
    const at::Tensor gamma = widened(call.in[1]), beta = widened(call.in[2]);
    const auto [y, mean, rstd] = at::native_layer_norm(x, x.sizes().slice(static_cast<size_t>(axis)), gamma, beta,
                                                       attribute<float>(call.attributes, "epsilon", 1e-5F));
    call.out[0].copy_(y);
    put(call.out[1], mean);
    put(call.out[2], rstd);
}

// in: gradient, x, variance, mean, gamma. The variance has its epsilon here (ops-nn: layer_norm_grad).
void layer_norm_grad_check(LegacyArguments &call) {
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
void batch_check(LegacyArguments &call) {
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

int64_t one_axis(const aclopAttr &attributes) {
    const auto axes = attribute<std::vector<int64_t>>(attributes, "axes", {-1});
    if (axes.size() != 1) fail(FaultKind::InvalidArgument, "attribute axes has {} values, expected 1", axes.size());
    return axes[0];
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(MishGrad, gradient(arguments, 2), out[0].copy_(at::mish_backward(widened(in[0]), widened(in[1]))))
// The scale is what x is multiplied by before the sigmoid.
LEGACY(Swish, allowed(in[0], kNative, "x"); alike(out[0], in[0], "the output"), const at::Tensor x = widened(in[0]);
       out[0].copy_(x * (x * static_cast<double>(attribute<float>(attributes, "scale", 1))).sigmoid()))
// in: gradient, x and y, which is not needed.
LEGACY(SwishGrad, gradient(arguments, 3),
       out[0].copy_(widened(in[0]) * swish_slope(widened(in[1]), attribute<float>(attributes, "scale", 1))))
LEGACY(SiluGrad, gradient(arguments, 2), out[0].copy_(widened(in[0]) * swish_slope(widened(in[1]), 1)))
LEGACY(SoftmaxCrossEntropyWithLogits, cross_entropy(arguments), const at::Tensor labels = widened(in[1]);
       const at::Tensor likelihood = at::log_softmax(widened(in[0]), -1); put(out[0], -(labels *likelihood).sum(-1));
       out[1].copy_(at::softmax(widened(in[0]), -1) - labels))
LEGACY(LayerNormV3, layer_norm_check(arguments), layer_norm(arguments))
LEGACY(LayerNormGrad, layer_norm_grad_check(arguments), layer_norm_grad(arguments))
LEGACY(LogSoftmaxV2, allowed(in[0], kNative, "logits"); one_axis(attributes);
       alike(out[0], in[0], "the output"), out[0].copy_(at::log_softmax(widened(in[0]), one_axis(attributes))))
LEGACY(IsFinite, allowed(in[0], kAll, "x");
       holds(out[0], in[0].numel(), "the output"), out[0].copy_(at::isfinite(in[0])))
LEGACY(NormalizeBatch, batch_check(arguments), normalize_batch(arguments))
