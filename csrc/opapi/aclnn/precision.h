// Operators that compute in fp32 whatever their operands are, as the cube unit and CANN's reductions do: fp16 and bf16
// operands are widened, the result is rounded once. On a CPU without fp16 arithmetic this is also the fast way.
// Widening allocates: fp32 copies of the narrow operands, and of the output, live while the kernel runs.
#pragma once

#include <ATen/ATen.h>

#include "opapi/aclnn/check.h"

namespace vnpu::opapi {

inline bool narrow(const at::Tensor &tensor) {
    return tensor.defined() && (tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16);
}

// fp32 for fp16 and bf16, else the tensor itself; undefined stays undefined.
inline at::Tensor widened(const at::Tensor &tensor) { return narrow(tensor) ? tensor.to(at::kFloat) : tensor; }

// compute(target) writes its result into `target`: `out` itself, or an fp32 stand-in that is then rounded into it.
template <class Compute>
void rounded(at::Tensor &out, Compute compute) {
    if (!narrow(out)) return compute(out);
    at::Tensor wide = at::empty(out.sizes(), out.options().dtype(at::kFloat));
    compute(wide);
    out.copy_(wide);
}

// For ATen functions that have no out= form: their result into our output. Undefined outputs were not asked for.
inline void give(at::Tensor &out, const at::Tensor &result) {
    if (out.defined()) out.copy_(result);
}

// float16, bfloat16 or float32: what CANN's operators of neural networks take. Null ones are left out.
template <class... T>
void network(const T &...tensors) {
    ((tensors.defined() ? dtype(tensors, {at::kFloat, at::kHalf, at::kBFloat16}) : void()), ...);
}

}  // namespace vnpu::opapi
