// Stamps (acl_prof.h): marks and ranges of programs that make them without mstx. As with CANN there are some only while
// a session runs that collects marks (ACL_PROF_MSPROFTX); whatever else is asked is CANN's 500005.
#include <acl/acl_prof.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "ascendcl/call.h"
#include "ascendcl/profiler/mark.h"
#include "ascendcl/profiler/session.h"

using namespace vnpu;

namespace {

constexpr const char *kDomain = "default";

struct Stamp {
    std::string message;
};

struct Stamps {
    std::mutex mutex;
    std::unordered_set<const void *> alive;
    std::unordered_set<uint32_t> ranges;  // begun by aclprofRangeStart, not ended
};

Stamps &stamps() {
    static auto *const all = new Stamps;
    return *all;
}

thread_local std::vector<uint64_t> pushed;

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args &&...args) {
    throw acl::Error(ACL_ERROR_PROFILING_FAILURE, fmt::format(text, std::forward<Args>(args)...));
}

void session_needed() {
    const auto session = acl::profiler_session();
    if (session == nullptr || !session->marks_ranges())
        refuse("No profile is running that collects marks (aclprofStart with ACL_PROF_MSPROFTX).");
}

// With the lock of `all`, without which another thread may destroy it.
Stamp &known(const Stamps &all, void *stamp) {
    if (stamp == nullptr) refuse("stamp is null.");
    if (!all.alive.contains(stamp)) refuse("stamp is {}, which aclprofCreateStamp has not made.", stamp);
    return *static_cast<Stamp *>(stamp);
}

std::string message_of(void *stamp) {
    session_needed();
    Stamps &all = stamps();
    const std::lock_guard lock(all.mutex);
    return known(all, stamp).message;
}

}  // namespace

void *aclprofCreateStamp() {
    return VNPU_API()->void * {
        session_needed();
        auto made = std::make_unique<Stamp>();
        Stamps &all = stamps();
        const std::lock_guard lock(all.mutex);
        all.alive.insert(made.get());
        return made.release();
    };
}

void aclprofDestroyStamp(void *stamp) {
    VNPU_API(stamp) {
        Stamps &all = stamps();
        const std::lock_guard lock(all.mutex);
        if (all.alive.erase(stamp) == 0) refuse("stamp is {}, which aclprofCreateStamp has not made.", stamp);
        delete static_cast<Stamp *>(stamp);
    };
}

aclError aclprofSetStampTraceMessage(void *stamp, const char *msg, uint32_t msgLen) {
    return VNPU_API(stamp, msg, msgLen) {
        session_needed();
        Stamps &all = stamps();
        const std::lock_guard lock(all.mutex);
        Stamp &one = known(all, stamp);
        if (msg == nullptr || msgLen == 0 || msgLen > 127)  // CANN's room
            refuse("msg is null, or not of 1 to 127 bytes (msgLen is {}).", msgLen);
        one.message.assign(msg, strnlen(msg, msgLen));
    };
}

aclError aclprofMark(void *stamp) {
    return VNPU_API(stamp) { acl::mark(kDomain, message_of(stamp), nullptr); };
}

aclError aclprofPush(void *stamp) {
    return VNPU_API(stamp) { pushed.push_back(acl::begin_range(kDomain, message_of(stamp), nullptr)); };
}

aclError aclprofPop() {
    return VNPU_API() {
        session_needed();
        if (pushed.empty()) refuse("This thread has no range that aclprofPush has begun.");
        acl::end_range(pushed.back());
        pushed.pop_back();
    };
}

aclError aclprofRangeStart(void *stamp, uint32_t *rangeId) {
    return VNPU_API(stamp, rangeId) {
        const std::string message = message_of(stamp);
        if (rangeId == nullptr) refuse("rangeId is null.");
        *rangeId = static_cast<uint32_t>(acl::begin_range(kDomain, message, nullptr));
        Stamps &all = stamps();
        const std::lock_guard lock(all.mutex);
        all.ranges.insert(*rangeId);
    };
}

aclError aclprofRangeStop(uint32_t rangeId) {
    return VNPU_API(rangeId) {
        session_needed();
        {
            Stamps &all = stamps();
            const std::lock_guard lock(all.mutex);
            if (all.ranges.erase(rangeId) == 0)
                refuse("rangeId is {}, which aclprofRangeStart has not begun.", rangeId);
        }
        acl::end_range(rangeId);
    };
}
