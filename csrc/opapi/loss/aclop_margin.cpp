// Margins between classes, one label to a row and several: MindSpore has kernels of its own for the one and for a
// gradient of the other. In fp32 and rounded once.
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kMargins{at::kHalf, at::kFloat, at::kDouble};

// What is reduced over has a value for each row, or one.
void check_reduced(const at::Tensor &tensor, const at::Tensor &x, const aclopAttr &attributes, std::string_view what) {
    const int64_t rows = x.dim() == 2 ? x.size(0) : 1;
    holds(tensor, reduction(attributes) == at::Reduction::None ? rows : 1, what);
}

struct Margin {
    int64_t p;
    double margin;
};

Margin margin(const aclopAttr &attributes) {
    const Margin made{attribute<int64_t>(attributes, "p", 1), attribute<float>(attributes, "margin", 1)};
    if (made.p != 1 && made.p != 2) fail(FaultKind::InvalidArgument, "attribute p is {}, allowed are 1 and 2", made.p);
    return made;
}

at::Tensor weight(LegacyTensors &in, size_t place) {
    return place < in.size() && in[place].defined() ? widened(in[place]) : at::Tensor();
}

// x [N, C], target [N] and perhaps a weight of each class; `first` of them is operand `at`.
void check_one_label(LegacyArguments &call, size_t at) {
    const at::Tensor &x = call.in[at];
    margin(call.attributes);
    allowed(x, kMargins, "x");
    sizes(x, {-1, -1}, "x");
    allowed(call.in[at + 1], at::kLong, "target");
    sizes(call.in[at + 1], {x.size(0)}, "target");
    if (const at::Tensor given = weight(call.in, at + 2); given.defined()) sizes(given, {x.size(1)}, "weight");
}

at::Tensor one_label_loss(LegacyArguments &call) {
    const Margin with = margin(call.attributes);
    return at::multi_margin_loss(widened(call.in[0]), call.in[1], with.p, with.margin, weight(call.in, 2),
                                 reduction(call.attributes));
}

// A value for each row, or one: ATen's gradient takes it in that shape.
at::Tensor given(const at::Tensor &slope, const at::Tensor &x, const aclopAttr &attributes) {
    if (reduction(attributes) != at::Reduction::None || x.dim() == 1) return widened(slope).reshape({});
    return widened(slope).reshape({x.size(0)});
}

at::Tensor one_label_slope(LegacyArguments &call) {
    const Margin with = margin(call.attributes);
    return at::multi_margin_loss_backward(given(call.in[0], call.in[1], call.attributes), widened(call.in[1]),
                                          call.in[2], with.p, with.margin, weight(call.in, 3),
                                          reduction(call.attributes));
}

// x [N, C] or [C]; the labels of a row end at the first -1.
void check_labels(const at::Tensor &x, const at::Tensor &target, const at::Tensor &is_target) {
    allowed(x, {at::kHalf, at::kFloat, at::kBFloat16}, "x");
    if (x.dim() != 1 && x.dim() != 2)
        fail(FaultKind::InvalidArgument, "x is {}, expected 1 or 2 dimensions", describe(x));
    for (const at::Tensor *each : {&target, &is_target}) {
        allowed(*each, at::kInt, "target or is_target");
        sizes(*each, x.sizes(), "target or is_target");
    }
}

void labels_loss(LegacyArguments &call) {
    const auto [value, is_target] =
        at::multilabel_margin_loss_forward(widened(call.in[0]), call.in[1].to(at::kLong), reduction(call.attributes));
    put(call.out[0], value);
    put(call.out[1], is_target);
}

at::Tensor labels_slope(LegacyArguments &call) {
    const at::Tensor x = widened(call.in[1]);
    return at::multilabel_margin_loss_backward(given(call.in[0], x, call.attributes), x, call.in[2].to(at::kLong),
                                               reduction(call.attributes), call.in[3].to(x.scalar_type()));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(CustMultiMarginLoss, check_one_label(arguments, 0);
       check_reduced(out[0], in[0], attributes, "the output"), put(out[0], one_label_loss(arguments)))
// in: the gradient, x, target, weight.
LEGACY(CustMultiMarginLossGrad, check_one_label(arguments, 1); check_reduced(in[0], in[1], attributes, "the gradient");
       alike(out[0], in[1], "the output"), put(out[0], one_label_slope(arguments)))
LEGACY(MultilabelMarginLoss, check_labels(in[0], in[1], out[1]);
       check_reduced(out[0], in[0], attributes, "the output"), labels_loss(arguments))
// in: the gradient, x, target, which classes are targets.
LEGACY(CustMultilabelMarginLossGrad, check_labels(in[1], in[2], in[3]);
       check_reduced(in[0], in[1], attributes, "the gradient");
       alike(out[0], in[1], "the output"), put(out[0], labels_slope(arguments)))
