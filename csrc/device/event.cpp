#include "device/event.h"

#include <algorithm>
#include <set>

#include "device/abort.h"
#include "device/capture.h"
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

template <class State>
bool has_run(State &state, uint64_t record) {
    return state.completed.load() >= record || ahead().has(&state, record) || state.completed.load() >= record;
}

}  // namespace

uint64_t Event::next_id() noexcept {
    static std::atomic<uint64_t> last{0};
    return ++last;
}

void Event::record(Stream &stream) {
    if (capture_record(id_, stream)) return;
    const uint64_t generation = state_->requested.fetch_add(1) + 1;
    const auto reached = [state = state_, generation](std::optional<Fault> failure) {
        state->time.store(Clock::now().time_since_epoch().count());
        {
            const std::lock_guard lock(state->failure_mutex);
            state->failure = std::move(failure);
        }
        ahead().ran(state.get(), generation, state->completed);
        state->bell.ring();
    };
    try {
        stream.submit(
            make_task("EventRecord", [reached] { reached(current_worker()->failure()); }, true), Stream::By::Either);
    } catch (const Fault &refused) {
        reached(refused);  // nobody must wait for a record that will never run
        throw;
    }
}

void Event::hold(Stream &stream, std::optional<std::chrono::milliseconds> limit) const {
    if (capture_wait(id_, stream)) return;
    const uint64_t generation = state_->requested.load();
    if (generation <= state_->forgotten.load() || has_run(*state_, generation)) return;
    state_->holding.fetch_add(1);
    const auto wait = [state = state_, generation, limit, id = id_] {
        const Deadline deadline = limit ? Deadline(Clock::now() + *limit) : std::nullopt;
        const auto ran = [&] { return has_run(*state, generation); };
        bool reached = false, late = false;
        while (!reached && !late && !aborting(current_worker()->device())) {
            const Clock::time_point look = Clock::now() + kLook;
            late = deadline && *deadline <= look;
            reached = state->bell.wait(ran, late ? deadline : look);
        }
        state->holding.fetch_sub(1);
        if (!reached && !late) fail_aborted(current_worker()->device());
        if (!reached) fail(FaultKind::EventTimeout, "Event {} was not reached within {} ms.", id, limit->count());
    };
    try {
        stream.submit(make_task("EventWait", wait, true));
    } catch (...) {
        state_->holding.fetch_sub(1);
        throw;
    }
}

bool Event::done() const noexcept {
    const uint64_t generation = state_->requested.load();
    return generation <= state_->forgotten.load() || has_run(*state_, generation);
}

void Event::synchronize(Deadline deadline) const {
    const uint64_t generation = state_->requested.load();
    if (generation <= state_->forgotten.load()) return;
    if (!state_->bell.wait([&] { return has_run(*state_, generation); }, deadline))
        fail(FaultKind::EventTimeout, "Event {} was not reached within the time-out.", id_);
    const std::lock_guard lock(state_->failure_mutex);
    if (!state_->failure) return;
    seen(*state_->failure);
    throw *state_->failure;
}

void Event::reset(Stream &stream) {
    const auto forget = [state = state_, generation = state_->requested.load()] {
        uint64_t before = state->forgotten.load();
        while (before < generation && !state->forgotten.compare_exchange_weak(before, generation)) {
        }
    };
    stream.submit(make_task("EventReset", forget, true));
}

Clock::time_point Event::time() const {
    if (!recorded() || !done())
        fail(FaultKind::NotReady, "Event {} has no time yet: {}.", id_,
             recorded() ? "its stream has not reached it" : "it was never recorded");
    return Clock::time_point(Clock::duration(state_->time.load()));
}

}  // namespace vnpu
