#include "device/event.h"

#include "device/capture.h"

namespace vnpu {

uint64_t Event::next_id() noexcept {
    static std::atomic<uint64_t> last{0};
    return ++last;
}

void Event::record(Stream &stream) {
    if (capture_record(id_, stream)) return;
    const uint64_t generation = state_->requested.fetch_add(1) + 1;
    const auto signal = [state = state_, generation] {
        state->time.store(Clock::now().time_since_epoch().count());
        {
            const std::lock_guard lock(state->failure_mutex);
            state->failure = current_worker()->failure();
        }
        // Two streams may record in any order: the latest request must not be undone by an earlier one that ran late.
        uint64_t seen = state->completed.load();
        while (seen < generation && !state->completed.compare_exchange_weak(seen, generation)) {
        }
        state->bell.ring();
    };
    stream.submit(make_task("EventRecord", signal, true));
}

void Event::hold(Stream &stream, std::optional<std::chrono::milliseconds> limit) const {
    if (capture_wait(id_, stream)) return;
    const uint64_t generation = state_->requested.load();
    if (state_->completed.load() >= generation) return;
    state_->holding.fetch_add(1);
    const auto wait = [state = state_, generation, limit, id = id_] {
        const Deadline deadline = limit ? Deadline(Clock::now() + *limit) : std::nullopt;
        const bool reached = state->bell.wait([&] { return state->completed.load() >= generation; }, deadline);
        state->holding.fetch_sub(1);
        if (!reached) fail(FaultKind::EventTimeout, "Event {} was not reached within {} ms.", id, limit->count());
    };
    stream.submit(make_task("EventWait", wait, true));
}

bool Event::done() const noexcept { return state_->completed.load() >= state_->requested.load(); }

void Event::synchronize(Deadline deadline) const {
    const uint64_t generation = state_->requested.load();
    if (!state_->bell.wait([&] { return state_->completed.load() >= generation; }, deadline))
        fail(FaultKind::EventTimeout, "Event {} was not reached within the time-out.", id_);
    const std::lock_guard lock(state_->failure_mutex);
    if (state_->failure) throw *state_->failure;
}

void Event::reset(Stream &stream) {
    const auto forget = [state = state_] {
        state->completed.store(0);
        state->requested.store(0);
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
