// How a stream runs a task: as it is, or, where somebody wants to know, described, timed on the virtual clock, logged,
// and in dry mode without its kernel.
#pragma once

#include "device/observed.h"
#include "device/stream.h"

namespace vnpu {

struct Settings;

void observe(const Settings &settings);
void observe() noexcept;  // looks again: the timeline's observers have changed

// Keeps in the task when it was launched.
void note_launch(Task &task) noexcept;

void perform_observed(Task &task, Stream &stream);
inline void perform(Task &task, Stream &stream) {
    if (observing()) [[unlikely]]
        return perform_observed(task, stream);
    task.run();
}

}  // namespace vnpu
