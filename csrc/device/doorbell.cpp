#include "device/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "device/stream.h"

namespace vnpu {
namespace {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

// Whoever presses Ctrl-C twice has seen the program stand still for longer than this.
constexpr auto kShort = std::chrono::milliseconds(100);

int among_whom(int operation, Among among) {
    return among == Among::Threads ? operation | FUTEX_PRIVATE_FLAG : operation;
}

}  // namespace

Sleeper::Sleeper(Deadline deadline) noexcept : deadline_(deadline) {
    // Workers leave signals to the program's threads, one of which waits for them.
    if (current_worker() == nullptr) short_until_ = Clock::now() + kShort;
}

void Sleeper::sleep(std::atomic<uint32_t> &word, uint32_t seen, Among among) noexcept {
    if (short_until_ && Clock::now() >= *short_until_) {
        interruptible_.emplace();
        short_until_.reset();
    }
    const Deadline until = short_until_ && deadline_ ? std::min(*short_until_, *deadline_)
                           : short_until_            ? short_until_
                                                     : deadline_;
    if (!until) {
        syscall(SYS_futex, &word, among_whom(FUTEX_WAIT, among), seen, nullptr, nullptr, 0);
        return;
    }
    // FUTEX_WAIT_BITSET takes an absolute CLOCK_MONOTONIC time, which is steady_clock's on Linux.
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(until->time_since_epoch()).count();
    const timespec at{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    syscall(SYS_futex, &word, among_whom(FUTEX_WAIT_BITSET, among), seen, &at, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void wake(std::atomic<uint32_t> &word, Among among) noexcept {
    syscall(SYS_futex, &word, among_whom(FUTEX_WAKE, among), INT_MAX, nullptr, nullptr, 0);
}

}  // namespace vnpu
