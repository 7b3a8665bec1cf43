// How many operators the streams of this process have run, by device: the evidence that a program has used the NPU.
//
// Counted is a kernel that a stream's worker has run to its end, in a replayed graph too. Not counted is what only
// moves bytes (copies, private formats) and what computes nothing (allocations, events, collectives).
#pragma once

#include <cstdint>

namespace vnpu {

inline constexpr int kMostDevices = 64;  // that VNPU_DEVICES may ask for

// On the thread that runs the kernel, for the device of its stream.
void count_launch() noexcept;
// The process has opened the device: it holds a context's memory there.
void note_opened(int device) noexcept;

}  // namespace vnpu

// For programs that look up the names in libvnpu.so: the counts since the process, or the one it was forked from,
// began; of all devices, and of one. -1 for a device that was never opened, or that there is not.
extern "C" uint64_t vnpuLaunches() noexcept;
extern "C" int64_t vnpuDeviceLaunches(int device) noexcept;
