// Events. The handle is the address of the device's Event.
#include <acl/acl_rt.h>
#include <acl/error_codes/rt_error_codes.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "ascendcl/time_limits.h"
#include "device/abandoned.h"
#include "device/machine.h"
#include "device/timeline.h"

using namespace vnpu;
using acl::required;

namespace {

Handles<Event> events("event");

constexpr uint32_t kKnownFlags =
    ACL_EVENT_SYNC | ACL_EVENT_CAPTURE_STREAM_PROGRESS | ACL_EVENT_TIME_LINE | ACL_EVENT_DEVICE_USE_ONLY;

// Every event can do what the flags ask for: synchronise, be queried, carry a time.
aclrtEvent create(uint32_t flag) {
    if ((flag & ~(kKnownFlags | ACL_EVENT_IPC | ACL_EVENT_EXTERNAL)) != 0)
        fail(FaultKind::InvalidArgument, "flag is {:#x}, which has unknown bits.", flag);
    Machine::instance().current();
    if ((flag & ACL_EVENT_EXTERNAL) != 0) {
        if ((flag & ACL_EVENT_IPC) != 0)
            fail(FaultKind::InvalidArgument, "flag is {:#x}: an event is for graphs or for other processes.", flag);
        return events.add(std::make_shared<Event>(InCapture::Flag));
    }
    return events.add(std::make_shared<Event>((flag & ACL_EVENT_IPC) != 0 ? shared_marks() : nullptr));
}

// The latest events that were destroyed with a record behind them: streams can still wait for that. Between two devices
// torch_npu 2.13 asks for just this: one device's queue thread records an event and destroys it
// (NPUEventManager::LazyDestroy), then the other's waits for it. As many as its queues hold tasks. (Events between
// processes it destroys after that.)
class Destroyed {
  public:
    void keep(std::shared_ptr<Event> event) {
        if (!event->recorded() || event->between_processes()) return;
        const std::lock_guard lock(mutex_);
        latest_.push_back(std::move(event));
        if (latest_.size() > kMost) latest_.pop_front();
    }
    std::shared_ptr<Event> find(const void *handle) const {
        const std::lock_guard lock(mutex_);
        const auto it =
            std::find_if(latest_.rbegin(), latest_.rend(), [&](const auto &e) { return e.get() == handle; });
        return it != latest_.rend() ? *it : nullptr;
    }

  private:
    static constexpr size_t kMost = 4096;
    mutable std::mutex mutex_;
    std::deque<std::shared_ptr<Event>> latest_;
};
Destroyed &destroyed = *new Destroyed;  // calls come in until the very end of the process

std::shared_ptr<Event> waitable(aclrtEvent event) {
    if (std::shared_ptr<Event> live = events.find_or_null(event)) return live;
    if (std::shared_ptr<Event> gone = destroyed.find(event)) return gone;
    return events.find(event);  // says that there is none
}

void wait_for(aclrtEvent event, Deadline deadline) {
    events.find(event)->synchronize(deadline);
    refuse_abandoned(Machine::instance().current_index());
}

}  // namespace

aclError aclrtCreateEvent(aclrtEvent *event) {
    return VNPU_API(event) { required(event, "event") = create(ACL_EVENT_SYNC); };
}

aclError aclrtCreateEventWithFlag(aclrtEvent *event, uint32_t flag) {
    return VNPU_API(event, flag) { required(event, "event") = create(flag); };
}

aclError aclrtCreateEventExWithFlag(aclrtEvent *event, uint32_t flag) {
    return VNPU_API(event, flag) { required(event, "event") = create(flag); };
}

// Tasks in flight that record it or wait for it still do. Kept first: another thread that looks for it finds it in one
// of both places at every moment.
aclError aclrtDestroyEvent(aclrtEvent event) {
    return VNPU_API(event) {
        destroyed.keep(events.find(event));
        events.remove(event);
    };
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
    const CallScope call(__func__);
    return VNPU_API(event, stream) { events.find(event)->record(*Machine::instance().stream(stream)); };
}

aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream) {
    return VNPU_API(event, stream) { events.find(event)->reset(*Machine::instance().stream(stream)); };
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
    const CallScope call(__func__);
    return VNPU_API(stream, event) { waitable(event)->hold(*Machine::instance().stream(stream), acl::wait_limit()); };
}

aclError aclrtStreamWaitEventWithTimeout(aclrtStream stream, aclrtEvent event, int32_t timeout) {
    return VNPU_API(stream, event, timeout) {
        std::optional<std::chrono::milliseconds> limit;
        if (acl::deadline(timeout)) limit = std::chrono::milliseconds(timeout);
        waitable(event)->hold(*Machine::instance().stream(stream), limit);
    };
}

aclError aclrtSynchronizeEvent(aclrtEvent event) {
    const CallScope call(__func__);
    return VNPU_API(event) { wait_for(event, std::nullopt); };
}

aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout) {
    const CallScope call(__func__);
    return VNPU_API(event, timeout) { wait_for(event, acl::deadline(timeout)); };
}

// An event that was never recorded counts as complete.
aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus *status) {
    return VNPU_API(event, status) {
        required(status, "status") =
            events.find(event)->done() ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    };
}

aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus *status) {
    return VNPU_API(event, status) {
        required(status, "status") =
            events.find(event)->done() ? ACL_EVENT_STATUS_COMPLETE : ACL_EVENT_STATUS_NOT_READY;
    };
}

// Complete once no stream waits for the event any more.
aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus *status) {
    return VNPU_API(event, status) {
        required(status, "status") =
            events.find(event)->holds_done() ? ACL_EVENT_WAIT_STATUS_COMPLETE : ACL_EVENT_WAIT_STATUS_NOT_READY;
    };
}

// Milliseconds between the moments at which the streams reached the events.
aclError aclrtEventElapsedTime(float *ms, aclrtEvent startEvent, aclrtEvent endEvent) {
    return VNPU_API(ms, startEvent, endEvent) {
        const auto from = events.find(startEvent)->time();
        const auto to = events.find(endEvent)->time();
        required(ms, "ms") = std::chrono::duration<float, std::milli>(to - from).count();
    };
}

// An address that other processes on this machine can open while the event lives.
aclError aclrtIpcGetEventHandle(aclrtEvent event, aclrtIpcEventHandle *handle) {
    return VNPU_API(event, handle) {
        static_assert(sizeof(MarksAddress) <= sizeof handle->reserved);
        const MarksAddress address = events.find(event)->address();
        required(handle, "handle") = {};
        std::memcpy(handle->reserved, &address, sizeof address);
    };
}

aclError aclrtIpcOpenEventHandle(aclrtIpcEventHandle handle, aclrtEvent *event) {
    return VNPU_API(event) {
        MarksAddress address;
        std::memcpy(&address, handle.reserved, sizeof address);
        Machine::instance().current();
        required(event, "event") = events.add(Event::open(address));
    };
}

// Microseconds on the host's steady clock.
aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t *timestamp) {
    return VNPU_API(event, timestamp) {
        const auto at = events.find(event)->time().time_since_epoch();
        required(timestamp, "timestamp") =
            static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(at).count());
    };
}

aclError aclrtGetEventId(aclrtEvent event, uint32_t *eventId) {
    return VNPU_API(event, eventId) { required(eventId, "eventId") = static_cast<uint32_t>(events.find(event)->id()); };
}
