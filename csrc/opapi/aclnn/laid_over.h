// Tensors over memory that a caller names by its address.
#pragma once

#include <ATen/ATen.h>

namespace vnpu::opapi {

// Where the kernels find what lies at an address of the device. Fault InvalidAddress where nothing of it is there.
void *alias_of(void *address);

// A tensor over `bytes` bytes at `data` (null where it has none), which it does not own.
at::Tensor laid_over(void *data, uint64_t bytes, caffe2::TypeMeta dtype, at::IntArrayRef sizes, at::IntArrayRef strides,
                     int64_t offset);

}  // namespace vnpu::opapi
