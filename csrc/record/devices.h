// How tensors are read that the host cannot read: told by the library that knows a device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>

namespace torchport::record {

// Bytes of a tensor that somebody wants to see in the stream, behind the kernels that were launched before.
struct Piece {
    const void *address;
    size_t size;
};

// Called with the host's view of each piece, in the stream's own thread; `views` is null where the task was dropped.
using Seen = void (*)(void *data, const void *const *views) noexcept;

struct DeviceReader {
    // Puts a task into the current stream. False where that cannot be done, with nothing called.
    bool (*read)(const Piece *pieces, size_t count, Seen seen, void *data) noexcept;
    // The device's own layout of a tensor, as text; "" for a plain one.
    const char *(*format)(const at::Tensor &tensor) noexcept;
    // Whether this thread computes for the device: what it calls is a kernel's.
    bool (*computes)() noexcept;
};

}  // namespace torchport::record
