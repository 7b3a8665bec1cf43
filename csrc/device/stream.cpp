#include "device/stream.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "device/abandoned.h"
#include "device/abort.h"
#include "device/capture.h"
#include "device/clock.h"
#include "device/failing.h"
#include "device/injection.h"
#include "device/perform.h"
#include "device/timeline.h"
#include "device/trace.h"
#include "device/unseen.h"

namespace vnpu {
namespace {

thread_local Stream *worker_of = nullptr;
thread_local bool is_worker = false;

// A worker that just ran a task spins this long for the next before it sleeps: waking costs several microseconds, the
// gap between two launches of an eager program about five.
constexpr auto kSpin = std::chrono::microseconds(60);

// Signals are the program's threads' business: Ctrl-C must interrupt what those wait for. Faults stay here.
void leave_signals_to_others() noexcept {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
}

}  // namespace

Stream *current_worker() noexcept { return worker_of; }

bool on_worker_thread() noexcept { return is_worker; }

Stream::Stream(int device, int id, int priority) : device_(device), id_(id), priority_(priority) {}

Stream::~Stream() {
    if (!worker_.joinable()) return;
    stop_.store(true);
    work_.ring();
    worker_.join();
}

void Stream::start() {
    const std::lock_guard lock(start_mutex_);
    if (started_.load(std::memory_order_relaxed)) return;
    worker_ = std::thread([this] { work(); });
    started_.store(true, std::memory_order_release);
}

// Waking the worker costs the submitting thread more than a small operator does, and a worker that spins for the next
// one takes a core from the program's threads where there are two.
bool Stream::run_here(Task &task) noexcept {
    if (worker_of != nullptr || elsewhere_.exchange(true, std::memory_order_seq_cst)) return false;
    // Counted from idle to one more while `elsewhere_` is set, the task is the first in line: what others submit from
    // now on is popped by a worker that sees `elsewhere_` and waits.
    uint64_t before = completed_.load(std::memory_order_seq_cst);
    bool first = submitted_.compare_exchange_strong(before, before + 1, std::memory_order_seq_cst);
    if (first && closed_.load(std::memory_order_seq_cst)) [[unlikely]] {
        uncount();
        first = false;
    }
    if (first) {
        worker_of = this;
        execute(task);
        worker_of = nullptr;
        finish(task);
    }
    elsewhere_.store(false, std::memory_order_seq_cst);
    // Whoever has submitted meanwhile rang for a worker that saw `elsewhere_` and waits for its end.
    if (!first || submitted_.load(std::memory_order_seq_cst) != before + 1) work_.ring();
    return first;
}

void Stream::submit(std::unique_ptr<Task> task, By by) {
    if (injection::armed.load(std::memory_order_relaxed)) [[unlikely]] {
        injection::at_launch();
        by = By::Worker;  // what hangs must not hang who launches it
    }
    const CallScope call(task->label());
    if (observing()) [[unlikely]]
        note_launch(*task);
    if (capturing()) [[unlikely]] {
        if (capture(*this, task)) return;
    } else if (by == By::Either && run_here(*task)) {
        task.release();  // finish() has retired it
        return;
    }
    if (!started_.load(std::memory_order_acquire)) [[unlikely]]
        start();
    // Before the push: a task never completes uncounted. And before the look: close() waits for the tasks that it does
    // not refuse.
    submitted_.fetch_add(1, std::memory_order_seq_cst);
    if (closed_.load(std::memory_order_seq_cst)) [[unlikely]]
        refuse();
    Task *raw = task.release();
    raw->next_.store(nullptr, std::memory_order_relaxed);
    Task *previous = head_.exchange(raw, std::memory_order_acq_rel);
    previous->next_.store(raw, std::memory_order_release);
    work_.ring();
}

void Stream::uncount() noexcept {
    submitted_.fetch_sub(1, std::memory_order_seq_cst);
    done_.ring();  // close() may have counted it
}

void Stream::refuse() {
    uncount();
    fail(FaultKind::InvalidHandle, "Stream {} of virtual NPU {} was destroyed while this call was using it.", id_,
         device_);
}

void Stream::close() {
    closed_.store(true, std::memory_order_seq_cst);
    abandon_capture(*this);
    drain();
}

// The next task, or nullptr when there is none (or its producer is between the two stores of submit()).
Task *Stream::pop() noexcept {
    Task *tail = tail_;
    Task *next = tail->next_.load(std::memory_order_acquire);
    if (tail == &stub_) {
        if (next == nullptr) return nullptr;
        tail_ = tail = next;
        next = next->next_.load(std::memory_order_acquire);
    }
    if (next != nullptr) {
        tail_ = next;
        return tail;
    }
    if (tail != head_.load(std::memory_order_acquire)) return nullptr;
    stub_.next_.store(nullptr, std::memory_order_relaxed);
    Task *previous = head_.exchange(&stub_, std::memory_order_acq_rel);
    previous->next_.store(&stub_, std::memory_order_release);
    next = tail->next_.load(std::memory_order_acquire);
    if (next == nullptr) return nullptr;
    tail_ = next;
    return tail;
}

void Stream::work() {
    worker_of = this;
    is_worker = true;
    leave_signals_to_others();
    pthread_setname_np(pthread_self(), fmt::format("vnpu{}/stream{}", device_, id_).substr(0, 15).c_str());
    for (;;) {
        Task *task = nullptr;
        // Looks at the queue alone, not at the counters: their cache line stays with the threads that submit.
        work_.wait([&] { return (task = pop()) != nullptr || stop_.load(std::memory_order_relaxed); }, std::nullopt,
                   kSpin);
        if (task == nullptr) {
            if (idle()) return;  // stop was asked for, and nothing is left
            continue;            // a task is being pushed
        }
        if (elsewhere_.load(std::memory_order_seq_cst)) [[unlikely]]
            work_.wait([&] { return !elsewhere_.load(std::memory_order_seq_cst); });
        execute(*task);
        finish(*task);
    }
}

void Stream::finish(Task &task) noexcept {
    task.retire();
    completed_.fetch_add(1, std::memory_order_seq_cst);
    done_.ring();
}

void Stream::execute(Task &task) noexcept {
    if (aborting(device_) && !task.always()) return;
    if (failed_.load() && on_failure_.load() == OnFailure::Stop && !task.always()) return;
    std::optional<Fault> failure;
    try {
        if (injection::armed.load(std::memory_order_relaxed)) [[unlikely]]
            injection::at_task(task);
        perform(task, *this);
    } catch (const Fault &fault) {
        failure.emplace(task.failure(fault.kind()), fmt::format("{}: {}", task.name(), fault.what()));
    } catch (const std::exception &error) {
        failure.emplace(
            task.failure(FaultKind::KernelFailure),
            fmt::format("{} failed on stream {} of virtual NPU {}: {}", task.name(), id_, device_, error.what()));
    }
    if (Trace::enabled()) Trace::task(*this, task.name(), failure ? failure->what() : "");
    if (failure && !aborting(device_)) {
        tell_failure({static_cast<uint32_t>(completed_.load()), static_cast<uint32_t>(id_),
                      static_cast<uint32_t>(gettid()), static_cast<uint32_t>(device_), failure->kind()});
        const std::lock_guard lock(failure_mutex_);
        if (!failure_) {
            unseen(*failure);
            failure_ = std::move(failure);
        }
        failed_.store(true);
    }
}

bool Stream::idle() const noexcept {
    return submitted_.load(std::memory_order_seq_cst) == completed_.load(std::memory_order_seq_cst);
}

void Stream::refuse_own_worker() const {
    if (worker_of == this)
        fail(FaultKind::InvalidArgument,
             "A host function on stream {} of virtual NPU {} waits for its own stream, which would never end.", id_,
             device_);
}

bool Stream::drain(Deadline deadline) {
    refuse_own_worker();
    const uint64_t goal = submitted_.load(std::memory_order_seq_cst);
    // Or idle: a task that is refused was counted for a moment.
    return done_.wait([&] { return completed_.load(std::memory_order_seq_cst) >= goal || idle(); }, deadline);
}

void Stream::synchronize(Deadline deadline) {
    const uint64_t before = aborts(device_);
    if (injection::armed.load(std::memory_order_relaxed)) [[unlikely]]
        injection::at_wait();
    if (!drain(deadline)) {
        injection::gave_up();
        fail(FaultKind::Timeout, "Stream {} of virtual NPU {} did not finish its tasks within the time-out.", id_,
             device_);
    }
    if (aborts(device_) != before) fail_aborted(device_);
    clocks::waited(virtual_time());
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) return refuse_abandoned(device_);
    const Fault failure = *failure_;
    seen(failure);
    if (on_failure_.load() == OnFailure::Continue) {
        failure_.reset();
        failed_.store(false);
    }
    throw failure;
}

std::optional<Fault> Stream::failure() const {
    if (!failed_.load()) return std::nullopt;
    const std::lock_guard lock(failure_mutex_);
    return failure_;
}

}  // namespace vnpu
