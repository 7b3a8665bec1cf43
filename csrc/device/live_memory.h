// The one gate to memory: copies, fills, kernels, collectives and waits for values ask here whether what they were
// given lies in one live allocation, in the caller's thread and again when they run. The Fault's sentence names the
// allocation, or the one that was there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vnpu {

inline constexpr int kAnyDevice = -1;

// The kernels' view of `size` bytes at a device address, all in one live allocation (mappings that touch count as one),
// and on `device` unless that is kAnyDevice. Faults, which call the address `name`: InvalidAddress, OutOfBounds.
std::byte *live_range(const void *address, uint64_t size, const char *name, int device = kAnyDevice);

// The same for the view itself, which live_range() has given before: the memory may have been freed since.
void still_live(const void *view, uint64_t size, const char *name, int device = kAnyDevice);

// The device whose stream runs the calling task; kAnyDevice outside of tasks.
int running_device() noexcept;

// Whether `size` bytes at a host address can be host memory: Fault OutOfBounds when they run around the end of all
// addresses or into the device's.
void host_range(const void *address, uint64_t size, const char *name);

}  // namespace vnpu
