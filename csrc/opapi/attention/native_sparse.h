// What the training and the inference of native sparse attention share.
#pragma once

#include "opapi/attention/written_out.h"

namespace vnpu::opapi::attention {

struct Sizes {
    int64_t block, stride;          // of what is compressed
    int64_t chosen = 0, count = 0;  // the size and number of the blocks that are chosen
};

// How much each block of tokens matters, [groups, queries, blocks], by the weights [groups, heads, queries, keys] of
// the compressed ones: a window counts as often as it begins and ends in or before the block.
at::Tensor importance(const at::Tensor &weights, int64_t blocks, const Sizes &sizes);
// The most important ones, of equal ones those that come first.
at::Tensor most_important(const at::Tensor &importance, int64_t count);
// The tokens of the blocks that a row of indices names, below `length`; a negative index names none.
at::Tensor tokens_of(const at::Tensor &indices, int64_t block, int64_t length);
void check_choice(const Sizes &sizes);

}  // namespace vnpu::opapi::attention
