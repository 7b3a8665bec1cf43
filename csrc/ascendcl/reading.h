// Device memory for recorders of our own; see reading.cpp. csrc/record/npu finds the functions by their names.
#pragma once

#include <acl/acl_rt.h>

#include <cstddef>

struct VnpuPiece {
    const void *address;
    size_t size;
};
using VnpuSeen = void (*)(void *data, const void *const *views) noexcept;

extern "C" [[gnu::visibility("default")]] aclError vnpuReadInStream(aclrtStream stream, const VnpuPiece *pieces,
                                                                    size_t count, VnpuSeen seen, void *data);
extern "C" [[gnu::visibility("default")]] bool vnpuOnWorkerThread() noexcept;
