#include "opapi/aclnn/footprint.h"

#include <ATen/record_function.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "device/trace.h"
#include "opapi/aclnn/op.h"

namespace vnpu::opapi::footprint {
namespace {

struct Seen {
    uint64_t copies = 0;
    int64_t held = 0, most = 0;                // bytes
    std::unordered_map<void *, int64_t> live;  // what is freed later counts only if it was seen allocated
    std::set<std::string> functions;

    void begin() {
        copies = 0;
        held = most = 0;
        live.clear();
        functions.clear();
    }
};

thread_local Seen seen;
// The ATen function that the kernel has called, and how many deep it is in calls of its own.
thread_local std::string function_called;
thread_local int64_t depth = 0;

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction &function) {
    if (depth++ == 0) {
        const std::string_view name = function.name(), overload = function.overload_name();
        function_called = name.substr(name.find("::") == std::string_view::npos ? 0 : name.find("::") + 2);
        if (!overload.empty()) function_called += "." + std::string(overload);
    }
    // contiguous() reaches the dispatcher only where it copies, ours or ATen's doing.
    if (std::string_view(function.name()) == "aten::contiguous") ++seen.copies;
    return nullptr;
}

void leave(const at::RecordFunction &, at::ObserverContext *) { --depth; }

// What ATen's allocator of host memory tells.
class Allocations final : public c10::MemoryReportingInfoBase {
  public:
    void reportMemoryUsage(void *block, int64_t bytes, size_t, size_t, at::Device) override {
        if (bytes > 0) {
            seen.live[block] = bytes;
            seen.held += bytes;
            seen.most = std::max(seen.most, seen.held);
            seen.functions.insert(depth > 0 ? function_called : "empty");
        } else if (const auto known = seen.live.find(block); known != seen.live.end()) {
            seen.held -= known->second;
            seen.live.erase(known);
        }
    }
    bool memoryProfilingEnabled() const override { return true; }
};

}  // namespace

void watch() {
    seen.begin();
    [[maybe_unused]] thread_local const at::CallbackHandle handle =
        at::addThreadLocalCallback(at::RecordFunctionCallback(enter, leave));
    [[maybe_unused]] thread_local const bool pushed = [] {
        c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Allocations>());
        return true;
    }();
}

void report(const char *name, const std::string &arguments) noexcept {
    if (seen.copies > 0) Trace::call("contiguous", fmt::format("{}, tensors={}", name, seen.copies), "ok");
    if (seen.most > 0)
        Trace::call("scratch",
                    fmt::format("{}, bytes={}, in={}, {}", name, seen.most, fmt::join(seen.functions, "+"), arguments),
                    "ok");
    seen.begin();
}

}  // namespace vnpu::opapi::footprint
