// The numbers of random.cpp, for the old operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace vnpu::opapi {

// [from, to).
void draw_uniform(at::Tensor &out, double from, double to, uint64_t seed, uint64_t offset);
void draw_normal(at::Tensor &out, double mean, double deviation, uint64_t seed, uint64_t offset);
// 1 with probability prob, else 0.
void draw_bernoulli(at::Tensor &out, double prob, uint64_t seed, uint64_t offset);
// 0 to n - 1 in an order of its own.
void draw_permutation(at::Tensor &out, int64_t n, uint64_t seed, uint64_t offset);

}  // namespace vnpu::opapi
