// Steps of Adam in the old API. The outputs are the first three inputs, in place; numbers are tensors of one element in
// the parameter's dtype. Computed in fp32 and rounded once.
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

void check_adam(LegacyArguments &call, DTypes dtypes, size_t gradient, std::initializer_list<size_t> numbers) {
    allowed(call.in[0], dtypes, "var");
    alike(call.in[1], call.in[0], "m");
    alike(call.in[2], call.in[0], "v");
    alike(call.in[gradient], call.in[0], "grad");
    for (size_t i = 0; i < 3; ++i) alike(call.out[i], call.in[0], "an output");
    for (const size_t i : numbers) {
        holds(call.in[i], 1, "a number");
        allowed(call.in[i], call.in[0].scalar_type(), "a number");
    }
}

at::Tensor number(const at::Tensor &tensor) { return widened(tensor).reshape({}); }

void moved(LegacyArguments &call, const at::Tensor &var, const at::Tensor &m, const at::Tensor &v) {
    call.out[0].copy_(var);
    call.out[1].copy_(m);
    call.out[2].copy_(v);
}

// ops-nn: apply_adam_d. The learning rate is corrected for both moments before the step.
void step_d(LegacyArguments &call) {
    const at::Tensor b1_power = number(call.in[3]), b2_power = number(call.in[4]), b1 = number(call.in[6]),
                     b2 = number(call.in[7]), grad = widened(call.in[9]);
    const at::Tensor rate = number(call.in[5]) * (1 - b2_power).sqrt() / (1 - b1_power);
    const at::Tensor old_m = widened(call.in[1]), old_v = widened(call.in[2]);
    const at::Tensor m = old_m + (1 - b1) * (grad - old_m), v = old_v + (1 - b2) * (grad * grad - old_v);
    const bool nesterov = attribute<bool>(call.attributes, "use_nesterov", false);
    const at::Tensor ahead = nesterov ? m * b1 + (1 - b1) * grad : m;
    moved(call, widened(call.in[0]) - rate * ahead / (number(call.in[8]) + v.sqrt()), m, v);
}

// ops-nn: apply_adam_w. The powers are those of the step before.
void step_w(LegacyArguments &call) {
    const bool maximize = attribute<bool>(call.attributes, "maximize", false);
    const at::Tensor grad = maximize ? -widened(call.in[10]) : widened(call.in[10]);
    const at::Tensor b1 = number(call.in[7]), b2 = number(call.in[8]), rate = number(call.in[5]);
    const at::Tensor m = widened(call.in[1]) * b1 + (1 - b1) * grad;
    const at::Tensor v = widened(call.in[2]) * b2 + (1 - b2) * grad * grad;
    const bool amsgrad = attribute<bool>(call.attributes, "amsgrad", false);
    const at::Tensor largest = amsgrad ? at::maximum(widened(call.in[11]), v) : v;
    if (amsgrad) call.in[11].copy_(largest);
    const at::Tensor root = (largest / (1 - number(call.in[4]) * b2)).sqrt() + number(call.in[9]);
    const at::Tensor decayed = widened(call.in[0]) * (1 - rate * number(call.in[6]));
    moved(call, decayed - rate / (1 - number(call.in[3]) * b1) * m / root, m, v);
}

bool mbart(const aclopAttr &attributes) {
    const auto mode = attribute<std::string>(attributes, "adam_mode", "adam");
    if (mode != "adam" && mode != "mbart_adam")
        fail(FaultKind::InvalidArgument, "attribute adam_mode is \"{}\", allowed are adam and mbart_adam", mode);
    return mode == "mbart_adam";
}

void check_v2(LegacyArguments &call) {
    check_adam(call, {at::kHalf, at::kFloat}, 7, {3, 4, 5, 6, 9, 10});
    mbart(call.attributes);
}

// ops-nn: apply_adam_v2. Without correction of the moments. In mode adam the gradient is divided by its norm where that
// is above 1 and max_grad_norm above 0, of which the kernel takes the sign alone (the page has min(1, max / norm)).
void step_v2(LegacyArguments &call) {
    const bool by_size = mbart(call.attributes);
    at::Tensor grad = widened(call.in[7]);
    const double largest = call.in[8].defined() ? number(call.in[8]).item<double>() : 0;
    const double norm = number(call.in[9]).item<double>();
    if (!by_size && largest > 0 && norm > 1 && norm <= 1e30) grad = grad / norm;
    const at::Tensor b1 = number(call.in[4]), b2 = number(call.in[5]), var = widened(call.in[0]);
    const at::Tensor m = widened(call.in[1]) * b1 + (1 - b1) * grad;
    const at::Tensor v = widened(call.in[2]) * b2 + (1 - b2) * grad * grad;
    const at::Tensor update = m / (v.sqrt() + number(call.in[6]));
    const at::Tensor rate = number(call.in[3]), decay = number(call.in[10]).clamp_min(0);
    const bool sized = call.in.size() > 11 && call.in[11].defined();
    const at::Tensor step =
        by_size ? (sized ? number(call.in[11]) : rate) * update + rate * decay * var : rate * (update + decay * var);
    moved(call, var - step, m, v);
}

// ops-nn: lars_v2_update. w, g, the sums of their squares, the decay, the rate; the attribute's name is hyperpara.
void check_lars(LegacyArguments &call) {
    allowed(call.in[0], kNative, "w");
    alike(call.in[1], call.in[0], "g");
    alike(call.out[0], call.in[0], "the new gradient");
    for (const size_t i : {2, 3, 4, 5}) holds(call.in[i], 1, "a number");
}

void lars(LegacyArguments &call) {
    const at::Tensor w = number(call.in[2]).sqrt(), g = number(call.in[3]).sqrt(), decay = number(call.in[4]);
    at::Tensor share = w * attribute<float>(call.attributes, "hyperpara", 0.001F) /
                       (g + w * decay + attribute<float>(call.attributes, "epsilon", 1e-5F));
    if (attribute<bool>(call.attributes, "use_clip", false)) share = (share / number(call.in[5])).clamp(0, 1);
    call.out[0].copy_((widened(call.in[1]) + widened(call.in[0]) * decay) * share);
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(ApplyAdamD, check_adam(arguments, kNative, 9, {3, 4, 5, 6, 7, 8}), step_d(arguments))
LEGACY(ApplyAdamW, check_adam(arguments, kNative, 10, {3, 4, 5, 6, 7, 8, 9});
       if (attribute<bool>(attributes, "amsgrad", false)) alike(in[11], in[0], "max_grad_norm"), step_w(arguments))
LEGACY(ApplyAdamV2, check_v2(arguments), step_v2(arguments))
LEGACY(LarsV2Update, check_lars(arguments), lars(arguments))
