// What models are made of, for programs that have operators compiled (set_compile_mode): torch_npu then takes the old
// API for all of it. In fp32 and rounded once.
#include <ATen/ExpandUtils.h>

#include <cmath>

#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

// Inputs broadcast to the output.
void broadcast(LegacyArguments &call, size_t inputs) {
    for (size_t i = 0; i < inputs; ++i)
        if (!call.in[i].defined() || !at::is_expandable_to(call.in[i].sizes(), call.out[0].sizes()))
            fail(FaultKind::InvalidArgument, "an input is {}, which does not broadcast to {}", describe(call.in[i]),
                 describe(call.out[0]));
}

// x, two that are multiplied or divided, and a factor, whose dtype is its own.
void of_one_dtype(LegacyArguments &call) {
    for (size_t i = 1; i < 3; ++i)
        if (call.in[i].scalar_type() != call.in[0].scalar_type())
            fail(FaultKind::InvalidArgument, "an input is {}, expected the dtype of {}", describe(call.in[i]),
                 describe(call.in[0]));
    allowed(call.in[3], kReals, "value");
}

void like_first(LegacyArguments &call, size_t inputs) {
    for (size_t i = 1; i < inputs; ++i) alike(call.in[i], call.in[0], "an input");
    alike(call.out[0], call.in[0], "the output");
}

int64_t one_axis(const at::Tensor &x, const aclopAttr &attributes, const char *name) {
    const auto axes = attribute<std::vector<int64_t>>(attributes, name, {-1});
    if (axes.size() != 1 || axes[0] < -x.dim() || axes[0] >= x.dim())
        fail(FaultKind::InvalidArgument, "attribute {} is not one axis of {}", name, describe(x));
    return axes[0];
}

void loss(LegacyArguments &call) {
    alike(call.in[1], call.in[0], "the target");
    holds(call.out[0], reduction(call.attributes) == at::Reduction::None ? call.in[0].numel() : 1, "the output");
}

// in: logits [batch, classes], targets, weights of the classes.
void likelihood_check(LegacyArguments &call) {
    reduction(call.attributes);
    allowed(call.in[0], kNative, "logits");
    if (call.in[0].dim() != 1 && call.in[0].dim() != 2)
        fail(FaultKind::InvalidArgument, "logits is {}, expected 1 or 2 dimensions", describe(call.in[0]));
    const size_t target = call.in.size() > 3 ? 2 : 1;  // the gradient's operands have one more before it
    allowed(call.in[target], {at::kInt, at::kLong}, "target");
    holds(call.in[target], call.in[0].dim() == 1 ? 1 : call.in[0].size(0), "target");
    holds(call.in[target + 1], call.in[0].size(-1), "weight");
}

int64_t ignored(const aclopAttr &attributes) { return attribute<int64_t>(attributes, "ignore_index", -100); }

void likelihood(LegacyArguments &call) {
    const auto [value, total] = at::nll_loss_forward(
        widened(call.in[0]), call.in[1].to(at::kLong).view(call.in[0].sizes().slice(0, call.in[0].dim() - 1)),
        widened(call.in[2]), reduction(call.attributes), ignored(call.attributes));
    put(call.out[0], value);
    put(call.out[1], total);
}

void likelihood_grad(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    const at::IntArrayRef rows = x.sizes().slice(0, static_cast<size_t>(x.dim()) - 1);
    const bool each = reduction(call.attributes) == at::Reduction::None;
    const at::Tensor given = widened(call.in[1]).reshape(each ? rows : at::IntArrayRef());
    call.out[0].copy_(at::nll_loss_backward(given, widened(x), call.in[2].to(at::kLong).view(rows), widened(call.in[3]),
                                            reduction(call.attributes), ignored(call.attributes),
                                            widened(call.in[4]).reshape({})));
}

