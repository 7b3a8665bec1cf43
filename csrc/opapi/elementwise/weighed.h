// self + value * (a * b), and with the quotient. Kernels that keep float16 round it at each step, the value too: those
// of Addcmul and Addcdiv (canndev: tbe/impl/dynamic), which op-plugin's tests of foreach expect, and that of
// ForeachAddcdivScalarList. Everything else is computed wide and rounded once, as ATen does.
#pragma once

#include <ATen/ATen.h>

namespace vnpu::opapi {

inline void product_added(at::Tensor &out, const at::Tensor &self, const at::Tensor &a, const at::Tensor &b,
                          const at::Scalar &value) {
    if (out.scalar_type() != at::kHalf) {
        at::addcmul_out(out, self, a, b, value);
        return;
    }
    at::add_out(out, self, at::mul(a.to(at::kHalf), b.to(at::kHalf)).mul_(at::scalar_tensor(value, at::kHalf)));
}

inline void quotient_added(at::Tensor &out, const at::Tensor &self, const at::Tensor &a, const at::Tensor &b,
                           const at::Scalar &value) {
    if (out.scalar_type() != at::kHalf) {
        at::addcdiv_out(out, self, a, b, value);
        return;
    }
    at::add_out(out, self, at::div(a.to(at::kHalf), b.to(at::kHalf)).mul_(at::scalar_tensor(value, at::kHalf)));
}

}  // namespace vnpu::opapi
