// What the steps of optimizers of the old API share: the variable and its moments are inputs that are written in place,
// and the first outputs, the same memory or not. In fp32 and rounded once.
#pragma once

#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {

// The first `count` outputs are the first inputs after the step.
inline void give_back(LegacyArguments &call, size_t count) {
    for (size_t i = 0; i < count && i < call.out.size(); ++i) put(call.out[i], call.in[i]);
}

// An input as a number, or in the sizes of the variable.
inline at::Tensor like(LegacyArguments &call, size_t input) {
    const at::Tensor value = widened(call.in[input]);
    return value.numel() == 1 ? value.reshape({}) : value.reshape(call.in[0].sizes());
}

inline void check_step(LegacyArguments &call, size_t gradient, std::initializer_list<size_t> moments,
                       std::initializer_list<size_t> numbers) {
    allowed(call.in[0], kNative, "the variable");
    holds(call.in[gradient], call.in[0].numel(), "the gradient");
    for (const size_t i : moments) holds(call.in[i], call.in[0].numel(), "a moment");
    for (const size_t i : numbers) holds(call.in[i], 1, "a number");
    if (!call.out.empty()) holds(call.out[0], call.in[0].numel(), "the output");
}

// Towards zero by `by`, and zero where that would cross it.
inline at::Tensor shrunk(const at::Tensor &x, const at::Tensor &by) {
    return x.sign() * (x.abs() - by.clamp_min(0)).clamp_min(0);
}

}  // namespace vnpu::opapi
