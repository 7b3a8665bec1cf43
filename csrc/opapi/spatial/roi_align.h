// Region of interest pooling of roi_align.cpp, for the old operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace vnpu::opapi {

struct RoiPooling {
    double scale;
    int64_t height, width, samples, end_mode;
};

// Regions are [K, 5]: the picture, x0, y0, x1, y1.
void roi_align(const at::Tensor &features, const at::Tensor &regions, const RoiPooling &pooling, at::Tensor &out);
void roi_align_backward(const at::Tensor &grad, const at::Tensor &regions, const RoiPooling &pooling, at::Tensor &out);

}  // namespace vnpu::opapi
