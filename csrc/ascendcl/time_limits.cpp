#include "ascendcl/time_limits.h"

#include <acl/acl_rt.h>

#include <atomic>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"

using namespace vnpu;
using acl::required;

namespace {

std::atomic<uint64_t> wait_milliseconds{0};     // 0: for ever
std::atomic<uint64_t> execute_microseconds{0};  // 0: CANN's default

// A kernel on a CPU cannot be stopped from outside. The limit is kept and reported, and enforced where a kernel waits
// for the program (opapi/movement/aclop_channels.cpp); another that does not end shows in the time-outs of the
// synchronising calls.
void set_execute(uint64_t microseconds) { execute_microseconds.store(microseconds); }

}  // namespace

std::optional<std::chrono::milliseconds> acl::wait_limit() {
    const uint64_t limit = wait_milliseconds.load(std::memory_order_relaxed);
    if (limit == 0) return std::nullopt;
    return std::chrono::milliseconds(limit);
}

std::optional<std::chrono::microseconds> acl::execute_limit() {
    const uint64_t limit = execute_microseconds.load(std::memory_order_relaxed);
    constexpr uint64_t kMost = uint64_t{1} << 52;  // as far as a clock reaches
    if (limit == 0 || limit > kMost) return std::nullopt;
    return std::chrono::microseconds(limit);
}

// Seconds; 0: for ever.
aclError aclrtSetOpWaitTimeout(uint32_t timeout) {
    return VNPU_API(timeout) { wait_milliseconds.store(uint64_t{timeout} * 1000); };
}

// Seconds.
aclError aclrtSetOpExecuteTimeOut(uint32_t timeout) {
    return VNPU_API(timeout) { set_execute(uint64_t{timeout} * 1'000'000); };
}

aclError aclrtSetOpExecuteTimeOutWithMs(uint32_t timeout) {
    return VNPU_API(timeout) { set_execute(uint64_t{timeout} * 1000); };
}

// Microseconds.
aclError aclrtSetOpExecuteTimeOutV2(uint64_t timeout, uint64_t *actualTimeout) {
    return VNPU_API(timeout, actualTimeout) {
        set_execute(timeout);
        required(actualTimeout, "actualTimeout") = timeout;
    };
}

aclError aclrtGetOpExecuteTimeout(uint32_t *const timeoutMs) {
    return VNPU_API(timeoutMs) {
        required(timeoutMs, "timeoutMs") = static_cast<uint32_t>(execute_microseconds.load() / 1000);
    };
}
