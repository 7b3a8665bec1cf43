// Capture: a graph keeps the tasks of its streams instead of running them, and runs them all when it is executed.
//
// A graph is captured on one stream. Another joins it by waiting for an event that was recorded in the capture; the
// tasks stand in the order in which the program submitted them, which respects every such dependency, and run in that
// order on the stream that executes the graph. Events recorded in a capture therefore stand for nothing outside of it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/stream.h"

namespace vnpu {

class Event;

// Tasks of one captured stream, one behind another, which may be replaced between replays: by as many of the same
// names, for the places of a graph are fixed.
struct TaskGroup {
    std::weak_ptr<class Graph> graph;
    std::vector<size_t> places{};
};

class Graph : public std::enable_shared_from_this<Graph> {
  public:
    Graph();
    ~Graph();
    Graph(const Graph &) = delete;
    Graph &operator=(const Graph &) = delete;

    uint32_t id() const noexcept { return id_; }
    size_t size() const noexcept { return tasks_.size(); }
    // A task of that stream takes part in the capture, under the capture's lock.
    void keep(int stream, std::unique_ptr<Task> task);
    // Later replays run these in the group's places; one that runs now is waited for. Fault InvalidArgument where they
    // are not as many, or have other names.
    void replace(const TaskGroup &group, std::vector<std::unique_ptr<Task>> &tasks);
    struct Listed {
        int stream;
        std::string name;
    };
    // The tasks in their order. Fault InvalidArgument before the capture has ended.
    std::vector<Listed> list() const;
    // Its capture has ended: nothing is added any more.
    void complete() noexcept { complete_.store(true, std::memory_order_release); }
    // Runs all tasks, in order, as one task of `stream`. Stops at the first that fails, under its name. Fault
    // InvalidArgument before the capture has ended: a graph would become part of itself.
    void execute(Stream &stream);

  private:
    struct Kept {
        int stream;
        Task *task;
    };
    void check_complete() const;
    const uint32_t id_;
    std::atomic<bool> complete_{false};
    std::mutex running_;  // a task may be run by one worker at a time
    std::vector<Kept> tasks_;
};

// Whether any stream is captured now: a look without a lock, for every submitted task.
bool capturing() noexcept;
// The graph that captures the stream; null when none does.
std::shared_ptr<Graph> captured_by(const Stream &stream);
// Starts a capture. Fault InvalidArgument when the stream is captured already.
void begin_capture(Stream &stream);
// Ends the capture that began on this stream, for all streams that joined it. Fault InvalidArgument when none did.
std::shared_ptr<Graph> end_capture(Stream &stream);

// The tasks that the captured stream is given from now on are a group. Fault InvalidArgument unless it is captured and
// has no group begun.
void begin_group(const Stream &stream);
// Ends it. Fault InvalidArgument where none has begun.
std::shared_ptr<TaskGroup> end_group(const Stream &stream);
// The tasks that the stream is given from now on do not run: they are to replace the group's. Fault InvalidArgument
// while the stream is captured or updates a group already, or when the group's graph has been destroyed.
void begin_update(const Stream &stream, std::shared_ptr<TaskGroup> group);
// Replaces them. Fault InvalidArgument where none has begun, and as Graph::replace.
void end_update(const Stream &stream);

// --- what streams and events ask

// Keeps the task for the graph that captures or is updated by the stream; false, and the task is left alone, when there
// is none.
bool capture(Stream &stream, std::unique_ptr<Task> &task);
// An event is recorded on a stream: whether that belongs to a capture.
bool capture_record(uint64_t event, Stream &stream);
// A stream is destroyed: it takes no more part in a capture, and one that began on it is over.
void abandon_capture(const Stream &stream);
// A stream waits for an event: whether that makes it part of the event's capture.
bool capture_wait(uint64_t event, Stream &stream);

}  // namespace vnpu