// Negative from the end.
int64_t first_normalized(const at::Tensor &x, const aclopAttr &attributes) {
    const auto axis = attribute<int64_t>(attributes, "begin_norm_axis", 0);
    if (axis < -x.dim() || axis >= x.dim())
        fail(FaultKind::InvalidArgument, "attribute begin_norm_axis is {} for {}", axis, describe(x));
    return axis < 0 ? axis + x.dim() : axis;
}

// Mean and variance, of which the gradient takes the variance (aclop_activation.cpp).
void layer_norm_check(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    allowed(x, kNative, "x");
    const int64_t axis = first_normalized(x, call.attributes);
    for (const size_t i : {1, 2}) sizes(call.in[i], x.sizes().slice(static_cast<size_t>(axis)), "gamma or beta");
    alike(call.out[0], x, "the output");
}

void layer_norm(LegacyArguments &call) {
    const at::Tensor x = widened(call.in[0]);
    const int64_t axis = first_normalized(x, call.attributes);
    std::vector<int64_t> axes;
    for (int64_t i = axis; i < x.dim(); ++i) axes.push_back(i);
    const auto [variance, mean] = at::var_mean(x, at::OptionalIntArrayRef(axes), /*correction=*/at::Scalar(0), true);
    const at::Tensor rstd = (variance + attribute<float>(call.attributes, "epsilon", 1e-5F)).rsqrt();
    call.out[0].copy_((x - mean) * rstd * widened(call.in[1]) + widened(call.in[2]));
    put(call.out[1], mean);
    put(call.out[2], variance);
}

std::vector<at::Tensor> joined(LegacyArguments &call, const char *name) {
    const auto count = attribute<int64_t>(call.attributes, "N", static_cast<int64_t>(call.in.size()));
    if (count < 1 || count > static_cast<int64_t>(call.in.size()))
        fail(FaultKind::InvalidArgument, "attribute N is {}, there are {} inputs", count, call.in.size());
    std::vector<at::Tensor> tensors(call.in.begin(), call.in.begin() + count);
    const bool stacked = std::string_view(name) == "axis";
    const auto axis = attribute<int64_t>(call.attributes, name, 0);
    const int64_t rank = tensors[0].dim() + (stacked ? 1 : 0);
    if (axis < -rank || axis >= rank)
        fail(FaultKind::InvalidArgument, "attribute {} is {} for {}", name, axis, describe(tensors[0]));
    int64_t total = 0;
    for (const at::Tensor &tensor : tensors) {
        allowed(tensor, tensors[0].scalar_type(), "an input");
        total += tensor.numel();
    }
    holds(call.out[0], total, "the output");
    return tensors;
}

int64_t axis_input(const at::Tensor &x, const at::Tensor &axis) {
    const std::vector<int64_t> axes = ints(axis);
    if (axes.size() != 1 || axes[0] < -x.dim() || axes[0] >= x.dim())
        fail(FaultKind::InvalidArgument, "the axis is not one of {}", describe(x));
    return axes[0] < 0 ? axes[0] + x.dim() : axes[0];
}

void along_first(LegacyArguments &call) {
    const int64_t axis = axis_input(call.in[1], call.in[0]);
    std::vector<int64_t> made = call.in[1].sizes().vec();
    made[static_cast<size_t>(axis)] = 0;
    for (size_t i = 1; i < call.in.size(); ++i) {
        std::vector<int64_t> expected = call.in[1].sizes().vec();
        expected[static_cast<size_t>(axis)] = -1;
        sizes(call.in[i], expected, "an input");
        allowed(call.in[i], call.out[0].scalar_type(), "an input");
        made[static_cast<size_t>(axis)] += call.in[i].size(axis);
    }
    sizes(call.out[0], made, "the output");
}

