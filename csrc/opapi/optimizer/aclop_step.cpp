// Steps of the optimizers that MindSpore's rarer classes and operators ask for by type, as TensorFlow has them and
// CANN's prototypes describe them (nn_training_ops.h): those of dense gradients.
#include "opapi/optimizer/aclop_steps.h"

namespace vnpu::opapi {
namespace {

float real(const aclopAttr &attributes, const char *name) {
    if (!attributes.values.contains(name)) fail(FaultKind::InvalidArgument, "attribute {} is missing", name);
    return attribute<float>(attributes, name, 0);
}

// var, m, v, the largest v, the powers of both betas, rate; then beta1, beta2, epsilon as operands (V2) or attributes.
void amsgrad(LegacyArguments &call, const at::Tensor &b1, const at::Tensor &b2, const at::Tensor &epsilon,
             const at::Tensor &gradient) {
    const at::Tensor rate = like(call, 6) * (1 - like(call, 5)).sqrt() / (1 - like(call, 4));
    const at::Tensor m = widened(call.in[1]) * b1 + (1 - b1) * gradient;
    const at::Tensor v = widened(call.in[2]) * b2 + (1 - b2) * gradient * gradient;
    const at::Tensor largest = at::maximum(widened(call.in[3]), v);
    call.in[0].copy_(widened(call.in[0]) - rate * m / (largest.sqrt() + epsilon));
    call.in[1].copy_(m);
    call.in[2].copy_(v);
    call.in[3].copy_(largest);
    give_back(call, 4);
}

at::Tensor number(LegacyArguments &call, const char *name) { return at::scalar_tensor(real(call.attributes, name)); }

void amsgrad_d(LegacyArguments &call) {
    amsgrad(call, number(call, "beta1"), number(call, "beta2"), number(call, "epsilon"), like(call, 7));
}

void check_amsgrad_d(LegacyArguments &call) {
    check_step(call, 7, {1, 2, 3}, {4, 5, 6});
    for (const char *name : {"beta1", "beta2", "epsilon"}) real(call.attributes, name);
}

// var, m, rate, alpha or the logarithm of the base, how much the sign counts, beta, gradient.
void by_signs(LegacyArguments &call, bool power) {
    const at::Tensor beta = like(call, 5), gradient = like(call, 6);
    const at::Tensor m = widened(call.in[1]) * beta + (1 - beta) * gradient;
    const at::Tensor agreed = like(call, 4) * gradient.sign() * m.sign();
    const at::Tensor scale = power ? (like(call, 3) * agreed).exp() : like(call, 3) + agreed;
    call.in[0].copy_(widened(call.in[0]) - like(call, 2) * scale * gradient);
    call.in[1].copy_(m);
    give_back(call, 2);
}

// var, rate, gradient.
void descent(LegacyArguments &call) {
    call.in[0].copy_(widened(call.in[0]) - like(call, 1) * like(call, 2));
    give_back(call, 1);
}

// var, rate, l1, l2, gradient.
void proximal_descent(LegacyArguments &call) {
    const at::Tensor rate = like(call, 1), there = widened(call.in[0]) - rate * like(call, 4);
    call.in[0].copy_(shrunk(there, rate * like(call, 2)) / (1 + rate * like(call, 3)));
    give_back(call, 1);
}

// var, mean of gradients, mean of squares, momentum, rate, rho, share, epsilon, gradient.
void centered(LegacyArguments &call) {
    const at::Tensor rho = like(call, 5), gradient = like(call, 8);
    const at::Tensor mean = widened(call.in[1]) * rho + (1 - rho) * gradient;
    const at::Tensor squares = widened(call.in[2]) * rho + (1 - rho) * gradient * gradient;
    const at::Tensor moved =
        widened(call.in[3]) * like(call, 6) + like(call, 4) * gradient / (squares - mean * mean + like(call, 7)).sqrt();
    call.in[0].copy_(widened(call.in[0]) - moved);
    call.in[1].copy_(mean);
    call.in[2].copy_(squares);
    call.in[3].copy_(moved);
    give_back(call, 4);
}

// var, accum, rate, gradient, momentum: the rate is in what is accumulated.
void keras_momentum(LegacyArguments &call) {
    const at::Tensor share = like(call, 4), step = like(call, 2) * like(call, 3);
    const at::Tensor moved = widened(call.in[1]) * share - step;
    const bool nesterov = attribute<bool>(call.attributes, "use_nesterov", false);
    call.in[0].copy_(widened(call.in[0]) + (nesterov ? moved * share - step : moved));
    call.in[1].copy_(moved);
    give_back(call, 2);
}

// var, sum of gradients, sum of their squares, gradient, rate, l1, l2, number of the step.
void dual_averaging(LegacyArguments &call) {
    const at::Tensor gradient = like(call, 3), rate = like(call, 4), count = like(call, 7).to(gradient.scalar_type());
    const at::Tensor sum = widened(call.in[1]) + gradient, squares = widened(call.in[2]) + gradient * gradient;
    call.in[0].copy_(-rate * shrunk(sum, like(call, 5) * count) / (like(call, 6) * count * rate + squares.sqrt()));
    call.in[1].copy_(sum);
    call.in[2].copy_(squares);
    give_back(call, 3);
}

void check_dual_averaging(LegacyArguments &call) {
    check_step(call, 3, {1, 2}, {4, 5, 6, 7});
    allowed(call.in[7], {at::kInt, at::kLong}, "the number of the step");
}

// var, accum, rate, gradient; the attribute epsilon is beside the root.
void adagrad_v2(LegacyArguments &call) {
    const at::Tensor gradient = like(call, 3);
    if (attribute<bool>(call.attributes, "update_slots", true))
        call.in[1].copy_(widened(call.in[1]) + gradient * gradient);
    call.in[0].copy_(widened(call.in[0]) -
                     like(call, 2) * gradient / (widened(call.in[1]).sqrt() + real(call.attributes, "epsilon")));
    give_back(call, 2);
}

void check_lamb(LegacyArguments &call) {
    check_step(call, 0, {1, 2, 3}, {4, 5, 6, 7, 8, 9, 10, 11});
    for (size_t i = 0; i < 3; ++i) holds(call.out[i], call.in[0].numel(), "an output");
}

// gradient, v, m, var, beta1 and what is left of 1, beta2 likewise, epsilon, number of the step, whether the decay
// counts, decay: the update, v, m.
void lamb(LegacyArguments &call) {
    const at::Tensor gradient = widened(call.in[0]), b1 = like(call, 4), b2 = like(call, 6), count = like(call, 9);
    const at::Tensor v = widened(call.in[1]) * b2 + gradient * gradient * like(call, 7);
    const at::Tensor m = widened(call.in[2]) * b1 + gradient * like(call, 5);
    const at::Tensor step = m / (1 - b1.pow(count)) / ((v / (1 - b2.pow(count))).sqrt() + like(call, 8));
    const at::Tensor update = step + widened(call.in[3]) * like(call, 11) * like(call, 10);
    call.in[1].copy_(v);
    call.in[2].copy_(m);
    put(call.out[0], update);
    put(call.out[1], v);
    put(call.out[2], m);
}

void check_lamb_weight(LegacyArguments &call) {
    allowed(call.in[3], {at::kHalf, at::kFloat}, "the update");
    for (const size_t i : {0, 1, 2}) holds(call.in[i], 1, "a number");
    alike(call.in[4], call.in[3], "the variable");
    holds(call.out[0], call.in[3].numel(), "the output");
}

// The norms of the variable and of the update, rate, update, var.
void lamb_weight(LegacyArguments &call) {
    const auto number = [&](size_t input) { return widened(call.in[input]).reshape({}); };
    const at::Tensor w = number(0), g = number(1);
    const at::Tensor ratio = at::where(w.gt(0).logical_and(g.gt(0)), w / g, at::ones_like(w));
    call.in[4].copy_(widened(call.in[4]) - ratio * number(2) * widened(call.in[3]));
    put(call.out[0], call.in[4]);
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(ApplyAdamWithAmsgradD, check_amsgrad_d(arguments), amsgrad_d(arguments))
LEGACY(ApplyAdamWithAmsgradV2, check_step(arguments, 10, {1, 2, 3}, {4, 5, 6, 7, 8, 9});
       allowed(in[0], at::kFloat, "the variable"),
       amsgrad(arguments, like(arguments, 7), like(arguments, 8), like(arguments, 9), like(arguments, 10)))
LEGACY(ApplyAddSignD, check_step(arguments, 6, {1}, {2, 3, 4, 5}), by_signs(arguments, false))
LEGACY(ApplyPowerSignD, check_step(arguments, 6, {1}, {2, 3, 4, 5}), by_signs(arguments, true))
LEGACY(ApplyGradientDescent, check_step(arguments, 2, {}, {1}), descent(arguments))
LEGACY(ApplyProximalGradientDescent, check_step(arguments, 4, {}, {1, 2, 3}), proximal_descent(arguments))
LEGACY(ApplyCenteredRMSProp, check_step(arguments, 8, {1, 2, 3}, {4, 5, 6, 7}), centered(arguments))
LEGACY(ApplyKerasMomentumD, check_step(arguments, 3, {1}, {2, 4}), keras_momentum(arguments))
LEGACY(ApplyAdagradDA, check_dual_averaging(arguments), dual_averaging(arguments))
LEGACY(ApplyAdagradV2D, check_step(arguments, 3, {1}, {2}); real(attributes, "epsilon"), adagrad_v2(arguments))
LEGACY(LambApplyOptimizerAssign, check_lamb(arguments), lamb(arguments))
LEGACY(LambApplyWeightAssign, check_lamb_weight(arguments), lamb_weight(arguments))
