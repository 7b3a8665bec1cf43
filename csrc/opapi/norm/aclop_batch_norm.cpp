// Batch normalization of the old API, in the parts that MindSpore makes of it: sums, the update by them, and the same
// of the gradients. Channels are dimension 1; in fp32, rounded once.
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

void check_channels(LegacyArguments &call, size_t x, std::initializer_list<size_t> inputs,
                    std::initializer_list<size_t> outputs) {
    const at::Tensor &tensor = call.in[x];
    allowed(tensor, kNative, "x");
    if (tensor.dim() < 2) fail(FaultKind::InvalidArgument, "x is {}, expected 2 dimensions and more", describe(tensor));
    for (const size_t i : inputs) holds(call.in[i], tensor.size(1), "an input by channel");
    for (const size_t i : outputs) holds(call.out[i], tensor.size(1), "an output by channel");
}

std::vector<int64_t> others(const at::Tensor &x) {
    std::vector<int64_t> axes{0};
    for (int64_t i = 2; i < x.dim(); ++i) axes.push_back(i);
    return axes;
}

// A value of each channel, in the form of x.
at::Tensor by_channel(const at::Tensor &values, const at::Tensor &x) {
    std::vector<int64_t> form(static_cast<size_t>(x.dim()), 1);
    form[1] = x.size(1);
    return widened(values).reshape(form);
}

double elements(const at::Tensor &x) { return x.size(1) == 0 ? 1 : static_cast<double>(x.numel() / x.size(1)); }

float epsilon(const aclopAttr &attributes) { return attribute<float>(attributes, "epsilon", 1e-5F); }

at::Tensor unit(LegacyArguments &call, size_t x, size_t mean, size_t variance) {
    const at::Tensor values = widened(call.in[x]);
    return (values - by_channel(call.in[mean], values)) *
           (by_channel(call.in[variance], values) + epsilon(call.attributes)).rsqrt();
}

void sums(LegacyArguments &call) {
    const at::Tensor x = call.in[0].to(at::kDouble);
    put(call.out[0], x.sum(others(x)));
    put(call.out[1], (x * x).sum(others(x)));
}

// x, sum, square_sum, scale, offset, mean, variance.
void update(LegacyArguments &call) {
    const at::Tensor x = widened(call.in[0]);
    const double count = elements(x);
    const at::Tensor mean = call.in[1].to(at::kDouble) / count;
    const at::Tensor variance = call.in[2].to(at::kDouble) / count - mean * mean;
    const at::Tensor y = (x - by_channel(mean.to(at::kFloat), x)) *
                         (by_channel(variance, x) + epsilon(call.attributes)).rsqrt().to(at::kFloat);
    const auto factor = attribute<float>(call.attributes, "factor", 0.1F);
    const at::Tensor spread = variance * (count > 1 ? count / (count - 1) : 0);
    const at::Tensor moving_mean = widened(call.in[5]) * (1 - factor) + mean.reshape(call.in[5].sizes()) * factor;
    const at::Tensor moving_variance = widened(call.in[6]) * (1 - factor) + spread.reshape(call.in[6].sizes()) * factor;
    put(call.out[0], y * by_channel(call.in[3], x) + by_channel(call.in[4], x));
    put(call.out[1], moving_mean);
    put(call.out[2], moving_variance);
    put(call.out[3], mean);
    put(call.out[4], variance);
}

// gradient, x, mean, variance.
void update_gradients(LegacyArguments &call) {
    const at::Tensor gradient = widened(call.in[0]);
    put(call.out[0], (gradient * unit(call, 1, 2, 3)).sum(others(gradient)));
    put(call.out[1], gradient.sum(others(gradient)));
}

// gradient, x, the gradients of scale and offset, scale, mean, variance.
void gradient_of_x(LegacyArguments &call) {
    const at::Tensor gradient = widened(call.in[0]);
    const double count = elements(gradient);
    const at::Tensor slope = gradient - by_channel(call.in[3], gradient) / count -
                             unit(call, 1, 5, 6) * by_channel(call.in[2], gradient) / count;
    put(call.out[0], slope * by_channel(call.in[4], gradient) *
                         (by_channel(call.in[6], gradient) + epsilon(call.attributes)).rsqrt());
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(BNTrainingReduce, check_channels(arguments, 0, {}, {0, 1}), sums(arguments))
LEGACY(BNTrainingUpdate, check_channels(arguments, 0, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 4});
       holds(out[0], in[0].numel(), "y"), update(arguments))
LEGACY(BNTrainingUpdateGrad, check_channels(arguments, 1, {2, 3}, {0, 1});
       holds(in[0], in[1].numel(), "the gradient"), update_gradients(arguments))
LEGACY(BNTrainingReduceGrad, check_channels(arguments, 1, {2, 3, 4, 5, 6}, {});
       holds(in[0], in[1].numel(), "the gradient");
       holds(out[0], in[1].numel(), "the gradient of x"), gradient_of_x(arguments))
LEGACY(BNInfer, check_channels(arguments, 0, {1, 2, 3, 4}, {});
       holds(out[0], in[0].numel(), "y"),
       put(out[0], unit(arguments, 0, 3, 4) * by_channel(in[1], in[0]) + by_channel(in[2], in[0])))
LEGACY(BNInferGrad, check_channels(arguments, 0, {1, 2}, {});
       holds(out[0], in[0].numel(), "the gradient of x"),
       put(out[0],
           widened(in[0]) * by_channel(in[1], in[0]) * (by_channel(in[2], in[0]) + epsilon(attributes)).rsqrt()))
