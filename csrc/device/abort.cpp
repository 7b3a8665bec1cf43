#include "device/abort.h"

#include <array>
#include <atomic>
#include <thread>

#include "device/machine.h"

namespace vnpu {
namespace {

struct State {
    std::atomic<int> under_way{0};
    std::atomic<uint64_t> count{0};
};
constinit std::array<State, 64> states{};  // by device, of which there are at most 64

State &of(int device) noexcept { return states[static_cast<size_t>(device)]; }

}  // namespace

void abort_tasks(int device, Deadline deadline) {
    Machine &machine = Machine::instance();
    machine.device(device);  // Fault InvalidDevice
    if (const Stream *own = current_worker(); own != nullptr && own->device() == device) own->refuse_own_worker();
    State &state = of(device);
    const struct UnderWay {
        State &state;
        explicit UnderWay(State &begun) : state(begun) {
            state.count.fetch_add(1);
            state.under_way.fetch_add(1);
        }
        ~UnderWay() { state.under_way.fetch_sub(1); }
    } under_way(state);
    while (!machine.idle(device)) {
        if (deadline && Clock::now() >= *deadline)
            fail(FaultKind::Timeout, "Virtual NPU {} still runs a task that cannot be stopped.", device);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

bool aborting(int device) noexcept { return of(device).under_way.load(std::memory_order_relaxed) > 0; }

uint64_t aborts(int device) noexcept { return of(device).count.load(); }

void refuse_aborted() {
    if (const Stream *own = current_worker(); own != nullptr && aborting(own->device())) fail_aborted(own->device());
}

void fail_aborted(int device) {
    fail(FaultKind::Aborted, "The tasks of virtual NPU {} were aborted (aclrtDeviceTaskAbort).", device);
}

}  // namespace vnpu

uint64_t vnpuAborts(int device) noexcept { return vnpu::aborts(device); }
