#include "device/event.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "device/abort.h"
#include "device/capture.h"
#include "device/clock.h"
#include "device/machine.h"
#include "device/perform.h"
#include "device/unseen.h"

namespace vnpu {
namespace {

// A stream that waits for an event looks this often whether its tasks are being aborted.
constexpr auto kLook = std::chrono::milliseconds(50);

// An event that is recorded on one stream and then on another may see its second record run first, and who waits for
// the first must go on waiting. Here are the records that ran before an earlier one of their event did; `completed`
// counts those before which all have run.
class Ahead {
  public:
    void ran(const void *event, uint64_t record, std::atomic<uint64_t> &completed) {
        const std::lock_guard lock(mutex_);
        if (record > completed.load() + 1) {
            early_.emplace(event, record);
            count_.store(early_.size());
            return;
        }
        completed.store(std::max(record, completed.load()));
        while (early_.erase({event, completed.load() + 1}) != 0) completed.fetch_add(1);
        count_.store(early_.size());
    }
    bool has(const void *event, uint64_t record) {
        if (count_.load() == 0) return false;
        const std::lock_guard lock(mutex_);
        return early_.contains({event, record});
    }

  private:
    std::mutex mutex_;
    std::set<std::pair<const void *, uint64_t>> early_;
    std::atomic<size_t> count_{0};
};

Ahead &ahead() {
    static auto *records = new Ahead;  // never destroyed: workers run until the very end of the process
    return *records;
}

bool has_run(const EventMarks &marks, uint64_t record) {
    return marks.completed.load() >= record || ahead().has(&marks, record) || marks.completed.load() >= record;
}

// On a stream's worker: asks `reached(until)`, which may take until then, again and again. Fault EventTimeout where it
// has not come true within the limit, and that of an abort while the device's tasks are aborted.
template <class Reached>
void wait(uint64_t event, std::optional<std::chrono::milliseconds> limit, Reached reached) {
    const Deadline deadline = limit ? Deadline(Clock::now() + *limit) : std::nullopt;
    for (bool late = false; !late;) {
        if (aborting(current_worker()->device())) fail_aborted(current_worker()->device());
        const Clock::time_point look = Clock::now() + kLook;
        late = deadline && *deadline <= look;
        if (reached(late ? *deadline : look)) return;
    }
    fail(FaultKind::EventTimeout, "Event {} was not reached within {} ms.", event, limit->count());
}

}  // namespace

std::shared_ptr<Event> Event::open(const MarksAddress &address) { return std::make_shared<Event>(open_marks(address)); }

// Whether the record has run by then. Fault InvalidHandle when another process was to do it and has ended.
bool Event::runs(const State &state, uint64_t record, Clock::time_point until) {
    if (state.marks.bell.wait([&] { return has_run(state.marks, record); }, until)) return true;
    const pid_t recorder = state.marks.recorder.load();
    if (state.shared && recorder != getpid() && kill(recorder, 0) != 0 && errno == ESRCH)
        fail(FaultKind::InvalidHandle, "Process {} has ended before it came to the event that it records.", recorder);
    return false;
}

uint64_t Event::next_id() noexcept {
    static std::atomic<uint64_t> last{0};
    return ++last;
}

// A stream's worker has come to a record.
void Event::reached(State &state) {
    const Stream &here = *current_worker();
    state.marks.virtual_time.store(here.virtual_time());
    const bool model = Machine::instance().settings().model_time;
    state.marks.time.store(model ? std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::nanoseconds(std::max<int64_t>(here.virtual_time(), 1)))
                                       .count()
                                 : Clock::now().time_since_epoch().count());
    const std::lock_guard lock(state.failure_mutex);
    state.failure = here.failure();
}

// A record of one process may run before an earlier one of another. Who waits for that goes on then: between processes
// there is one flag, and no place for what ran early.
void Event::ran(State &state, uint64_t record) {
    std::atomic<uint64_t> &completed = state.marks.completed;
    if (!state.shared) return ahead().ran(&state.marks, record, completed);
    uint64_t before = completed.load();
    while (before < record && !completed.compare_exchange_weak(before, record)) {
    }
}

