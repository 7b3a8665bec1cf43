// Masks of dropout in bits (dropout.cpp), for the current and for the old operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace vnpu::opapi {

// Bytes of a mask for so many elements: a bit each, in multiples of 128 bits.
int64_t mask_bytes(int64_t elements);

// Fills `mask` with the bits of the elements that stay, each with probability 1 - drop.
void generate_mask(at::Tensor &mask, double drop, uint64_t seed, uint64_t offset);

// self / (1 - drop) where the mask has a 1, else 0.
void apply_mask(at::Tensor &out, const at::Tensor &self, const at::Tensor &mask, double drop);

}  // namespace vnpu::opapi
