// How a stream runs a task: as it is, or, where somebody wants to know, described, timed on the virtual clock, logged,
// and in dry mode without its kernel.
#pragma once

#include "device/stream.h"

namespace vnpu {

struct Settings;

namespace detail {
extern std::atomic<bool> observing;
}

// Whether somebody wants to know: dry mode, virtual times or the event log is on. Nothing below costs anything else.
inline bool observing() noexcept { return detail::observing.load(std::memory_order_relaxed); }
void observe(const Settings &settings);

// Keeps in the task when it was launched.
void note_launch(Task &task) noexcept;

void perform_observed(Task &task, Stream &stream);
inline void perform(Task &task, Stream &stream) {
    if (observing()) [[unlikely]]
        return perform_observed(task, stream);
    task.run();
}

}  // namespace vnpu
