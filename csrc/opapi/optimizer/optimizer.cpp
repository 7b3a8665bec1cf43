// Fused optimizer steps. ATen's fused CPU kernels make one pass over each parameter; they want dense tensors of one
// dtype, so a strided parameter or a gradient of another dtype goes through a copy of its size.
#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

// Dense tensors of one dtype for a kernel to update, written back to where they came from at the end.
class Dense {
  public:
    explicit Dense(at::ScalarType dtype) : dtype_(dtype) {}
    ~Dense() {
        for (auto &[tensor, copy] : copies_) tensor.copy_(copy);
    }
    Dense(const Dense &) = delete;
    Dense &operator=(const Dense &) = delete;

    at::Tensor read(const at::Tensor &tensor) const { return tensor.to(dtype_).contiguous(); }
    at::Tensor update(const at::Tensor &tensor) {
        if (tensor.is_contiguous() && tensor.scalar_type() == dtype_) return tensor;
        copies_.emplace_back(tensor, read(tensor));
        return copies_.back().second;
    }

  private:
    at::ScalarType dtype_;
    std::vector<std::pair<at::Tensor, at::Tensor>> copies_;
};

void check_state(const Operand &state, const Operand &parameter) {
    dtype(state, kNative);
    same_shape(state, parameter);
}

void check_needed_by_amsgrad(const Operand &maximum, bool amsgrad, const Operand &parameter) {
    if (maximum.defined()) return check_state(maximum, parameter);
    if (amsgrad)
        fail(FaultKind::NullArgument, "parameter {} is null, which amsgrad=true does not allow", maximum.parameter());
}

void check_adamw(const Operand &parameter, const Operand &mean, const Operand &square, const Operand &maximum,
                 const Operand &grad, const Operand &step, bool amsgrad) {
    for (const Operand *state : {&parameter, &mean, &square, &grad}) check_state(*state, parameter);
    check_needed_by_amsgrad(maximum, amsgrad, parameter);
    dtype(step, {at::kFloat, at::kLong});
    one_element(step);
}

void adamw(Operand &parameter, Operand &mean, Operand &square, Operand &maximum, const Operand &grad,
           double steps_before, double lr, double beta1, double beta2, double weight_decay, double eps, bool amsgrad,
           bool maximize) {
    Dense dense(parameter.scalar_type());
    std::vector<at::Tensor> maxima;
    if (amsgrad) maxima.push_back(dense.update(maximum));
    at::_fused_adamw_({dense.update(parameter)}, {dense.read(grad)}, {dense.update(mean)}, {dense.update(square)},
                      maxima, {at::scalar_tensor(steps_before + 1, at::kFloat)}, lr, beta1, beta2, weight_decay, eps,
                      amsgrad, maximize);
}

void check_states(const Operands &states, const Operands &parameters) {
    same_length(states, parameters);
    for (size_t i = 0; i < states.size(); ++i) check_state(states[i], parameters[i]);
}

void check_sgd(const Operands &params, const Operands &grads, const Operands &momenta, const Operand &scale) {
    check_states(params, params);
    check_states(grads, params);
    if (!momenta.empty()) check_states(momenta, params);
    if (scale.defined()) one_element(scale);
}

// The kernel writes the unscaled gradients back where there is a scale.
void sgd(Operands &params, Operands &grads, Operands &momenta, const Operand &scale, double weight_decay,
         double momentum, double lr, double dampening, bool nesterov, bool maximize, bool first) {
    const std::optional<at::Tensor> divisor = scale.defined() ? std::optional(scale.to(at::kFloat)) : std::nullopt;
    for (size_t i = 0; i < params.size(); ++i) {
        Dense dense(params[i].scalar_type());
        std::vector<at::Tensor> buffer;
        if (!momenta.empty()) buffer.push_back(dense.update(momenta[i]));
        at::_fused_sgd_({dense.update(params[i])}, {dense.update(grads[i])}, buffer, weight_decay, momentum, lr,
                        dampening, nesterov, maximize, first, divisor);
    }
}

// A hyperparameter in device memory.
void check_number(std::initializer_list<const Operand *> parameters) {
    for (const Operand *parameter : parameters) {
        network(*parameter);
        one_element(*parameter);
    }
}

double value(const at::Tensor &parameter) { return parameter.item().toDouble(); }

// The moments and the parameter in fp32; each is rounded once.
struct Moments {
    at::Tensor mean, square;
};
Moments advance(at::Tensor &m, at::Tensor &v, const at::Tensor &grad, double beta1, double beta2) {
    const at::Tensor g = widened(grad);
    Moments next{widened(m) * beta1 + g * (1 - beta1), widened(v) * beta2 + g.square() * (1 - beta2)};
    m.copy_(next.mean);
    v.copy_(next.square);
    return next;
}

}  // namespace
}  // namespace vnpu::opapi

// `step` counts the steps before this one: the kernel of ops-nn adds 1, and torch_npu subtracts 1 before the call.
OP(aclnnApplyAdamWV2, check_adamw(varRef, mRef, vRef, maxGradNormOptionalRef, grad, step, amsgrad),
   adamw(varRef, mRef, vRef, maxGradNormOptionalRef, grad, step.item().toDouble(), lr, beta1, beta2, weightDecay, eps,
         amsgrad, maximize))
OP(aclnnFusedSgd, check_sgd(paramsRef, gradsRef, momentumBufferListOptionalRef, gradScaleOptional),
   sgd(paramsRef, gradsRef, momentumBufferListOptionalRef, gradScaleOptional, weightDecay, momentum, lr, dampening,
       nesterov, maximize, isFirstStep))

// The powers are those of this step, the caller advances them.
OP(aclnnApplyAdam, check_number({&beta1Power, &beta2Power, &lr, &beta1, &beta2, &epsilon});
   for (const Operand *state : {&varRef, &m, &v, &grad}) check_state(*state, varRef), const double b1 = value(beta1);
   const double rate = value(lr) * std::sqrt(1 - value(beta2Power)) / (1 - value(beta1Power));
   const Moments next = advance(m, v, grad, b1, value(beta2));
   const at::Tensor step = useNesterov ? next.mean * b1 + widened(grad) * (1 - b1) : next.mean;
   varRef.copy_(widened(varRef) - rate * step / (next.square.sqrt() + value(epsilon))))
// The powers are those of the step before.
OP(
    aclnnApplyAdamW, check_number({&beta1Power, &beta2Power, &lr, &weightDecay, &beta1, &beta2, &eps});
    for (const Operand *state : {&varRef, &mRef, &vRef, &grad}) check_state(*state, varRef);
    check_needed_by_amsgrad(maxGradNormOptional, amsgrad, varRef),
    const at::Tensor g = maximize ? grad.neg() : at::Tensor(grad);
    const Moments next = advance(mRef, vRef, g, value(beta1), value(beta2)); at::Tensor square = next.square;
    if (amsgrad) {
        square = at::maximum(square, widened(maxGradNormOptional));
        maxGradNormOptional.copy_(square);
    } const at::Tensor before = widened(varRef);
    const at::Tensor step = next.mean / (1 - value(beta1Power) * value(beta1)) /
                            ((square / (1 - value(beta2Power) * value(beta2))).sqrt() + value(eps));
    varRef.copy_(before - value(lr) * (step + before * value(weightDecay))))
