// What the pooling kernels of the chips that we have do not do.
#pragma once

#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/tensor.h"

namespace vnpu::opapi {

// The kernels of the chips that we have know none (ops-nn: aclnn_max_pool2d_with_indices.cpp and its backward,
// aclnn_max_pool3d_with_argmax.cpp). Of the gradient in three dimensions CANN checks nothing, but there is no forward
// pass either that it could belong to.
inline void check_undilated(const Ints &dilation) {
    for (const int64_t value : dilation)
        on_chip(value == 1, "dilation only support 1: parameter dilation has the value {}, allowed is 1", value);
}

// An adaptive pooling gives something in each dimension (ops-nn: aclnn_adaptive_avg_pool2d.cpp, ..._pool3d.cpp,
// aclnn_adaptive_max_pool2d.cpp).
inline void check_gives_something(const Ints &output_size) {
    for (const int64_t value : output_size)
        on_chip(value > 0, "parameter outputSize has the value {}, allowed is > 0", value);
}

}  // namespace vnpu::opapi
