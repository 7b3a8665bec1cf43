#include "device/timeline.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <shared_mutex>
#include <utility>

#include "device/clock.h"
#include "device/fault.h"
#include "device/observed.h"
#include "device/perform.h"

namespace vnpu {
namespace {

struct Observers {
    std::shared_mutex mutex;
    std::array<Observer *, 4> all{};
};

Observers &observers() {
    static auto *const made = new Observers;  // never destroyed: streams run until the very end of the process
    return *made;
}

int64_t clock_ns(clockid_t which) noexcept {
    timespec now{};
    clock_gettime(which, &now);
    return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

std::atomic<bool> calls_wanted{false};

thread_local uint32_t external = 0;
thread_local uint64_t launched = 0;
thread_local CollectiveSeen described;
thread_local int depth = 0;  // calls within calls are no program's

template <class Tell>
void tell(const Tell &one) noexcept {
    Observers &those = observers();
    const std::shared_lock lock(those.mutex);
    for (Observer *observer : those.all)
        if (observer != nullptr) one(*observer);
}

}  // namespace

std::atomic<bool> Timeline::any_{false};

int64_t monotonic() noexcept { return clock_ns(CLOCK_MONOTONIC); }
int64_t monotonic_raw() noexcept { return clock_ns(CLOCK_MONOTONIC_RAW); }
int64_t realtime() noexcept { return clock_ns(CLOCK_REALTIME); }

uint32_t thread_number() noexcept {
    static thread_local const auto number = static_cast<uint32_t>(syscall(SYS_gettid));
    return number;
}

void Timeline::add(Observer &observer) {
    Observers &those = observers();
    {
        const std::unique_lock lock(those.mutex);
        const auto room = std::ranges::find(those.all, nullptr);
        if (room == those.all.end())
            fail(FaultKind::InvalidArgument, "{} profilers watch this process already.", those.all.size());
        *room = &observer;
        any_.store(true);
        if (observer.wants_calls()) calls_wanted.store(true);
    }
    observe();
}

void Timeline::remove(Observer &observer) noexcept {
    Observers &those = observers();
    {
        const std::unique_lock lock(those.mutex);
        bool any = false, calls = false;
        for (Observer *&one : those.all) {
            if (one == &observer) one = nullptr;
            any = any || one != nullptr;
            calls = calls || (one != nullptr && one->wants_calls());
        }
        any_.store(any);
        calls_wanted.store(calls);
    }
    observe();
}

void Timeline::task(const TaskSeen &task) noexcept {
    tell([&](Observer &observer) { observer.task(task); });
}
void Timeline::call(const CallSeen &call) noexcept {
    tell([&](Observer &observer) { observer.call(call); });
}
void Timeline::memory(const MemorySeen &memory) noexcept {
    tell([&](Observer &observer) { observer.memory(memory); });
}

uint32_t external_correlation() noexcept { return external; }
void set_external_correlation(uint32_t number) noexcept { external = number; }
void describe_collective(const CollectiveSeen &collective) noexcept { described = collective; }
CollectiveSeen described_collective() noexcept { return std::exchange(described, {}); }

uint64_t last_launched() noexcept { return launched; }
void note_launched(uint64_t correlation) noexcept { launched = correlation; }

void CallScope::begin() noexcept {
    if (depth++ == 0) launched = 0;
    virtual_began_ = clocks::host();
    began_ = monotonic_raw();
}

void CallScope::end() noexcept {
    if (--depth > 0 || !calls_wanted.load(std::memory_order_relaxed) || on_worker_thread()) return;
    Timeline::call({name_, launched, thread_number(), began_, monotonic_raw(), virtual_began_, clocks::host()});
}

}  // namespace vnpu
