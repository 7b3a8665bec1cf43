// VNPU_TIMELINE=file: what every stream did, for programs to read: the profilers, `torchport predict`. Binary, one
// record per task; docs/timeline.md has the format. Nothing is formatted and no text is written but each name, once.
#pragma once

#include <atomic>
#include <cstdint>

#include "device/description.h"

namespace vnpu {

struct TaskTimes {
    int64_t queued, began, ended;                        // this machine's monotonic clock, ns
    int64_t virtual_queued, virtual_began, virtual_end;  // the model's (clock.h), ns
};

struct Settings;

class Timeline {
  public:
    static bool enabled() noexcept { return file_.load(std::memory_order_relaxed) >= 0; }
    // Starts the log; "%p" in the path stands for the number of the process. Fault InvalidArgument where it cannot be
    // written.
    static void open(const char *path, const Settings &settings);
    // `name` must be the same pointer for the same name, and live as long as the process.
    static void task(const char *name, int device, int stream, uint64_t correlation, uint32_t thread, bool failed,
                     const TaskTimes &times, const Description &what) noexcept;
    // Memory of a device taken (bytes > 0) or given back; `used` is what is in use afterwards.
    static void memory(int device, const void *address, int64_t bytes, uint64_t used) noexcept;
    // Writes what is kept back.
    static void flush() noexcept;

  private:
    static void write_kept() noexcept;  // under the log's lock
    static std::atomic<int> file_;      // not inline: each library would have its own (hidden visibility)
};

int64_t monotonic() noexcept;  // this machine's clock, ns

}  // namespace vnpu

// For programs that look up the name in libvnpu.so: what was logged so far is in the file afterwards.
extern "C" void vnpuTimelineFlush() noexcept;
