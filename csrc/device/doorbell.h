// The one way to wait: a futex with a deadline, between threads or between processes. std::atomic::wait has no
// deadline, and a condition variable costs a mutex on the path where nobody sleeps. Ringing is one atomic read unless
// somebody waits. A wait of a thread of the program, once it has become long, can be ended by Ctrl-C
// (device/interrupt.h).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "device/interrupt.h"

namespace vnpu {

using Clock = std::chrono::steady_clock;
using Deadline = std::optional<Clock::time_point>;  // none: wait for ever

enum class Among { Threads, Processes };

// One wait, from its first sleep on.
class Sleeper {
  public:
    explicit Sleeper(Deadline deadline) noexcept;
    // Sleeps until the word is rung or is not `seen`, until the deadline, or shorter.
    void sleep(std::atomic<uint32_t> &word, uint32_t seen, Among among) noexcept;
    bool late() const noexcept { return deadline_ && Clock::now() >= *deadline_; }

  private:
    const Deadline deadline_;
    Deadline short_until_;  // of a wait that has not become long yet
    std::optional<Interruptible> interruptible_;
};

void wake(std::atomic<uint32_t> &word, Among among) noexcept;

// All zero when it begins, so that it can lie in memory that processes share.
template <Among among>
class BasicDoorbell {
  public:
    // Wakes every waiter whose condition may have become true.
    void ring() noexcept {
        // A read that takes its place among the waiters' additions: one that comes later sees what was stored before
        // this. (A fence and a plain load would do; ThreadSanitizer does not know fences.)
        if (waiters_.fetch_add(0, std::memory_order_acq_rel) == 0) return;
        rings_.fetch_add(1, std::memory_order_seq_cst);
        wake(rings_, among);
    }

    // Returns true once `ready()` holds, false when the deadline passes first. `ready` must become
    // true only by stores that are followed by ring(). Spins for `spin` before it sleeps.
    template <class Ready>
    bool wait(Ready ready, Deadline deadline = std::nullopt,
              std::chrono::nanoseconds spin = std::chrono::microseconds(20)) {
        if (ready()) return true;
        const auto spin_until = Clock::now() + spin;
        do {
            for (int i = 0; i < 32; ++i) {
                if (ready()) return true;
                __builtin_ia32_pause();
            }
        } while (Clock::now() < spin_until);
        for (Sleeper sleeper(deadline);;) {
            waiters_.fetch_add(1, std::memory_order_seq_cst);
            const uint32_t seen = rings_.load(std::memory_order_seq_cst);
            const bool now = ready();
            if (!now) sleeper.sleep(rings_, seen, among);
            waiters_.fetch_sub(1, std::memory_order_relaxed);
            if (now || ready()) return true;
            if (sleeper.late()) return false;
        }
    }

  private:
    std::atomic<uint32_t> rings_{0};
    std::atomic<uint32_t> waiters_{0};
};

using Doorbell = BasicDoorbell<Among::Threads>;
using SharedDoorbell = BasicDoorbell<Among::Processes>;

}  // namespace vnpu
