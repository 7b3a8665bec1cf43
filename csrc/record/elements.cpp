#include "record/elements.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace torchport::record {

Elements::Elements(const at::Tensor &tensor) : dtype(tensor.scalar_type()) {
    span = tensor.numel() == 0 ? 0 : 1;
    for (int64_t i = 0; i < tensor.dim(); ++i) {
        const int64_t size = tensor.size(i), stride = tensor.stride(i);
        if (stride == 0 && size > 1) {
            times *= size;
            continue;
        }
        if (size > 1 || size == 0) {
            sizes.push_back(size);
            strides.push_back(stride);
        }
        count *= size;
        if (size > 1) span += (size - 1) * stride;
    }
    if (count == 0) {
        span = 0;
        return;
    }
    int64_t expected = 1;
    for (size_t i = sizes.size(); i-- > 0; expected *= sizes[i]) row_major = row_major && strides[i] == expected;
    if (row_major) return;
    std::vector<size_t> order(sizes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides[a] < strides[b]; });
    expected = 1;
    for (const size_t i : order) {
        dense = dense && strides[i] == expected;
        expected *= sizes[i];
    }
    row_major = !dense;  // it will be gathered
}

const void *Elements::gathered(const void *data, std::vector<std::byte> &room) const {
    if (dense || count == 0) return data;
    const size_t size = c10::elementSize(dtype);
    room.resize(static_cast<size_t>(count) * size);
    std::vector<int64_t> index(sizes.size(), 0);
    const size_t last = sizes.size() - 1;
    const std::byte *from = static_cast<const std::byte *>(data);
    std::byte *to = room.data();
    while (true) {
        const std::byte *row = from;
        for (size_t i = 0; i < last; ++i) row += static_cast<size_t>(index[i] * strides[i]) * size;
        const size_t step = static_cast<size_t>(strides[last]) * size;
        if (strides[last] == 1) {
            std::memcpy(to, row, static_cast<size_t>(sizes[last]) * size);
            to += static_cast<size_t>(sizes[last]) * size;
        } else {
            for (int64_t i = 0; i < sizes[last]; ++i, to += size)
                std::memcpy(to, row + static_cast<size_t>(i) * step, size);
        }
        size_t place = last;
        while (place > 0 && ++index[place - 1] == sizes[place - 1]) index[--place] = 0;
        if (place == 0) return room.data();
    }
}

}  // namespace torchport::record
