// What every stream did, told to whom wants to know: the event log of VNPU_TIMELINE, the sessions of the profilers.
// Nobody asks most of the time; then a task costs a look at a flag or two.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "device/description.h"
#include "device/observed.h"

namespace vnpu {

struct TaskTimes {
    int64_t queued, began, ended;                        // this machine's monotonic clock, ns
    int64_t virtual_queued, virtual_began, virtual_end;  // the model's (clock.h), ns
};

// What a collective is, besides a task.
struct CollectiveSeen {
    const std::string *group = nullptr;  // the name of its communicator; null: the task is no collective
    uint64_t sequence = 0, count = 0;    // its number there; elements
    int rank = 0, type = -1, peer = -1;  // of this process; HcclDataType; whom a message is to or from
};

// A task that a stream has run.
struct TaskSeen {
    const char *name;  // one pointer for one name, alive as long as the process
    int device, stream;
    uint32_t thread;
    bool failed;
    uint64_t correlation;
    uint32_t external;      // of the operation of a framework that it belongs to (see external_correlation); 0: none
    int64_t virtual_ready;  // when its stream had come to it; what it has waited for since is another's
    TaskTimes times;
    const Description &what;
    const CollectiveSeen &collective;
};

// What the program has asked of the device: a task launched, a wait, memory. `began` and `ended` on
// CLOCK_MONOTONIC_RAW, as torch_npu's profiler has it.
struct CallSeen {
    const char *name;
    uint64_t correlation;  // of the task that it has launched; 0: none
    uint32_t thread;
    int64_t began, ended;
    int64_t virtual_began, virtual_ended;  // the program's virtual clock
};

// Memory of a device taken from the driver (bytes > 0) or given back; `used` is what is in use afterwards.
struct MemorySeen {
    int device;
    const void *address;
    int64_t bytes;
    uint64_t used;
};

// Called by any thread, several at a time.
class Observer {
  public:
    virtual ~Observer() = default;
    virtual void task(const TaskSeen &) noexcept {}
    virtual void call(const CallSeen &) noexcept {}
    virtual void memory(const MemorySeen &) noexcept {}
    virtual bool wants_calls() const noexcept { return false; }
};

class Timeline {
  public:
    // Whether anybody wants to know.
    static bool enabled() noexcept { return any_.load(std::memory_order_relaxed); }
    // From here on until remove() has returned, the observer is told. Fault InvalidArgument where there are too many.
    static void add(Observer &observer);
    static void remove(Observer &observer) noexcept;

    static void task(const TaskSeen &task) noexcept;
    static void call(const CallSeen &call) noexcept;
    static void memory(const MemorySeen &memory) noexcept;

  private:
    static std::atomic<bool> any_;  // not inline: each library would have its own (hidden visibility)
};

uint32_t thread_number() noexcept;
// Says of the task that is being described, by its describe(), that it is a collective.
void describe_collective(const CollectiveSeen &collective) noexcept;
CollectiveSeen described_collective() noexcept;  // what the calling thread has said, which is forgotten

uint64_t last_launched() noexcept;  // by the calling thread
void note_launched(uint64_t correlation) noexcept;

int64_t monotonic() noexcept;      // this machine's clock, ns
int64_t monotonic_raw() noexcept;  // the one that nothing adjusts
int64_t realtime() noexcept;       // since 1970

// Tells of a call of the program from its construction to its destruction; of what it calls itself nothing is told.
class CallScope {
  public:
    explicit CallScope(const char *name) noexcept : name_(observing() ? name : nullptr) {
        if (name_ != nullptr) [[unlikely]]
            begin();
    }
    ~CallScope() {
        if (name_ != nullptr) [[unlikely]]
            end();
    }
    CallScope(const CallScope &) = delete;
    CallScope &operator=(const CallScope &) = delete;

  private:
    void begin() noexcept;
    void end() noexcept;
    const char *const name_;
    int64_t began_, virtual_began_;
};

}  // namespace vnpu