void Event::record(Stream &stream) {
    if (state_->shared) marks().recorder.store(getpid());
    if (flag_) {
        stream.submit(make_task(
            "EventRecord",
            [state = state_] {
                const uint64_t record = state->marks.requested.fetch_add(1) + 1;
                reached(*state);
                ran(*state, record);
                state->marks.bell.ring();
            },
            true));
        return;
    }
    if (capture_record(id_, stream)) return;
    const uint64_t generation = marks().requested.fetch_add(1) + 1;
    const auto over = [state = state_, generation] {
        ran(*state, generation);
        state->marks.bell.ring();
    };
    const auto record = [state = state_, over] {
        reached(*state);
        over();
    };
    try {
        stream.submit(make_task("EventRecord", record, true), Stream::By::Either);
    } catch (const Fault &) {
        over();  // nobody must wait for a record that will never run; the caller has its failure, the event keeps its
                 // own
        throw;
    }
}

// Whether it was recorded after the last reset.
bool Event::set(const EventMarks &marks) {
    const uint64_t record = marks.requested.load();
    return record > marks.forgotten.load() && has_run(marks, record);
}

// A task that looks when it runs: in a graph, in each replay.
void Event::hold_until_set(Stream &stream, std::optional<std::chrono::milliseconds> limit) const {
    stream.submit(make_task(
        "EventWait",
        [state = state_, limit, id = id_] {
            wait(id, limit, [&](Clock::time_point look) {
                return state->marks.bell.wait([&] { return set(state->marks); }, look);
            });
            current_worker()->reach(state->marks.virtual_time.load());
        },
        true));
}

void Event::hold(Stream &stream, std::optional<std::chrono::milliseconds> limit) const {
    if (flag_) return hold_until_set(stream, limit);
    if (capture_wait(id_, stream)) return;
    const uint64_t generation = marks().requested.load();
    // On the virtual clock there is something to wait for even then.
    if (generation <= marks().forgotten.load() || (!observing() && has_run(marks(), generation))) return;
    state_->holding.fetch_add(1);
    const auto held_back = [state = state_, generation, limit, id = id_] {
        const std::unique_ptr<State, void (*)(State *)> held(state.get(), [](State *s) { s->holding.fetch_sub(1); });
        wait(id, limit, [&](Clock::time_point look) { return runs(*state, generation, look); });
        current_worker()->reach(state->marks.virtual_time.load());
    };
    try {
        stream.submit(make_task("EventWait", held_back, true));
    } catch (...) {
        state_->holding.fetch_sub(1);
        throw;
    }
}

bool Event::done() const noexcept {
    const uint64_t generation = marks().requested.load();
    return generation <= marks().forgotten.load() || has_run(marks(), generation);
}

void Event::synchronize(Deadline deadline) const {
    const uint64_t generation = marks().requested.load();
    if (generation <= marks().forgotten.load()) return;
    bool ran = false;
    if (!state_->shared) {
        ran = marks().bell.wait([&] { return has_run(marks(), generation); }, deadline);
    } else {
        Clock::time_point look{};
        while (!ran && (!deadline || look < *deadline)) {
            look = std::min(Clock::now() + kLook, deadline.value_or(Clock::time_point::max()));
            ran = runs(*state_, generation, look);
        }
    }
    if (!ran) fail(FaultKind::EventTimeout, "Event {} was not reached within the time-out.", id_);
    if (observing()) clocks::waited(marks().virtual_time.load());
    const std::lock_guard lock(state_->failure_mutex);
    if (!state_->failure) return;
    seen(*state_->failure);
    throw *state_->failure;
}

void Event::reset(Stream &stream) {
    const auto forget = [state = state_, flag = flag_, before_now = marks().requested.load()] {
        const uint64_t generation = flag ? state->marks.requested.load() : before_now;
        std::atomic<uint64_t> &forgotten = state->marks.forgotten;
        uint64_t before = forgotten.load();
        while (before < generation && !forgotten.compare_exchange_weak(before, generation)) {
        }
    };
    stream.submit(make_task("EventReset", forget, true));
}

Clock::time_point Event::time() const {
    const Clock::rep reached = marks().time.load();
    if (!recorded() || !done() || reached == 0)
        fail(FaultKind::NotReady, "Event {} has no time yet: {}.", id_,
             recorded() && !done() ? "its stream has not reached it" : "it was never recorded");
    return Clock::time_point(Clock::duration(reached));
}

}  // namespace vnpu
