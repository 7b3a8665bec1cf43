#include "device/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace vnpu {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

void Doorbell::ring() noexcept {
    // A read that takes its place among the waiters' additions: one that comes later sees what was stored before this.
    // (A fence and a plain load would do; ThreadSanitizer does not know fences.)
    if (waiters_.fetch_add(0, std::memory_order_acq_rel) == 0) return;
    rings_.fetch_add(1, std::memory_order_seq_cst);
    syscall(SYS_futex, &rings_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void Doorbell::sleep(uint32_t seen, Deadline deadline) noexcept {
    if (!deadline) {
        syscall(SYS_futex, &rings_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
        return;
    }
    // FUTEX_WAIT_BITSET takes an absolute CLOCK_MONOTONIC time, which is steady_clock's on Linux.
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline->time_since_epoch()).count();
    const timespec at{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    syscall(SYS_futex, &rings_, FUTEX_WAIT_BITSET_PRIVATE, seen, &at, nullptr, FUTEX_BITSET_MATCH_ANY);
}

}  // namespace vnpu
