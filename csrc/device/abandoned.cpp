#include "device/abandoned.h"

#include <atomic>
#include <map>
#include <mutex>

#include "device/unseen.h"

namespace vnpu {
namespace {

struct Abandoned {
    std::atomic<int> count{0};  // for a look without the lock
    std::mutex mutex;
    std::map<int, Fault> causes;
};

Abandoned &abandoned() {
    static auto *all = new Abandoned;  // never destroyed: waited for until the very end of the process
    return *all;
}

}  // namespace

void abandon(int device, const Fault &cause) {
    const Fault told(cause.kind(),
                     fmt::format("Nothing is launched on virtual NPU {} any more since this call of the thread from "
                                 "which torch_npu launches has failed: {}",
                                 device, cause.what()));
    const std::lock_guard lock(abandoned().mutex);
    if (!abandoned().causes.emplace(device, told).second) return;
    abandoned().count.fetch_add(1);
    unseen(told);
}

void refuse_abandoned(int device) {
    if (abandoned().count.load() == 0) return;
    const std::lock_guard lock(abandoned().mutex);
    const auto cause = abandoned().causes.find(device);
    if (cause == abandoned().causes.end()) return;
    seen(cause->second);
    throw cause->second;
}

void forget_abandoned(int device) noexcept {
    const std::lock_guard lock(abandoned().mutex);
    abandoned().count.fetch_sub(static_cast<int>(abandoned().causes.erase(device)));
}

}  // namespace vnpu
