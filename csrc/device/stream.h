// Streams: first in, first out, each on a worker thread of its own, started at the first task
// (torch_npu creates 32 streams at once and uses one or two).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "device/description.h"
#include "device/doorbell.h"
#include "device/fault.h"

namespace vnpu {

// One unit of work. Owns everything it needs: the caller is gone when it runs.
class Task {
  public:
    Task() = default;
    virtual ~Task() = default;
    Task(const Task &) = delete;
    Task &operator=(const Task &) = delete;

    virtual void run() = 0;  // on the worker; what it throws becomes the stream's failure
    // The operator's name, for messages, the trace and the event log: one pointer for one name, alive for ever.
    virtual const char *label() const noexcept = 0;
    std::string name() const { return label(); }
    // Whether run() computes on the device and nothing else: dry mode leaves it out.
    virtual bool kernel() const noexcept { return false; }
    // Adds what it works on; only asked where somebody wants to know (perform.h).
    virtual void describe(Description &) {}
    // What it counts as that run() has thrown a Fault of this kind, or KernelFailure for any other exception.
    virtual FaultKind failure(FaultKind thrown) noexcept { return thrown; }
    // Whether it runs on a stream that a failure has stopped: others wait for what it signals.
    virtual bool always() const noexcept { return false; }

    // Called by the worker when the task is over.
    virtual void retire() noexcept { delete this; }

    // Where somebody wants to know: which launch it was, when and by whom, on this machine's clock and the virtual one.
    struct Launch {
        uint64_t correlation = 0;
        int64_t at = 0, virtual_at = 0;
        uint32_t thread = 0;
        uint32_t external = 0;  // see external_correlation (observed.h)
    } launch;

  private:
    friend class Stream;
    std::atomic<Task *> next_{nullptr};
};

template <class Body>
class BodyTask final : public Task {
  public:
    BodyTask(const char *name, Body body, bool always, Work work)
        : name_(name), body_(std::move(body)), work_(work), always_(always) {}
    void run() override { body_(); }
    const char *label() const noexcept override { return name_; }
    bool always() const noexcept override { return always_; }
    void describe(Description &what) override { what.work = work_; }

  private:
    const char *name_;
    Body body_;
    const Work work_;
    const bool always_;
};

template <class Body>
std::unique_ptr<Task> make_task(const char *name, Body body, bool always = false, Work work = {}) {
    return std::make_unique<BodyTask<Body>>(name, std::move(body), always, work);
}

enum class OnFailure { Continue, Stop };  // ACL_CONTINUE_ON_FAILURE, ACL_STOP_ON_FAILURE

class Stream {
  public:
    Stream(int device, int id, int priority);
    ~Stream();  // runs what is queued, then joins the worker
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;

    // Who may run a task: the worker alone, or, where nothing is before it, as well the thread that submits it. Only
    // for tasks that wait for nothing: the thread may be the one that submits what they would wait for.
    enum class By { Worker, Either };
    // Fault InvalidHandle once the stream is closed; the task is not run then.
    void submit(std::unique_ptr<Task> task, By by = By::Worker);
    // Refuses every task from now on and waits for those submitted before: the stream's end, for which the last of the
    // calls that share it need not have returned. Not on its own worker.
    void close();
    bool closed() const noexcept { return closed_.load(); }
    // Fault InvalidArgument on the stream's own worker, where waiting for the stream would never end.
    void refuse_own_worker() const;
    // Whether every task submitted so far has run.
    bool idle() const noexcept;
    // Waits for the tasks submitted so far; then throws the first failure among the tasks since the last report, once
    // (for ever after OnFailure::Stop). Fault Timeout when the deadline passes first.
    void synchronize(Deadline deadline = std::nullopt);
    // Waits without reporting failures (memory is freed, the device is reset). False when the deadline passes first.
    bool drain(Deadline deadline = std::nullopt);

    // The failure that the next synchronize() will report, if there is one.
    std::optional<Fault> failure() const;

    void set_on_failure(OnFailure mode) noexcept { on_failure_.store(mode); }
    // The virtual time (clock.h) that its tasks have come to; moved on by the thread that runs them.
    int64_t virtual_time() const noexcept { return virtual_time_.load(std::memory_order_relaxed); }
    void reach(int64_t time) noexcept {
        if (time > virtual_time()) virtual_time_.store(time, std::memory_order_relaxed);
    }

    int device() const noexcept { return device_; }
    int id() const noexcept { return id_; }
    int priority() const noexcept { return priority_; }

  private:
    void start();
    void uncount() noexcept;
    [[noreturn]] void refuse();
    void work();
    bool run_here(Task &task) noexcept;
    void execute(Task &task) noexcept;
    void finish(Task &task) noexcept;
    Task *pop() noexcept;

    const int device_, id_, priority_;
    std::atomic<OnFailure> on_failure_{OnFailure::Continue};
    std::atomic<int64_t> virtual_time_{0};

    // Intrusive queue, many producers and one consumer (D. Vyukov): a push is one exchange.
    class Stub final : public Task {
        void run() override {}
        const char *label() const noexcept override { return "stub"; }
    } stub_;

    // Each side has cache lines of its own.
    static constexpr size_t kLine = 64;
    alignas(kLine) std::atomic<Task *> head_{&stub_};  // producers' end
    std::atomic<uint64_t> submitted_{0};
    alignas(kLine) Task *tail_{&stub_};  // worker's end
    std::atomic<uint64_t> completed_{0};
    alignas(kLine) Doorbell work_;
    alignas(kLine) Doorbell done_;
    alignas(kLine) std::atomic<bool> elsewhere_{false};  // a thread that submits runs a task itself
    alignas(kLine) std::atomic<bool> stop_{false};
    std::atomic<bool> started_{false};
    std::atomic<bool> closed_{false};
    std::mutex start_mutex_;
    std::thread worker_;
    std::atomic<bool> failed_{false};  // whether failure_ holds one, for a look without the lock
    mutable std::mutex failure_mutex_;
    std::optional<Fault> failure_;
};

// The stream of which the calling thread runs a task; on a worker, its stream at all times. Otherwise nullptr.
Stream *current_worker() noexcept;

// Whether the calling thread is a stream's worker: no thread of the program.
bool on_worker_thread() noexcept;

}  // namespace vnpu
