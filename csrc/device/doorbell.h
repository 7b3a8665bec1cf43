// A futex with a deadline: std::atomic::wait has none, and a condition variable costs a mutex on
// the path where nobody sleeps. Ringing is one atomic read unless somebody waits.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace vnpu {

using Clock = std::chrono::steady_clock;
using Deadline = std::optional<Clock::time_point>;  // none: wait for ever

class Doorbell {
  public:
    // Wakes every waiter whose condition may have become true.
    void ring() noexcept;

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
                pause();
            }
        } while (Clock::now() < spin_until);
        for (;;) {
            waiters_.fetch_add(1, std::memory_order_seq_cst);
            const uint32_t seen = rings_.load(std::memory_order_seq_cst);
            const bool now = ready();
            if (!now) sleep(seen, deadline);
            waiters_.fetch_sub(1, std::memory_order_relaxed);
            if (now || ready()) return true;
            if (deadline && Clock::now() >= *deadline) return false;
        }
    }

  private:
    static void pause() noexcept { __builtin_ia32_pause(); }
    void sleep(uint32_t seen, Deadline deadline) noexcept;

    std::atomic<uint32_t> rings_{0};
    std::atomic<uint32_t> waiters_{0};
};

}  // namespace vnpu
