// Who wants to know of every task that fails, when it fails: a program that waits learns of the first.
#pragma once

#include <cstdint>

#include "device/fault.h"

namespace vnpu {

// A task of a stream that has failed. `task` is how manieth of its stream it was.
struct FailedTask {
    uint32_t task, stream, thread, device;
    FaultKind kind;
};

// Called on the thread that ran the task; nullptr ends it.
using FailureWatcher = void (*)(const FailedTask &);
void watch_failures(FailureWatcher watcher) noexcept;
void tell_failure(const FailedTask &failed);

}  // namespace vnpu
