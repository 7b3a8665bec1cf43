// Events: a record is a task on a stream; a wait is a task on another that blocks until the record ran.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>

#include "device/shared_marks.h"
#include "device/stream.h"

namespace vnpu {

// What an event means to a capture: an edge between its streams, or a flag outside of it, which a replay waits for and
// clears when it comes to that (ACL_EVENT_EXTERNAL).
enum class InCapture { Edge, Flag };

class Event {
  public:
    Event() : Event(nullptr) {}
    explicit Event(InCapture kind) : Event(nullptr) { flag_ = kind == InCapture::Flag; }
    // One whose marks other processes see and may have made.
    explicit Event(std::shared_ptr<EventMarks> shared) : state_(std::make_shared<State>(std::move(shared))) {}
    void record(Stream &stream);
    // Later tasks of `stream` start only after the latest record() so far has run; it fails with EventTimeout where
    // that takes longer than `limit`. Returns at once.
    void hold(Stream &stream, std::optional<std::chrono::milliseconds> limit = std::nullopt) const;
    // Whether every hold() so far has let its stream go on.
    bool holds_done() const noexcept { return state_->holding.load() == 0; }
    // Whether the latest record() has run; true when there was none.
    bool done() const noexcept;
    bool recorded() const noexcept { return marks().requested.load() > marks().forgotten.load(); }
    // Waits for the latest record(); then throws the failure that its stream had come to, if any. Fault EventTimeout.
    void synchronize(Deadline deadline = std::nullopt) const;
    // Forgets the records so far, as part of `stream`; who waits for one of them goes on waiting for it.
    void reset(Stream &stream);
    // When the latest record() ran, on the host's clock or, with VNPU_TIME=model, its stream's virtual one. Fault
    // NotReady before that.
    Clock::time_point time() const;
    uint64_t id() const noexcept { return id_; }
    bool between_processes() const noexcept { return state_->shared != nullptr; }
    // Where another process finds it. Fault InvalidArgument unless it was made for that.
    MarksAddress address() const { return address_of(marks()); }
    // The event at the address. Fault InvalidArgument.
    static std::shared_ptr<Event> open(const MarksAddress &address);

  private:
    struct State {  // outlives the event: tasks in flight hold it
        explicit State(std::shared_ptr<EventMarks> others) : shared(std::move(others)), marks(shared ? *shared : own) {}
        EventMarks own;
        const std::shared_ptr<EventMarks> shared;
        EventMarks &marks;
        std::atomic<uint32_t> holding{0};
        std::mutex failure_mutex;
        std::optional<Fault> failure;  // the stream's, when the latest record() ran
    };
    EventMarks &marks() const noexcept { return state_->marks; }
    static bool runs(const State &state, uint64_t record, Clock::time_point until);
    static uint64_t next_id() noexcept;
    static bool set(const EventMarks &marks);
    static void reached(State &state);
    static void ran(State &state, uint64_t record);
    void hold_until_set(Stream &stream, std::optional<std::chrono::milliseconds> limit) const;
    bool flag_ = false;
    std::shared_ptr<State> state_;
    uint64_t id_ = next_id();
};

}  // namespace vnpu
