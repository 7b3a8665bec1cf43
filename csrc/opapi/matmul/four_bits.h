// Rows of int8 times weights of 4 bits, as the matrix units do it: both halves of each int8 as an int4 of their own.
#pragma once

#include "opapi/quantization/quantization.h"

namespace vnpu::opapi {

// A scale as fp32; one of 64 bits holds it in its lower half.
inline at::Tensor real_scale(const at::Tensor &scale) {
    if (scale.scalar_type() != at::kLong && scale.scalar_type() != at::kUInt64) return widened(scale);
    return scale.contiguous().view(at::kLong).bitwise_and(0xFFFFFFFFLL).to(at::kInt).view(at::kFloat);
}

// The lower halves are unsigned, so the kernel takes 8 of each int8; `added`, which the caller makes of the weights (8
// * weight * scale, summed over the rows), brings that back. `scale` has a row for each group of rows of the weight.
inline at::Tensor split_product(const at::Tensor &x, const at::Tensor &weight, const at::Tensor &scale,
                                const at::Tensor &offset, const at::Tensor &added) {
    const int64_t count = scale.size(0), each = x.size(1) / count;
    at::Tensor value = at::zeros({x.size(0), weight.size(1)});
    for (int64_t j = 0; j < count; ++j) {
        const at::Tensor part = x.narrow(1, j * each, each).to(at::kDouble);
        value += at::matmul(part - 8, weight.narrow(0, j * each, each).to(at::kDouble)).to(at::kFloat) * scale[j];
        if (offset.defined()) value += part.sum(1, true).to(at::kFloat) * offset[j];
    }
    return added.defined() ? value + added : value;
}

}  // namespace vnpu::opapi
