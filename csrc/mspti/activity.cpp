// libmspti.so, by which Kineto in torch_npu learns of kernels: what streams have run since it was enabled.
//
// Kineto's own events carry this machine's times, which nothing can change. A kernel is therefore placed where this
// machine has launched it, or behind the one before it in its stream, and takes what it would take on the chip; with
// VNPU_TIME=wall, it is when and as long as this machine has computed it.
#include "mspti/activity.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <vector>

#include "device/machine.h"
#include "device/timeline.h"

#define MSPTI_EXPORT extern "C" [[gnu::visibility("default")]]

using namespace vnpu;
using namespace vnpu::mspti;

namespace {

using Request = void (*)(uint8_t **buffer, size_t *size, size_t *most);
using Complete = void (*)(uint8_t *buffer, size_t size, size_t valid);

// Streams get this long to come to an end before what they have run is delivered.
constexpr auto kPatience = std::chrono::seconds(10);
// Bytes of the largest record that there is.
constexpr size_t kLargest = sizeof(CommunicationRecord);

struct Event {
    const char *name, *type, *group;  // no group: a kernel
    int device, stream, data_type;
    uint64_t start, end, count, correlation;
    uint32_t external;
};

const char *type_of(Unit unit) {
    switch (unit) {
        case Unit::Cube:
        case Unit::Depthwise:
            return "AI_CORE";
        case Unit::DeviceCpu:
            return "AI_CPU";
        default:
            return "AI_VECTOR_CORE";
    }
}

class Activities final : public Observer {
  public:
    void task(const TaskSeen &task) noexcept override {
        const Unit unit = task.what.work.unit;
        const bool collective = unit == Unit::Collective && task.collective.group != nullptr;
        if (task.failed || (!collective && (unit == Unit::None || unit == Unit::HostCopy))) return;
        const std::lock_guard lock(mutex_);
        int64_t start = task.times.began, end = task.times.ended;
        if (!wall_) {
            int64_t &free = free_[{task.device, task.stream}];
            start = std::max(task.times.queued, free);
            end = start + (task.times.virtual_end - (collective ? task.virtual_ready : task.times.virtual_began));
            free = end;
        }
        const char *group = collective ? groups_.emplace(*task.collective.group).first->c_str() : nullptr;
        events_.push_back({task.name, type_of(unit), group, task.device, task.stream, task.collective.type,
                           static_cast<uint64_t>(start + to_epoch_), static_cast<uint64_t>(end + to_epoch_),
                           task.collective.count, task.correlation, task.external});
    }

    void enable(int32_t kind, bool on) {
        const std::lock_guard change(changing_);
        enabled_[static_cast<size_t>(kind)] = on;
        const bool wanted = std::ranges::find(enabled_, true) != enabled_.end();
        if (wanted == watching_) return;
        watching_ = wanted;
        if (!wanted) return Timeline::remove(*this);
        {
            const std::lock_guard lock(mutex_);
            const char *time = std::getenv("VNPU_TIME");
            wall_ = time != nullptr && std::string_view(time) == "wall";
            to_epoch_ = realtime() - monotonic();
            free_.clear();
            patient_ = true;
        }
        Timeline::add(*this);
    }
    bool enabled(int32_t kind) {
        const std::lock_guard change(changing_);
        return enabled_[static_cast<size_t>(kind)];
    }

    void set_callbacks(Request request, Complete complete) {
        const std::lock_guard change(changing_);
        request_ = request;
        complete_ = complete;
    }

    Result flush() {
        const std::lock_guard change(changing_);
        if (request_ == nullptr || complete_ == nullptr) return kInvalidParameter;
        if (std::exchange(patient_, false)) wait_for_streams();
        std::vector<Event> events;
        {
            const std::lock_guard lock(mutex_);
            events.swap(events_);
        }
        for (size_t next = 0; next < events.size();) {
            uint8_t *buffer = nullptr;
            size_t size = 0, most = 0;
            request_(&buffer, &size, &most);
            if (buffer == nullptr) return kMaxLimitReached;
            uint8_t *to = buffer;
            const auto room = [&] {
                return size - static_cast<size_t>(to - buffer) >= kLargest + sizeof(ExternalCorrelationRecord);
            };
            const size_t before = next;
            while (next < events.size() && room()) to = write(events[next++], to);
            complete_(buffer, size, static_cast<size_t>(to - buffer));
            if (next == before) return kMaxLimitReached;  // a buffer that holds no record
        }
        return kSuccess;
    }

  private:
    template <class T>
    static uint8_t *put(const T &record, uint8_t *to) {
        std::memcpy(to, &record, sizeof record);
        return to + sizeof record;
    }

    uint8_t *write(const Event &event, uint8_t *to) const {
        const Place where{static_cast<uint32_t>(event.device), static_cast<uint32_t>(event.stream)};
        if (event.external != 0 && enabled_[kExternalCorrelation])
            to = put(ExternalCorrelationRecord{kExternalCorrelation, 2, event.external, event.correlation}, to);
        if (event.group != nullptr && enabled_[kCommunication])
            to = put(CommunicationRecord{kCommunication, event.data_type, event.count, where, event.start, event.end,
                                         "MESH", event.name, event.group, event.correlation},
                     to);
        if (event.group == nullptr && enabled_[kKernel])
            to = put(KernelRecord{kKernel, event.start, event.end, where, event.correlation, event.type, event.name},
                     to);
        return to;
    }

