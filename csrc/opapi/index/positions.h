// Where values stand: what sorting, running extremes and reductions answer beside the values.
#pragma once

#include <ATen/ATen.h>

#include "opapi/aclnn/limits.h"

namespace vnpu::opapi {

// ATen writes positions as int64; where CANN is asked for int32 they pass through a temporary.
template <class Find>
void positions(at::Tensor &indices, Find find) {
    if (indices.scalar_type() == at::kLong) {
        find(indices);
        return;
    }
    at::Tensor wide = at::empty(indices.sizes(), at::kLong);
    find(wide);
    indices.copy_(wide);
}

inline constexpr const char *kAnyMemory = "an index past the end reads any memory, here the nearest place";

// Reading past the end: hardware reads what lies there (ops-nn: aclnnEmbedding.md, aclnnIndex.md). Where its mistakes
// are hidden, read(index) gets the nearest places that there are, else its error says so. Writing past the end destroys
// other tensors there, and stays an error.
template <class Read>
void reading(const at::Tensor &index, int64_t least, int64_t size, Read read) {
    if (bugs_hidden() && size > 0) return read(index.clamp(least, size - 1));
    noticing("out of", kAnyMemory, [&] { read(index); });
}

}  // namespace vnpu::opapi