void gather_check(LegacyArguments &call) {
    allowed(call.in[1], {at::kInt, at::kLong}, "indices");
    if (attribute<int64_t>(call.attributes, "batch_dims", 0) != 0)
        fail(FaultKind::Unsupported, "The virtual NPU does not have batch_dims of GatherV2.");
    const int64_t size = call.in[0].size(axis_input(call.in[0], call.in[2]));
    holds(call.out[0], size == 0 ? 0 : call.in[0].numel() / size * call.in[1].numel(), "the output");
}

void gather(LegacyArguments &call) {
    const int64_t axis = axis_input(call.in[0], call.in[2]);
    put(call.out[0], call.in[0].index_select(axis, call.in[1].flatten().to(at::kLong)));
}

void embedding_check(LegacyArguments &call) {
    allowed(call.in[0], kNative, "the gradient");
    allowed(call.in[1], {at::kInt, at::kLong}, "indices");
    const int64_t width = call.in[0].size(-1);
    holds(call.in[0], call.in[1].numel() * width, "the gradient");
    sizes(call.out[0], {attribute<int64_t>(call.attributes, "num_weights", 0), width}, "the output");
}

void embedding_grad(LegacyArguments &call) {
    const at::Tensor grad = widened(call.in[0]).reshape({-1, call.in[0].size(-1)});
    call.out[0].copy_(at::embedding_dense_backward(grad, call.in[1].flatten().to(at::kLong), call.out[0].size(0),
                                                   attribute<int64_t>(call.attributes, "padding_idx", -1),
                                                   attribute<bool>(call.attributes, "scale_grad_by_freq", false)));
}

void truths(LegacyArguments &call) {
    allowed(call.in[0], at::kBool, "x");
    for (const int64_t axis : ints(call.in[1]))
        if (axis < -call.in[0].dim() || axis >= call.in[0].dim())
            fail(FaultKind::InvalidArgument, "axis {} lies outside of {}", axis, describe(call.in[0]));
}

at::Tensor logarithm(const at::Tensor &x, const aclopAttr &attributes) {
    const double base = attribute<float>(attributes, "base", -1);
    const double scale = attribute<float>(attributes, "scale", 1), shift = attribute<float>(attributes, "shift", 0);
    const at::Tensor natural = (widened(x) * scale + shift).log();
    return base > 0 ? natural / std::log(base) : natural;
}

