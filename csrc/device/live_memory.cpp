#include "device/live_memory.h"

#include <array>

#include "device/bytes.h"
#include "device/machine.h"
#include "device/peers.h"

namespace vnpu {
namespace {

// Allocations that the thread has met last, by their addresses: torch_npu asks for memory in pieces of 2 MiB and more
// and gives many tensors out of one, so most questions end here, without a lock. What was found stays true until
// something is freed, which the revision tells.
struct Met {
    static constexpr uint64_t kPiece = 2ull << 20;
    uint64_t revision = 0;
    std::array<Allocation, 64> allocations{};
};
constinit thread_local Met met;

bool holds(const Allocation &allocation, uintptr_t at, uint64_t size) noexcept {
    const uint64_t offset = at - allocation.start;
    return offset < allocation.size && size <= allocation.size - offset;
}

[[noreturn]] void refuse(Machine &machine, const void *address, uint64_t size, const char *name) {
    if (!machine.space().contains(address))
        fail(FaultKind::InvalidAddress, "{} ({}) is not device memory.", name, address);
    const std::optional<Allocation> found = machine.allocation(address);
    if (!found)
        fail(FaultKind::InvalidAddress, "{} ({}) lies in the device's address range, but no live memory is there: {}.",
             name, address, machine.why_dead(address));
    const uint64_t left = found->start + found->size - reinterpret_cast<uintptr_t>(address);
    fail(FaultKind::OutOfBounds, "{} bytes at {} ({}) run {} bytes past the end of {}.", size, name, address,
         size - left, describe(*found));
}

void check(Machine &machine, const void *address, uint64_t size, const char *name, int device) {
    const auto at = reinterpret_cast<uintptr_t>(address);
    const uint64_t revision = machine.space().revision();  // before the look: what is freed after it is not missed
    if (met.revision != revision) met = {revision, {}};
    Allocation &found = met.allocations[at / Met::kPiece % met.allocations.size()];
    if (!holds(found, at, size)) {
        const std::optional<Allocation> live = machine.allocation(address);
        if (!live || !holds(*live, at, size)) refuse(machine, address, size, name);
        found = *live;
    }
    if (device != kAnyDevice && !reaches(device, found.device))
        fail(FaultKind::InvalidAddress, "{} ({}) lies in {}, and the stream is one of virtual NPU {}.", name, address,
             describe(found), device);
}

}  // namespace

std::byte *live_range(const void *address, uint64_t size, const char *name, int device) {
    Machine &machine = Machine::instance();
    check(machine, address, size, name, device);
    return machine.space().alias(address);
}

void still_live(const void *view, uint64_t size, const char *name, int device) {
    Machine &machine = Machine::instance();
    check(machine, machine.space().unalias(view), size, name, device);
}

int running_device() noexcept {
    const Stream *stream = current_worker();
    return stream == nullptr ? kAnyDevice : stream->device();
}

void host_range(const void *address, uint64_t size, const char *name) {
    const auto start = reinterpret_cast<uintptr_t>(address);
    const uintptr_t end = bytes::sum(start, size, name);
    Machine &machine = Machine::instance();
    const AddressSpace &space = machine.space();
    if (space.in_window(address) && machine.mappings().on_host(address, size)) return;
    const auto device = reinterpret_cast<uintptr_t>(space.device_base(0));
    if (space.contains(address) || (start < device && end > device))
        fail(FaultKind::OutOfBounds, "{} bytes at {} ({}) are not host memory: the device's addresses begin at {:#x}.",
             size, name, address, device);
}

}  // namespace vnpu
