#include "opapi/aclnn/footprint.h"

#include <ATen/record_function.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <forward_list>
#include <mutex>
#include <set>
#include <unordered_map>

#include "device/trace.h"
#include "opapi/aclnn/op.h"

namespace vnpu::opapi::footprint {
namespace {

// Of one thread. Never destroyed: a thread's own variables go before the process makes its last calls.
struct Seen {
    // The ATen function that the kernel has called, and how many deep it is in calls of its own.
    std::string function_called;
    int64_t depth = 0;
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

Seen &seen() {
    static auto *const all = new std::forward_list<Seen>;
    static std::mutex mutex;
    thread_local Seen *mine = nullptr;
    if (mine == nullptr) {
        const std::lock_guard lock(mutex);
        mine = &all->emplace_front();
    }
    return *mine;
}

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction &function) {
    Seen &mine = seen();
    if (mine.depth++ == 0) {
        const std::string_view name = function.name(), overload = function.overload_name();
        mine.function_called = name.substr(name.find("::") == std::string_view::npos ? 0 : name.find("::") + 2);
        if (!overload.empty()) mine.function_called += "." + std::string(overload);
    }
    // contiguous() reaches the dispatcher only where it copies, ours or ATen's doing.
    if (std::string_view(function.name()) == "aten::contiguous") ++mine.copies;
    return nullptr;
}

void leave(const at::RecordFunction &, at::ObserverContext *) { --seen().depth; }

// What ATen's allocator of host memory tells.
class Allocations final : public c10::MemoryReportingInfoBase {
  public:
    void reportMemoryUsage(void *block, int64_t bytes, size_t, size_t, at::Device) override {
        Seen &mine = seen();
        if (bytes > 0) {
            mine.live[block] = bytes;
            mine.held += bytes;
            mine.most = std::max(mine.most, mine.held);
            mine.functions.insert(mine.depth > 0 ? mine.function_called : "empty");
        } else if (const auto known = mine.live.find(block); known != mine.live.end()) {
            mine.held -= known->second;
            mine.live.erase(known);
        }
    }
    bool memoryProfilingEnabled() const override { return true; }
};

}  // namespace

void watch() {
    seen().begin();
    [[maybe_unused]] thread_local const at::CallbackHandle handle =
        at::addThreadLocalCallback(at::RecordFunctionCallback(enter, leave));
    [[maybe_unused]] thread_local const bool pushed = [] {
        c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Allocations>());
        return true;
    }();
}

void report(const char *name, const std::string &arguments) noexcept {
    Seen &mine = seen();
    if (mine.copies > 0) Trace::call("contiguous", fmt::format("{}, tensors={}", name, mine.copies), "ok");
    if (mine.most > 0)
        Trace::call("scratch",
                    fmt::format("{}, bytes={}, in={}, {}", name, mine.most, fmt::join(mine.functions, "+"), arguments),
                    "ok");
    mine.begin();
}

}  // namespace vnpu::opapi::footprint
