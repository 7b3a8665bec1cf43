// The turn of a rotary position embedding whose pairs lie half a row apart.
#pragma once

#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {

inline at::Tensor half_turned(const at::Tensor &x) {
    const std::vector<at::Tensor> half = x.chunk(2, -1);
    return at::cat({-half[1], half[0]}, -1);
}

inline at::Tensor turned(const at::Tensor &x, const at::Tensor &cos, const at::Tensor &sin) {
    return x * widened(cos) + half_turned(x) * widened(sin);
}

}  // namespace vnpu::opapi
