// Operators of the old API that write a variable: assignments and steps of optimizers, which MindSpore calls by their
// type. The variable is the first input and the first output, the same memory or not.
#include <ATen/ExpandUtils.h>

#include "opapi/optimizer/aclop_steps.h"

namespace vnpu::opapi {
namespace {

void check_assign(LegacyArguments &call) {
    const at::Tensor &value = call.in[1];
    if (!call.in[0].defined() || !value.defined())
        fail(FaultKind::NullArgument, "the variable or the value is missing");
    if (!call.out.empty()) holds(call.out[0], call.in[0].numel(), "the output");
    if (call.in[0].numel() != value.numel() && value.numel() != 1)
        fail(FaultKind::InvalidArgument, "the variable is {}, the value {}", describe(call.in[0]), describe(value));
}

void assign(LegacyArguments &call, const at::Tensor &value) {
    at::Tensor variable = call.in[0];
    variable.copy_(value.numel() == variable.numel() ? value.reshape(variable.sizes()) : value.reshape({}));
    give_back(call, 1);
}

// Of all inputs, in their order.
void sum(LegacyArguments &call) {
    at::Tensor total = widened(call.in[0]).clone();
    for (size_t i = 1; i < call.in.size(); ++i) total.add_(widened(call.in[i]).reshape(total.sizes()));
    put(call.out[0], total);
}

// var, accum, rate, gradient, momentum.
void momentum(LegacyArguments &call) {
    const at::Tensor rate = like(call, 2), gradient = like(call, 3), share = like(call, 4);
    const at::Tensor accumulated = widened(call.in[1]) * share + gradient;
    call.in[1].copy_(accumulated);
    const bool nesterov = attribute<bool>(call.attributes, "use_nesterov", false);
    const at::Tensor step = nesterov ? gradient + accumulated * share : accumulated;
    call.in[0].copy_(widened(call.in[0]) - rate * step);
    give_back(call, 1);
}

// var, gradient, rate, accum, momentum, stat: 1 before the first step, in which the gradient is the momentum.
void sgd(LegacyArguments &call) {
    const at::Tensor rate = like(call, 2), share = like(call, 4);
    at::Tensor gradient = like(call, 1);
    const auto decay = attribute<float>(call.attributes, "weight_decay", 0),
               dampening = attribute<float>(call.attributes, "dampening", 0);
    if (decay != 0) gradient = gradient + decay * widened(call.in[0]);
    const at::Tensor first =
        widened(call.in[5]).reshape(call.in[5].numel() == 1 ? at::IntArrayRef() : call.in[0].sizes());
    const at::Tensor accumulated =
        at::where(first > 0, gradient, widened(call.in[3]) * share + (1 - dampening) * gradient);
    call.in[3].copy_(accumulated);
    call.in[5].zero_();
    const at::Tensor step =
        attribute<bool>(call.attributes, "nesterov", false) ? gradient + share * accumulated : accumulated;
    call.in[0].copy_(widened(call.in[0]) - rate * step);
    give_back(call, 1);
}

// var, m, v, the powers of both betas, rate, beta1, beta2, epsilon, gradient (TensorFlow's Adam).
void adam(LegacyArguments &call) {
    const at::Tensor b1 = like(call, 6), b2 = like(call, 7), gradient = like(call, 9);
    const at::Tensor rate = like(call, 5) * (1 - like(call, 4)).sqrt() / (1 - like(call, 3));
    const at::Tensor m = widened(call.in[1]) * b1 + (1 - b1) * gradient;
    const at::Tensor v = widened(call.in[2]) * b2 + (1 - b2) * gradient * gradient;
    const bool nesterov = attribute<bool>(call.attributes, "use_nesterov", false);
    call.in[1].copy_(m);
    call.in[2].copy_(v);
    call.in[0].copy_(widened(call.in[0]) -
                     rate * (nesterov ? m * b1 + (1 - b1) * gradient : m) / (like(call, 8) + v.sqrt()));
    give_back(call, 3);
}

// gradient, v, m, var, rate, beta1 and what is left of 1, beta2 likewise, decay, epsilon: one step without correction.
void adam_with_decay(LegacyArguments &call) {
    const auto number = [&](size_t input) { return widened(call.in[input]).reshape({}); };
    const at::Tensor gradient = widened(call.in[0]);
    const at::Tensor m = widened(call.in[2]) * number(5) + number(6) * gradient;
    const at::Tensor v = widened(call.in[1]) * number(7) + number(8) * gradient * gradient;
    const at::Tensor step = m / (v.sqrt() + number(10)) + number(9) * widened(call.in[3]);
    call.in[1].copy_(v);
    call.in[2].copy_(m);
    call.in[3].copy_(widened(call.in[3]) - number(4) * step);
    for (size_t i = 0; i < call.out.size() && i < 3; ++i) put(call.out[i], call.in[i + 1]);
}

void check_adam_with_decay(LegacyArguments &call) {
    allowed(call.in[0], {at::kHalf, at::kFloat, at::kBFloat16}, "the gradient");
    for (size_t i = 1; i < 4; ++i) holds(call.in[i], call.in[0].numel(), "a moment or the variable");
    for (size_t i = 4; i < 11; ++i) holds(call.in[i], 1, "a number");
    for (const at::Tensor &out : call.out) holds(out, call.in[0].numel(), "an output");
}

// The same into outputs, v, m and var; what is a number there may be a tensor of the variable's sizes here. Without
// decay there is one operand less.
void adam_apart(LegacyArguments &call, bool decay) {
    const auto at = [&](size_t input) { return widened(call.in[input]); };
    const at::Tensor m = at(5) * at(2) + at(6) * at(0), v = at(7) * at(1) + at(8) * at(0) * at(0);
    const at::Tensor step = m / (at(decay ? 10 : 9) + v.sqrt());
    put(call.out[0], v);
    put(call.out[1], m);
    put(call.out[2], at(3) - at(4) * (decay ? step + at(9) * at(3) : step));
}

void check_adam_apart(LegacyArguments &call, bool decay) {
    allowed(call.in[0], {at::kHalf, at::kFloat, at::kBFloat16}, "the gradient");
    for (size_t i = 1; i < (decay ? 11 : 10); ++i) {
        allowed(call.in[i], call.in[0].scalar_type(), "an input");
        if (i < 4) sizes(call.in[i], call.in[0].sizes(), "a moment or the variable");
        if (i >= 4 && !at::is_expandable_to(call.in[i].sizes(), call.in[0].sizes()))
            fail(FaultKind::InvalidArgument, "a number is {}, which does not become {}", describe(call.in[i]),
                 describe(call.in[0]));
    }
    for (size_t i = 0; i < 3; ++i) alike(call.out[i], call.in[0], "an output");
}

// var, mean of squares, momentum, rate, rho, share, epsilon, gradient.
void rms_prop(LegacyArguments &call) {
    const at::Tensor gradient = like(call, 7);
    const at::Tensor squares = widened(call.in[1]) + (gradient * gradient - widened(call.in[1])) * (1 - like(call, 4));
    const at::Tensor moved =
        widened(call.in[2]) * like(call, 5) + like(call, 3) * gradient / (squares + like(call, 6)).sqrt();
    call.in[1].copy_(squares);
    call.in[2].copy_(moved);
    call.in[0].copy_(widened(call.in[0]) - moved);
    give_back(call, 3);
}

// var, accum, rate, gradient.
void adagrad(LegacyArguments &call) {
    const at::Tensor gradient = like(call, 3);
    if (attribute<bool>(call.attributes, "update_slots", true))
        call.in[1].copy_(widened(call.in[1]) + gradient * gradient);
    call.in[0].copy_(widened(call.in[0]) - like(call, 2) * gradient / widened(call.in[1]).sqrt());
    give_back(call, 2);
}

// var, accum, linear, gradient, rate, l1, l2, power (TensorFlow's Ftrl).
void ftrl(LegacyArguments &call) {
    const at::Tensor gradient = like(call, 3), rate = like(call, 4), power = -like(call, 7);
    const at::Tensor before = widened(call.in[1]), after = before + gradient * gradient;
    const at::Tensor linear =
        widened(call.in[2]) + gradient - (after.pow(power) - before.pow(power)) / rate * widened(call.in[0]);
    const at::Tensor curve = after.pow(power) / rate + 2 * like(call, 6);
    call.in[0].copy_(at::where(linear.abs() > like(call, 5), (linear.sign() * like(call, 5) - linear) / curve,
                               at::zeros_like(linear)));
    call.in[1].copy_(after);
    call.in[2].copy_(linear);
    give_back(call, 3);
}

// var, accum, mean of the updates' squares, rate, rho, epsilon, gradient.
void adadelta(LegacyArguments &call) {
    const at::Tensor rho = like(call, 4), epsilon = like(call, 5), gradient = like(call, 6);
    const at::Tensor squares = widened(call.in[1]) * rho + (1 - rho) * gradient * gradient;
    const at::Tensor step = (widened(call.in[2]) + epsilon).sqrt() / (squares + epsilon).sqrt() * gradient;
    call.in[0].copy_(widened(call.in[0]) - like(call, 3) * step);
    call.in[1].copy_(squares);
    call.in[2].copy_(widened(call.in[2]) * rho + (1 - rho) * step * step);
    give_back(call, 3);
}

// var, accum, rate, l1, l2, gradient.
void proximal_adagrad(LegacyArguments &call) {
    const at::Tensor gradient = like(call, 5);
    const at::Tensor squares = widened(call.in[1]) + gradient * gradient, rate = like(call, 2) / squares.sqrt();
    const at::Tensor there = widened(call.in[0]) - rate * gradient;
    call.in[0].copy_(there.sign() * (there.abs() - rate * like(call, 3)).clamp_min(0) / (1 + rate * like(call, 4)));
    call.in[1].copy_(squares);
    give_back(call, 2);
}

// var, m, v, the power of beta1, rate, beta1, beta2, epsilon, gradient.
void adamax(LegacyArguments &call) {
    const at::Tensor b1 = like(call, 5), gradient = like(call, 8);
    const at::Tensor m = widened(call.in[1]) * b1 + (1 - b1) * gradient;
    const at::Tensor v = at::maximum(widened(call.in[2]) * like(call, 6), gradient.abs());
    call.in[0].copy_(widened(call.in[0]) - like(call, 4) / (1 - like(call, 3)) * m / (v + like(call, 7)));
    call.in[1].copy_(m);
    call.in[2].copy_(v);
    give_back(call, 3);
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(Assign, check_assign(arguments), assign(arguments, in[1]))
LEGACY(AssignAdd, check_assign(arguments),
       assign(arguments, in[0] + (in[1].numel() == 1 ? in[1].reshape({}) : in[1].reshape(in[0].sizes()))))
LEGACY(AssignSub, check_assign(arguments),
       assign(arguments, in[0] - (in[1].numel() == 1 ? in[1].reshape({}) : in[1].reshape(in[0].sizes()))))
LEGACY(AddN, for (const at::Tensor &x : in) holds(x, out[0].numel(), "an input"), sum(arguments))
LEGACY(TensorMove, holds(out[0], in[0].numel(), "the output"), put(out[0], in[0]))
LEGACY(ApplyMomentum, check_step(arguments, 3, {1}, {2, 4}), momentum(arguments))
LEGACY(SGD, check_step(arguments, 1, {3}, {2, 4}), sgd(arguments))
LEGACY(ApplyAdam, check_step(arguments, 9, {1, 2}, {3, 4, 5, 6, 7, 8}), adam(arguments))
LEGACY(ApplyAdagrad, check_step(arguments, 3, {1}, {2}), adagrad(arguments))
LEGACY(ApplyRMSProp, check_step(arguments, 7, {1, 2}, {3, 4, 5, 6}), rms_prop(arguments))
LEGACY(ApplyAdagradD, check_step(arguments, 3, {1}, {2}), adagrad(arguments))
LEGACY(AdamApplyOneWithDecayAssign, check_adam_with_decay(arguments), adam_with_decay(arguments))
LEGACY(AdamApplyOneWithDecay, check_adam_apart(arguments, true), adam_apart(arguments, true))
LEGACY(AdamApplyOne, check_adam_apart(arguments, false), adam_apart(arguments, false))
LEGACY(ApplyFtrl, check_step(arguments, 3, {1, 2}, {4, 5, 6, 7}), ftrl(arguments))
LEGACY(ApplyAdadeltaD, check_step(arguments, 6, {1, 2}, {3, 4, 5}), adadelta(arguments))
LEGACY(ApplyProximalAdagradD, check_step(arguments, 5, {1}, {2, 3, 4}), proximal_adagrad(arguments))
LEGACY(ApplyAdaMaxD, check_step(arguments, 8, {1, 2}, {3, 4, 5, 6, 7}), adamax(arguments))
