// Aborting what a device has to do: queued tasks are dropped, tasks that wait for something end, kernels that run go on
// to their end. Later tasks run as ever.
#pragma once

#include <cstdint>

#include "device/doorbell.h"

namespace vnpu {

// Returns when nothing of what was queued is left; Fault Timeout when the deadline passes first.
void abort_tasks(int device, Deadline deadline);
// Whether abort_tasks() is under way.
bool aborting(int device) noexcept;
// How often it was called: who waits for the device sees by it that what he waits for was dropped.
uint64_t aborts(int device) noexcept;
// For tasks that wait for something, now and then: throws while the tasks of the worker's device are being aborted.
void refuse_aborted();
[[noreturn]] void fail_aborted(int device);

}  // namespace vnpu

// For programs that look up the name in libvnpu.so: aborts().
extern "C" uint64_t vnpuAborts(int device) noexcept;
