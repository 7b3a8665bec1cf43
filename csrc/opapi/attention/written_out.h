// Attention and its gradient as they are written, a few operators of ATen one after another, for operators that need
// the weights themselves or choose keys for each query. attention.h is for the others.
#pragma once

#include <ATen/ATen.h>

#include <limits>

#include "opapi/aclnn/precision.h"

namespace vnpu::opapi::attention {

// In fp32. Rows whose keys are all left out weigh them alike, as the hardware does, and have the lowest float as
// maximum.
struct WrittenOut {
    at::Tensor out, weights;  // [..., rows, width of a value], [..., rows, keys]
    at::Tensor maximum, sum;  // [..., rows, 1]
};

// scale * q k^T, left-out ones the lowest float.
inline at::Tensor scores_of(const at::Tensor &query, const at::Tensor &key, double scale, const at::Tensor &left_out) {
    const at::Tensor scores = at::matmul(widened(query), widened(key).transpose(-2, -1)) * scale;
    return left_out.defined() ? scores.masked_fill(left_out, std::numeric_limits<float>::lowest()) : scores;
}

// Of queries [..., rows, width] and keys [..., keys, width]. `product`: the dtype in which the weights are given to the
// cube unit, where an operator's kernel is known to round them.
inline WrittenOut written_out(const at::Tensor &query, const at::Tensor &key, const at::Tensor &value, double scale,
                              const at::Tensor &left_out = {}, at::ScalarType product = at::kFloat) {
    const at::Tensor scores = scores_of(query, key, scale, left_out);
    const at::Tensor maximum = scores.amax(-1, true);
    const at::Tensor exponentials = (scores - maximum).exp_();
    const at::Tensor sum = exponentials.sum(-1, true);
    const at::Tensor weights = exponentials / sum;
    return {at::matmul(weights.to(product).to(at::kFloat), widened(value)), weights, maximum, sum};
}

struct WrittenOutGradients {
    at::Tensor query, key, value;
};

// Of the same; maximum and sum as the forward operator has kept them, `mean` what each row's gradients of the weights
// average to: the product of the result and its gradient.
inline WrittenOutGradients gradients_written_out(const at::Tensor &query, const at::Tensor &key,
                                                 const at::Tensor &value, double scale, const at::Tensor &left_out,
                                                 const at::Tensor &maximum, const at::Tensor &sum,
                                                 const at::Tensor &grad, const at::Tensor &mean) {
    const at::Tensor weights = (scores_of(query, key, scale, left_out) - maximum).exp_() / sum;
    const at::Tensor of_scores = (at::matmul(grad, widened(value).transpose(-2, -1)) - mean) * weights * scale;
    return {at::matmul(of_scores, widened(key)), at::matmul(of_scores.transpose(-2, -1), widened(query)),
            at::matmul(weights.transpose(-2, -1), grad)};
}

}  // namespace vnpu::opapi::attention
