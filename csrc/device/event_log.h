// The event log: what a timeline tells, in a file that programs read. docs/timeline.md has the format; records that
// only a profiling session has are marked there. Nothing is formatted and no text is written but each name, once.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "device/timeline.h"

namespace vnpu {

struct Settings;

class EventLog final : public Observer {
  public:
    enum class Of { Process, Session };  // a session's has calls, marks and what collectives have waited for as well
    // Fault InvalidArgument where the file cannot be written. `subject` is what a message calls the log.
    EventLog(const std::string &path, const Settings &settings, Of of, std::string subject);
    ~EventLog() override;
    EventLog(const EventLog &) = delete;
    EventLog &operator=(const EventLog &) = delete;

    void task(const TaskSeen &task) noexcept override;
    void call(const CallSeen &call) noexcept override;
    void memory(const MemorySeen &memory) noexcept override;
    bool wants_calls() const noexcept override { return of_ == Of::Session; }

    // What a program has marked: kind 0 a moment, 1 the start of a range, 2 its end.
    struct Mark {
        uint32_t kind;
        uint64_t number;  // of the range
        std::string_view domain, message;
        uint64_t correlation;  // of the task that marks the stream; 0: none
    };
    void mark(const Mark &mark) noexcept;
    // A record whose body the writer of the session knows.
    void add(uint16_t type, std::span<const std::byte> body) noexcept;
    // Writes what is kept back. Whether all that was ever logged is in the file.
    bool flush() noexcept;

    struct Moment {  // where the clocks stand
        int64_t raw, monotonic, realtime, virtual_time;
        static Moment now() noexcept;
    };

  private:
    void write_kept() noexcept;  // under the lock
    std::byte *take(size_t bytes);
    uint32_t number(std::string_view name);
    uint32_t number_of(const char *name);

    const Of of_;
    const std::string subject_;
    std::mutex mutex_;
    int file_ = -1;
    bool whole_ = true;
    pid_t process_;
    std::vector<std::byte> kept_;
    std::unordered_map<std::string, uint32_t> names_;
    struct Known {
        const char *name;
        uint32_t number;
    };
    std::array<Known, 1024> known_{};  // by address: a name is looked up once, mostly
};

// VNPU_TIMELINE: "%p" in the path stands for the number of the process. Fault InvalidArgument.
void log_process(const char *path, const Settings &settings);

}  // namespace vnpu

// For programs that look up the name in libvnpu.so: what VNPU_TIMELINE has logged so far is in the file afterwards.
extern "C" void vnpuTimelineFlush() noexcept;