    static void wait_for_streams() {
        Machine &machine = Machine::instance();
        const auto until = std::chrono::steady_clock::now() + kPatience;
        for (int device = 0; device < machine.settings().devices; ++device)
            while (machine.active(device) && !machine.idle(device) && std::chrono::steady_clock::now() < until)
                std::this_thread::sleep_for(std::chrono::microseconds(200));
    }

    std::mutex changing_;  // what the program sets; before the other
    std::array<bool, kKinds> enabled_{};
    bool watching_ = false, patient_ = false;
    Request request_ = nullptr;
    Complete complete_ = nullptr;
    std::mutex mutex_;  // what streams write
    std::vector<Event> events_;
    std::unordered_set<std::string> groups_;  // for ever: records point to their names
    std::map<std::pair<int, int>, int64_t> free_;
    int64_t to_epoch_ = 0;
    bool wall_ = false;
};

Activities &activities() {
    static auto *const all = new Activities;  // never destroyed: streams run until the very end of the process
    return *all;
}

// Nothing leaves: Kineto calls from where an exception would end the program.
template <class Body>
Result guarded(const Body &body) noexcept {
    try {
        return body();
    } catch (...) {
        return kInner;
    }
}

// By thread: the operations of the framework that it is in.
thread_local std::array<std::vector<uint64_t>, 5> operations;
constexpr int32_t kFramework = 2;  // MSPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0

void tell_innermost() {
    const std::vector<uint64_t> &all = operations[kFramework];
    const uint64_t innermost = all.empty() ? 0 : all.back();
    set_external_correlation(innermost <= UINT32_MAX ? static_cast<uint32_t>(innermost) : 0);
}

bool known(int32_t kind) { return kind > 0 && kind < kKinds; }

std::atomic<int *> subscriber{nullptr};

}  // namespace

MSPTI_EXPORT Result msptiSubscribe(void **handle, void *, void *) {
    if (handle == nullptr) return kInvalidParameter;
    static int one;
    int *none = nullptr;
    if (!subscriber.compare_exchange_strong(none, &one)) return kMultipleSubscribers;
    *handle = &one;
    return kSuccess;
}

MSPTI_EXPORT Result msptiUnsubscribe(void *handle) {
    int *there = static_cast<int *>(handle);
    return there != nullptr && subscriber.compare_exchange_strong(there, nullptr) ? kSuccess : kInvalidParameter;
}

MSPTI_EXPORT Result msptiActivityRegisterCallbacks(Request request, Complete complete) {
    if (request == nullptr || complete == nullptr) return kInvalidParameter;
    return guarded([&] {
        activities().set_callbacks(request, complete);
        return kSuccess;
    });
}

MSPTI_EXPORT Result msptiActivityEnable(int32_t kind) {
    if (!known(kind)) return kInvalidParameter;
    return guarded([&] {
        activities().enable(kind, true);
        return kSuccess;
    });
}

MSPTI_EXPORT Result msptiActivityDisable(int32_t kind) {
    if (!known(kind)) return kInvalidParameter;
    return guarded([&] {
        activities().enable(kind, false);
        return kSuccess;
    });
}

MSPTI_EXPORT bool msptiActivityIsEnabled(int32_t kind) { return known(kind) && activities().enabled(kind); }

MSPTI_EXPORT Result msptiActivityFlushAll(uint32_t) {
    return guarded([] { return activities().flush(); });
}

MSPTI_EXPORT Result msptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record) {
    if (buffer == nullptr || record == nullptr) return kInvalidParameter;
    uint8_t *next = buffer;
    if (*record != nullptr) {
        int32_t kind = 0;
        std::memcpy(&kind, *record, sizeof kind);
        next = static_cast<uint8_t *>(*record) + (kind == kKernel          ? sizeof(KernelRecord)
                                                  : kind == kCommunication ? sizeof(CommunicationRecord)
                                                                           : sizeof(ExternalCorrelationRecord));
    }
    if (next >= buffer + valid) return kMaxLimitReached;
    *record = next;
    return kSuccess;
}

MSPTI_EXPORT Result msptiActivityPushExternalCorrelationId(int32_t kind, uint64_t id) {
    if (kind < 1 || kind >= static_cast<int32_t>(operations.size())) return kInvalidParameter;
    return guarded([&] {
        operations[static_cast<size_t>(kind)].push_back(id);
        tell_innermost();
        return kSuccess;
    });
}

MSPTI_EXPORT Result msptiActivityPopExternalCorrelationId(int32_t kind, uint64_t *last) {
    if (kind < 1 || kind >= static_cast<int32_t>(operations.size())) return kInvalidParameter;
    std::vector<uint64_t> &all = operations[static_cast<size_t>(kind)];
    if (all.empty()) return kQueueEmpty;
    if (last != nullptr) *last = all.back();
    all.pop_back();
    tell_innermost();
    return kSuccess;
}
