// Events: a record is a task on a stream; a wait is a task on another that blocks until the record ran.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>

#include "device/doorbell.h"
#include "device/stream.h"

namespace vnpu {

class Event {
  public:
    void record(Stream &stream);
    // Later tasks of `stream` start only after the latest record() so far has run; it fails with EventTimeout where
    // that takes longer than `limit`. Returns at once.
    void hold(Stream &stream, std::optional<std::chrono::milliseconds> limit = std::nullopt) const;
    // Whether every hold() so far has let its stream go on.
    bool holds_done() const noexcept { return state_->holding.load() == 0; }
    // Whether the latest record() has run; true when there was none.
    bool done() const noexcept;
    bool recorded() const noexcept { return state_->requested.load() > state_->forgotten.load(); }
    // Waits for the latest record(); then throws the failure that its stream had come to, if any. Fault EventTimeout.
    void synchronize(Deadline deadline = std::nullopt) const;
    // Forgets the records so far, as part of `stream`; who waits for one of them goes on waiting for it.
    void reset(Stream &stream);
    // When the latest record() ran, on the host's clock. Fault NotReady before that.
    Clock::time_point time() const;
    uint64_t id() const noexcept { return id_; }

  private:
    struct State {  // outlives the event: tasks in flight hold it
        // Records are numbered from 1 for as long as the event lives. `forgotten`: the last before the latest reset.
        std::atomic<uint64_t> requested{0}, completed{0}, forgotten{0};
        std::atomic<Clock::rep> time{0};
        std::atomic<uint32_t> holding{0};
        mutable Doorbell bell;
        std::mutex failure_mutex;
        std::optional<Fault> failure;  // the stream's, when the latest record() ran
    };
    static uint64_t next_id() noexcept;
    std::shared_ptr<State> state_ = std::make_shared<State>();
    uint64_t id_ = next_id();
};

}  // namespace vnpu
