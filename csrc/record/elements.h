// Where the elements of a tensor lie, and how they are read without dimensions that repeat.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace torchport::record {

struct Elements {
    c10::ScalarType dtype{};
    std::vector<int64_t> sizes, strides;  // without the dimensions of stride 0
    int64_t count = 1;                    // of those
    int64_t times = 1;                    // how often each of them is in the tensor
    int64_t span = 0;                     // elements from the first to behind the last
    bool row_major = true, dense = true;  // dense: without gaps, in whatever order

    explicit Elements(const at::Tensor &tensor);
    // `count` elements side by side: `data` itself where they are dense, else copied into `room`, row-major.
    const void *gathered(const void *data, std::vector<std::byte> &room) const;
};

}  // namespace torchport::record
