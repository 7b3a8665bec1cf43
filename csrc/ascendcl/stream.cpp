// Streams. A stream's handle is the address of the device's Stream; null is the current device's default stream.
#include <acl/acl_rt.h>

#include <mutex>
#include <unordered_map>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "ascendcl/graph.h"
#include "device/machine.h"
#include "device/timeline.h"

using namespace vnpu;
using acl::required;

namespace {

constexpr uint32_t kLowestPriority = 7;  // 0 is the highest

// What a program sets on a stream and reads back. Nothing here changes how tasks run: overflow shows as inf and nan in
// the results themselves, tags and cached operator information are for CANN's own tools.
struct Attributes {
    uint32_t flags = 0;
    uint32_t overflow_switch = 0;
    uint32_t tag = 0;
    uint32_t cache_op_info = 0;
    uint64_t failure_mode = ACL_CONTINUE_ON_FAILURE;
};

// By the stream's number: a later stream may get the address of one that a device reset took away.
class AttributeTable {
  public:
    template <class Use>
    auto with(const Stream &stream, Use use) {
        const std::lock_guard lock(mutex_);
        return use(table_[stream.id()]);
    }
    void forget(int stream) {
        const std::lock_guard lock(mutex_);
        table_.erase(stream);
    }

  private:
    std::mutex mutex_;
    std::unordered_map<int, Attributes> table_;
};

AttributeTable &attributes() {
    static auto *all = new AttributeTable;  // never destroyed: streams are used until the very end of the process
    return *all;
}

std::shared_ptr<Stream> stream_of(aclrtStream handle) { return Machine::instance().stream(handle); }

// Priorities are kept and reported. Tasks do not compete for cores of a device here, so none is preferred.
aclrtStream create(uint32_t priority, uint32_t flags) {
    if (priority > kLowestPriority)
        fail(FaultKind::InvalidArgument, "priority is {}; it is 0 (highest) to {}.", priority, kLowestPriority);
    const auto made = Machine::instance().create_stream(static_cast<int>(priority));
    attributes().with(*made, [&](Attributes &values) { values = Attributes{.flags = flags}; });
    return made.get();
}

void destroy(aclrtStream handle) {
    acl::not_null(handle, "stream");
    const int id = stream_of(handle)->id();
    Machine::instance().destroy_stream(handle);
    attributes().forget(id);
}

void synchronize(Stream &stream, Deadline deadline = std::nullopt) {
    acl::outside_capture(stream, "Synchronisation");
    stream.synchronize(deadline);
}

void set_failure_mode(Stream &stream, uint64_t mode) {
    if (mode != ACL_CONTINUE_ON_FAILURE && mode != ACL_STOP_ON_FAILURE)
        fail(FaultKind::InvalidArgument, "mode is {}; it is 0 (continue) or 1 (stop on failure).", mode);
    stream.set_on_failure(mode == ACL_STOP_ON_FAILURE ? OnFailure::Stop : OnFailure::Continue);
    attributes().with(stream, [&](Attributes &values) { values.failure_mode = mode; });
}

void set_overflow_switch(Stream &stream, uint32_t flag) {
    if (flag > 1) fail(FaultKind::InvalidArgument, "flag is {}; it is 0 or 1.", flag);
    attributes().with(stream, [&](Attributes &values) { values.overflow_switch = flag; });
}

}  // namespace

aclError aclrtCreateStream(aclrtStream *stream) {
    return VNPU_API(stream) { required(stream, "stream") = create(0, 0); };
}

aclError aclrtCreateStreamWithConfig(aclrtStream *stream, uint32_t priority, uint32_t flag) {
    return VNPU_API(stream, priority, flag) { required(stream, "stream") = create(priority, flag); };
}

// Runs what is queued first.
aclError aclrtDestroyStream(aclrtStream stream) {
    return VNPU_API(stream) { destroy(stream); };
}

// Hardware drops what is queued; a kernel that runs on a CPU cannot be stopped, so here it runs to its end.
aclError aclrtDestroyStreamForce(aclrtStream stream) {
    return VNPU_API(stream) { destroy(stream); };
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
    const CallScope call(__func__);
    return VNPU_API(stream) { synchronize(*stream_of(stream)); };
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
    const CallScope call(__func__);
    return VNPU_API(stream, timeout) { synchronize(*stream_of(stream), acl::deadline(timeout)); };
}

aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus *status) {
    return VNPU_API(stream, status) {
        required(status, "status") =
            stream_of(stream)->idle() ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    };
}

aclError aclrtStreamGetId(aclrtStream stream, int32_t *streamId) {
    return VNPU_API(stream, streamId) { required(streamId, "streamId") = stream_of(stream)->id(); };
}

aclError aclrtStreamGetPriority(aclrtStream stream, uint32_t *priority) {
    return VNPU_API(stream, priority) {
        required(priority, "priority") = static_cast<uint32_t>(stream_of(stream)->priority());
    };
}

aclError aclrtStreamGetFlags(aclrtStream stream, uint32_t *flags) {
    return VNPU_API(stream, flags) {
        required(flags, "flags") =
            attributes().with(*stream_of(stream), [](const Attributes &values) { return values.flags; });
    };
}

aclError aclrtDeviceGetStreamPriorityRange(int32_t *leastPriority, int32_t *greatestPriority) {
    return VNPU_API(leastPriority, greatestPriority) {
        required(leastPriority, "leastPriority") = kLowestPriority;
        required(greatestPriority, "greatestPriority") = 0;
    };
}

// The default stream's handle is its device's address (see Machine): it exists before the stream does.
aclError aclrtCtxGetCurrentDefaultStream(aclrtStream *stream) {
    return VNPU_API(stream) {
        stream_of(nullptr);
        required(stream, "stream") = &Machine::instance().current();
    };
}

aclError aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode) {
    return VNPU_API(stream, mode) { set_failure_mode(*stream_of(stream), mode); };
}

aclError aclrtSetStreamOverflowSwitch(aclrtStream stream, uint32_t flag) {
    return VNPU_API(stream, flag) { set_overflow_switch(*stream_of(stream), flag); };
}

aclError aclrtGetStreamOverflowSwitch(aclrtStream stream, uint32_t *flag) {
    return VNPU_API(stream, flag) {
        required(flag, "flag") =
            attributes().with(*stream_of(stream), [](const Attributes &values) { return values.overflow_switch; });
    };
}

aclError aclrtSetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType, aclrtStreamAttrValue *value) {
    return VNPU_API(stream, stmAttrType, value) {
        const auto target = stream_of(stream);
        const aclrtStreamAttrValue &wanted = required(value, "value");
        switch (stmAttrType) {
            case ACL_STREAM_ATTR_FAILURE_MODE:
                return set_failure_mode(*target, wanted.failureMode);
            case ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK:
                return set_overflow_switch(*target, wanted.overflowSwitch);
            case ACL_STREAM_ATTR_USER_CUSTOM_TAG:
                return attributes().with(*target, [&](Attributes &values) { values.tag = wanted.userCustomTag; });
            case ACL_STREAM_ATTR_CACHE_OP_INFO:
                return attributes().with(*target,
                                         [&](Attributes &values) { values.cache_op_info = wanted.cacheOpInfoSwitch; });
            case ACL_STREAM_ATTR_PRIORITY:
                fail(FaultKind::Unsupported, "The priority of a stream is given when it is created.");
        }
        fail(FaultKind::InvalidArgument, "stmAttrType is {}, which is none of its values.",
             static_cast<int>(stmAttrType));
    };
}

aclError aclrtGetStreamAttribute(aclrtStream stream, aclrtStreamAttr stmAttrType, aclrtStreamAttrValue *value) {
    return VNPU_API(stream, stmAttrType, value) {
        const auto target = stream_of(stream);
        const Attributes held = attributes().with(*target, [](const Attributes &values) { return values; });
        aclrtStreamAttrValue &answer = required(value, "value");
        switch (stmAttrType) {
            case ACL_STREAM_ATTR_FAILURE_MODE:
                answer.failureMode = held.failure_mode;
                return;
            case ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK:
                answer.overflowSwitch = held.overflow_switch;
                return;
            case ACL_STREAM_ATTR_USER_CUSTOM_TAG:
                answer.userCustomTag = held.tag;
                return;
            case ACL_STREAM_ATTR_CACHE_OP_INFO:
                answer.cacheOpInfoSwitch = held.cache_op_info;
                return;
            case ACL_STREAM_ATTR_PRIORITY:
                answer.streamPriority = static_cast<uint32_t>(target->priority());
                return;
        }
        fail(FaultKind::InvalidArgument, "stmAttrType is {}, which is none of its values.",
             static_cast<int>(stmAttrType));
    };
}
