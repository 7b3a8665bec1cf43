// Whether somebody watches what this process does, and what an operator has to note then. Small: every operator looks.
#pragma once

#include <atomic>
#include <cstdint>

namespace vnpu {

namespace detail {
extern std::atomic<bool> observing;
}

// Whether somebody wants to know: dry mode, virtual times, an event log or a profiler is on. Nothing that depends on it
// costs anything else.
inline bool observing() noexcept { return detail::observing.load(std::memory_order_relaxed); }

// The number that a framework has for the operation which the calling thread is in; 0: none. The first phase of an
// operator keeps it in its task, which another thread may launch.
uint32_t external_correlation() noexcept;
void set_external_correlation(uint32_t number) noexcept;

}  // namespace vnpu
