#include "device/machine.h"

#include <pthread.h>

#include <algorithm>

#include "device/abandoned.h"
#include "device/event_log.h"
#include "device/fault.h"
#include "device/injection.h"
#include "device/launches.h"
#include "device/overflow.h"
#include "device/perform.h"
#include "device/reached.h"
#include "device/trace.h"

namespace vnpu {
namespace {

thread_local int current_device = -1;
std::atomic<bool> forked{false};

[[noreturn]] void being_reset(int device) {
    fail(FaultKind::InvalidDevice, "Device {} is being reset by another thread.", device);
}

}  // namespace

Machine &Machine::instance() {
    static Machine *const machine = new Machine;
    if (forked.load(std::memory_order_relaxed))
        fail(FaultKind::ForkedProcess,
             "The virtual NPU was started in the parent process and cannot be used after fork(): start the child with "
             "the "
             "spawn method (torch.multiprocessing.set_start_method(\"spawn\")) or keep NPU work out of it.");
    return *machine;
}

Machine::Machine()
    : settings_(Settings::from_environment()),
      space_(settings_.devices, settings_.chip->memory_bytes),
      budget_(settings_.host_limit),
      mappings_(space_),
      devices_(static_cast<size_t>(settings_.devices)),
      active_(static_cast<size_t>(settings_.devices)) {
    injection::arm(std::getenv("VNPU_FAULTS"));
    detail::saturates.store(!settings_.chip->inf_nan);
    if (const char *path = std::getenv("VNPU_TIMELINE"); path != nullptr && *path != '\0') log_process(path, settings_);
    observe(settings_);
    pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
    if (const char *path = std::getenv("VNPU_TRACE"); path != nullptr && *path != '\0') Trace::open(path);
}

void Device::open(uint64_t context_bytes) {
    if (context_bytes > 0 && !context_) context_ = heap_.reserve(context_bytes);
}

void Device::close() {
    if (context_) heap_.release(*context_);
    context_.reset();
}

Device &Machine::device(int index) {
    if (index < 0 || index >= settings_.devices)
        fail(FaultKind::InvalidDevice, "There is no device {}: the virtual NPU has devices 0 to {} (VNPU_DEVICES).",
             index, settings_.devices - 1);
    const auto at = static_cast<size_t>(index);
    if (active_[at].load(std::memory_order_acquire)) return *devices_[at];
    const std::lock_guard lock(devices_mutex_);
    if (!devices_[at])
        devices_[at] =
            std::make_unique<Device>(index, settings_.chip->memory_bytes, space_, budget_, settings_.check_memory);
    devices_[at]->open(settings_.chip->context_bytes);
    note_opened(index);
    active_[at].store(true, std::memory_order_release);
    return *devices_[at];
}

Heap *Machine::heap(int index) {
    if (index < 0 || index >= settings_.devices) return nullptr;
    const std::lock_guard lock(devices_mutex_);
    const auto &found = devices_[static_cast<size_t>(index)];
    return found ? &found->heap() : nullptr;
}

bool Machine::active(int index) const noexcept {
    return index >= 0 && index < settings_.devices &&
           active_[static_cast<size_t>(index)].load(std::memory_order_acquire);
}

int Machine::current_index() const noexcept { return current_device; }

void Machine::set_current(int index) {
    device(index);
    current_device = index;
}

int Machine::chosen() {
    const int index = current_device >= 0 ? current_device : default_.load();
    if (index < 0)
        fail(FaultKind::NoDevice,
             "This thread has not chosen a device: call aclrtSetDevice (torch.npu.set_device) first.");
    return index;
}

Device &Machine::current() {
    if (current_device < 0) set_current(chosen());
    return device(current_device);
}

void Machine::set_default(std::optional<int> index) noexcept { default_.store(index.value_or(-1)); }

void Machine::reset(int index) {
    if (!active(index)) fail(FaultKind::InvalidDevice, "Device {} is not in use, so it cannot be reset.", index);
    if (const Stream *own = current_worker(); own != nullptr && own->device() == index) own->refuse_own_worker();
    Device &which = device(index);
    if (which.resetting().exchange(true)) being_reset(index);
    struct End {
        std::atomic<bool> &resetting;
        ~End() { resetting.store(false); }
    } const end{which.resetting()};
    // In the table until they have run: what frees memory meanwhile waits for them too.
    for (const auto &stream : streams_of(index)) stream->close();
    streams_.remove_if([index](const Stream &each) { return each.device() == index; });
    which.heap().clear();
    forget_abandoned(index);
    {
        const std::lock_guard lock(devices_mutex_);  // a thread that saw the device unused before may be in open()
        which.close();
        active_[static_cast<size_t>(index)].store(false, std::memory_order_release);
    }
    if (current_device == index) current_device = -1;
}

std::shared_ptr<Stream> Machine::make_stream(int device, int priority) {
    return std::make_shared<Stream>(device, next_stream_.fetch_add(1), priority);
}

std::shared_ptr<Stream> Machine::create_stream(int priority) {
    Device &owner = current();
    auto made = make_stream(owner.index(), priority);
    streams_.add(made);
    if (owner.resetting().load()) {
        streams_.remove_if([&](const Stream &each) { return &each == made.get(); });  // or the reset has done it
        being_reset(owner.index());
    }
    return made;
}

std::shared_ptr<Stream> Machine::stream(void *handle) {
    if (handle != nullptr) {
        auto found = streams_.find(handle);
        if (found->closed()) fail(FaultKind::InvalidHandle, "{} is not a live stream.", handle);
        return found;
    }
    Device &owner = current();
    auto found = streams_.find_or_add(&owner, [&] { return make_stream(owner.index(), 0); });
    if (owner.resetting().load()) being_reset(owner.index());
    return found;
}

void Machine::destroy_stream(void *handle) {
    const auto last = stream(handle);
    last->refuse_own_worker();
    last->close();  // in the table until then, as in reset()
    streams_.remove(handle);
}

std::vector<std::shared_ptr<Stream>> Machine::streams_of(int device) {
    auto found = streams_.all();
    std::erase_if(found, [device](const auto &stream) { return stream->device() != device; });
    return found;
}

void Machine::synchronize(int device, Deadline deadline) {
    std::optional<Fault> first;
    for (const auto &stream : streams_of(device)) {
        try {
            stream->synchronize(deadline);
        } catch (const Fault &fault) {
            if (!first) first = fault;
        }
    }
    if (first) throw *first;
}

void Machine::drain(int device) {
    for (const auto &stream : streams_of(device)) stream->drain();
}

bool Machine::idle(int device) {
    const auto streams = streams_of(device);
    return std::all_of(streams.begin(), streams.end(), [](const auto &stream) { return stream->idle(); });
}

std::optional<Allocation> Machine::allocation(const void *address) {
    if (!space_.contains(address)) return std::nullopt;
    if (space_.in_window(address)) {
        const auto mapped = mappings_.allocation(address);
        return mapped ? mapped : ReachedMemory::instance().allocation(address);
    }
    const int index = device_of(address);
    return active(index) ? device(index).heap().allocation(address) : std::nullopt;
}

std::string Machine::why_dead(const void *address) {
    if (space_.in_window(address)) return mappings_.why_dead(address);
    const int index = device_of(address);
    if (!active(index)) return fmt::format("virtual NPU {} is not in use, or was reset", index);
    return device(index).heap().why_dead(address);
}

int Machine::device_of(const void *address) {
    if (!space_.contains(address)) return -1;
    if (space_.in_window(address)) return mappings_.device_at(address);
    for (int i = settings_.devices - 1; i >= 0; --i)
        if (address >= space_.device_base(i)) return i;
    return -1;
}

}  // namespace vnpu
