// Where values stand: what sorting, running extremes and reductions answer beside the values.
#pragma once

#include <ATen/ATen.h>

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

}  // namespace vnpu::opapi
