// The callback that CANN calls for every task that fails on a device, and what it can ask of the failure.
#include <acl/acl_rt.h>

#include <atomic>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "ascendcl/error_code.h"
#include "device/failing.h"

using namespace vnpu;

struct rtExceptionInfo {
    FailedTask failed;
    aclError code;
};

namespace {

std::atomic<aclrtExceptionInfoCallback> callback{nullptr};

void tell(const FailedTask &failed) {
    rtExceptionInfo info{failed, acl::code_of(failed.kind)};
    if (const auto told = callback.load()) told(&info);
}

// CANN's answer where there is no information.
constexpr uint32_t kNothing = 0xffffffff;

}  // namespace

aclError aclrtSetExceptionInfoCallback(aclrtExceptionInfoCallback wanted) {
    return VNPU_API(wanted) {
        callback.store(wanted);
        watch_failures(wanted == nullptr ? nullptr : tell);
    };
}

uint32_t aclrtGetTaskIdFromExceptionInfo(const aclrtExceptionInfo *info) {
    return info == nullptr ? kNothing : info->failed.task;
}
uint32_t aclrtGetStreamIdFromExceptionInfo(const aclrtExceptionInfo *info) {
    return info == nullptr ? kNothing : info->failed.stream;
}
uint32_t aclrtGetThreadIdFromExceptionInfo(const aclrtExceptionInfo *info) {
    return info == nullptr ? kNothing : info->failed.thread;
}
uint32_t aclrtGetDeviceIdFromExceptionInfo(const aclrtExceptionInfo *info) {
    return info == nullptr ? kNothing : info->failed.device;
}
uint32_t aclrtGetErrorCodeFromExceptionInfo(const aclrtExceptionInfo *info) {
    return info == nullptr ? kNothing : static_cast<uint32_t>(info->code);
}
