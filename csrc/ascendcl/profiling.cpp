// The hooks by which kernels that are compiled on the user's machine report to CANN's profiler. None runs on the
// virtual NPU, whose own tasks the profiler knows (profiler/session.h), so a registered callback is never called and a
// report is refused.
#include <profiling/aprof_pub.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"

using namespace vnpu;

namespace {

std::mutex mutex;
std::unordered_map<uint32_t, ProfCommandHandle> callbacks;  // by module; called when a session starts or stops

[[noreturn]] void refuse() {
    fail(FaultKind::Unsupported, "The virtual NPU profiles its own tasks and takes no reports of others.");
}

}  // namespace

int32_t MsprofRegisterCallback(uint32_t moduleId, ProfCommandHandle handle) {
    return VNPU_API(moduleId, handle) {
        acl::not_null(reinterpret_cast<void *>(handle), "handle");
        const std::lock_guard lock(mutex);
        callbacks[moduleId] = handle;
    };
}

int32_t MsprofReportApi(uint32_t nonPersistantFlag, const struct MsprofApi *api) {
    return VNPU_API(nonPersistantFlag, api) { refuse(); };
}

int32_t MsprofReportCompactInfo(uint32_t nonPersistantFlag, const VOID_PTR data, uint32_t length) {
    return VNPU_API(nonPersistantFlag, data, length) { refuse(); };
}

int32_t MsprofReportAdditionalInfo(uint32_t nonPersistantFlag, const VOID_PTR data, uint32_t length) {
    return VNPU_API(nonPersistantFlag, data, length) { refuse(); };
}

// A number for a name, the same throughout the process.
uint64_t MsprofGetHashId(const char *hashInfo, size_t length) {
    return VNPU_API(length) {
        acl::not_null(hashInfo, "hashInfo");
        return static_cast<uint64_t>(std::hash<std::string_view>()({hashInfo, length}));
    };
}

// Nanoseconds on the host's steady clock.
uint64_t MsprofSysCycleTime() {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count());
}
