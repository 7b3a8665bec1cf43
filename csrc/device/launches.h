// How many operators the streams of this process have run: the evidence that a program has used the NPU.
//
// Counted is a kernel that a stream's worker has run to its end, in a replayed graph too. Not counted is what only
// moves bytes (copies, private formats) and what computes nothing (allocations, events, collectives).
#pragma once

#include <cstdint>

namespace vnpu {

void count_launch() noexcept;

}  // namespace vnpu

// For programs that look up the name in libvnpu.so: the count since the process, or the one it was forked from, began.
extern "C" uint64_t vnpuLaunches() noexcept;
