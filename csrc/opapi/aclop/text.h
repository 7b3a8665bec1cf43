// Strings among the operands of the old API: the memory of one begins with where its characters are, counted from
// there, and how many (GE's StringHead). Operators get that memory as a tensor of a dtype that nothing else has.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "device/fault.h"

namespace vnpu::opapi {

inline constexpr at::ScalarType kText = at::kBits8;

inline bool is_text(const at::Tensor &tensor) { return tensor.scalar_type() == kText; }

inline std::string text_of(const at::Tensor &tensor) {
    struct Head {
        int64_t offset, length;
    } head{};
    const auto size = static_cast<int64_t>(tensor.nbytes());
    const auto *memory = static_cast<const char *>(tensor.const_data_ptr());
    if (size >= static_cast<int64_t>(sizeof head)) std::memcpy(&head, memory, sizeof head);
    if (head.offset < static_cast<int64_t>(sizeof head) || head.length < 0 || head.offset > size ||
        head.length > size - head.offset)
        fail(FaultKind::DeviceCpuFailure, "a string of {} bytes says that it has {} characters from byte {} on", size,
             head.length, head.offset);
    return {memory + head.offset, static_cast<size_t>(head.length)};
}

}  // namespace vnpu::opapi