void range_check(LegacyArguments &call) {
    for (size_t i = 0; i < 3; ++i) holds(call.in[i], 1, "an end or the step");
    sizes(call.out[0], {-1}, "the output");
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(Gelu, like_first(arguments, 1), out[0].copy_(at::gelu(widened(in[0]), "tanh")))
LEGACY(GeluGrad, like_first(arguments, 2), out[0].copy_(at::gelu_backward(widened(in[0]), widened(in[1]), "tanh")))
LEGACY(LogSoftmaxGrad, like_first(arguments, 2);
       one_axis(in[0], attributes, "axis"),
       out[0].copy_(at::_log_softmax_backward_data(widened(in[0]), widened(in[1]), one_axis(in[0], attributes, "axis"),
                                                   widened(in[0]).scalar_type())))
LEGACY(SoftmaxGrad, like_first(arguments, 2);
       one_axis(in[0], attributes, "axes"),
       out[0].copy_(at::_softmax_backward_data(widened(in[1]), widened(in[0]), one_axis(in[0], attributes, "axes"),
                                               widened(in[0]).scalar_type())))
LEGACY(ThresholdGradV2D, like_first(arguments, 2),
       out[0].copy_(at::threshold_backward(in[0], in[1], attribute<float>(attributes, "threshold", 0))))
LEGACY(MseLoss, loss(arguments), put(out[0], at::mse_loss(widened(in[0]), widened(in[1]), reduction(attributes))))
LEGACY(MseLossGrad, alike(in[1], in[0], "the target"); alike(out[0], in[0], "the output");
       reduction(attributes),
       out[0].copy_(at::mse_loss_backward(widened(in[2]), widened(in[0]), widened(in[1]), reduction(attributes))))
LEGACY(NLLLoss, likelihood_check(arguments), likelihood(arguments))
LEGACY(NLLLossGrad, likelihood_check(arguments); alike(out[0], in[0], "the output"), likelihood_grad(arguments))
LEGACY(LayerNorm, layer_norm_check(arguments), layer_norm(arguments))
LEGACY(EmbeddingDenseGrad, embedding_check(arguments), embedding_grad(arguments))
LEGACY(GatherV2, gather_check(arguments), gather(arguments))
LEGACY(ConcatD, joined(arguments, "concat_dim"),
       put(out[0], at::cat(joined(arguments, "concat_dim"), attribute<int64_t>(attributes, "concat_dim", 0))))
// The dimension is the first input.
LEGACY(Concat, along_first(arguments), out[0].copy_(at::cat(at::TensorList(in).slice(1), axis_input(in[1], in[0]))))
LEGACY(ParallelConcat, joined(arguments, "concat_dim"), put(out[0], at::cat(joined(arguments, "concat_dim"), 0)))
LEGACY(Pack, joined(arguments, "axis"),
       put(out[0], at::stack(joined(arguments, "axis"), attribute<int64_t>(attributes, "axis", 0))))
LEGACY(Addcmul, broadcast(arguments, 4);
       of_one_dtype(arguments), out[0].copy_(widened(in[0]) + widened(in[3]) * widened(in[1]) * widened(in[2])))
LEGACY(Addcdiv, broadcast(arguments, 4);
       of_one_dtype(arguments), out[0].copy_(widened(in[0]) + widened(in[3]) * widened(in[1]) / widened(in[2])))
LEGACY(Lerp, broadcast(arguments, 3), const at::Tensor start = widened(in[0]);
       out[0].copy_(start + widened(in[2]) * (widened(in[1]) - start)))
LEGACY(ClipByValueV2, broadcast(arguments, 3), out[0].copy_(at::minimum(at::maximum(in[0], in[1]), in[2])))
LEGACY(Select, broadcast(arguments, 3);
       allowed(in[0], at::kBool, "the condition"), out[0].copy_(at::where(in[0], in[1], in[2])))
LEGACY(MaskedFill, broadcast(arguments, 2); allowed(in[1], at::kBool, "the mask");
       holds(in[2], 1, "the value"), out[0].copy_(at::where(in[1], in[2].reshape({}).to(in[0].scalar_type()), in[0])))
LEGACY(Triu, like_first(arguments, 1), out[0].copy_(at::triu(in[0], attribute<int64_t>(attributes, "diagonal", 0))))
LEGACY(Tril, like_first(arguments, 1), out[0].copy_(at::tril(in[0], attribute<int64_t>(attributes, "diagonal", 0))))
LEGACY(Tile, holds(out[0], in[0].repeat(ints(in[1])).numel(), "the output"), put(out[0], in[0].repeat(ints(in[1]))))
LEGACY(Log, like_first(arguments, 1), out[0].copy_(logarithm(in[0], attributes)))
LEGACY(Range, range_check(arguments),
       out[0].copy_(at::arange(in[0].reshape({}).item(), in[1].reshape({}).item(), in[2].reshape({}).item(),
                               out[0].options())
                        .slice(0, 0, out[0].numel())))
LEGACY(ReduceAll, truths(arguments), put(out[0], in[0].logical_not().sum(ints(in[1])).eq(0)))
LEGACY(ReduceAny, truths(arguments), put(out[0], in[0].sum(ints(in[1])).ne(0)))
LEGACY(ArgMin, axis_input(in[0], in[1]);
       allowed(out[0], {at::kInt, at::kLong}, "the output"), put(out[0], in[0].argmin(axis_input(in[0], in[1]))))
LEGACY(ArgMaxV2, axis_input(in[0], in[1]);
       allowed(out[0], {at::kInt, at::kLong}, "the output"), put(out[0], in[0].argmax(axis_input(in[0], in[1]))))
