#include "device/failing.h"

#include <atomic>

namespace vnpu {
namespace {
std::atomic<FailureWatcher> watcher{nullptr};
}

void watch_failures(FailureWatcher wanted) noexcept { watcher.store(wanted); }

void tell_failure(const FailedTask &failed) {
    if (const FailureWatcher told = watcher.load()) told(failed);
}

}  // namespace vnpu
