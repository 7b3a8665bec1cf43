#include "device/perform.h"

#include <algorithm>
#include <string_view>

#include "device/clock.h"
#include "device/dry.h"
#include "device/machine.h"
#include "device/timeline.h"

namespace vnpu {
namespace {

std::atomic<uint64_t> launches{0};

std::atomic<bool> always{false};

// Whether the task only moves values that the program has put on the device, and few: these are there afterwards, as
// with a copy. What processes tell each other (sizes, objects) passes through such tasks.
bool carries(const Task &task, const Description &what) {
    if (what.work.unit != Unit::Move && task.label() != std::string_view("aclnnInplaceCopy")) return false;
    uint64_t bytes = 0;
    for (const TensorLine &tensor : what.tensors) {
        bytes += tensor.bytes;
        const bool written = std::ranges::any_of(
            what.tensors, [&](const TensorLine &other) { return other.output && other.address == tensor.address; });
        if (!written && tensor.bytes != 0 &&
            (tensor.address == 0 || !dry::known(reinterpret_cast<const void *>(tensor.address), tensor.bytes)))
            return false;
    }
    return bytes != 0 && bytes <= dry::kCarried;
}

void keep(const Description &what) {
    for (const TensorLine &tensor : what.tensors)
        if (tensor.output) dry::uploaded(reinterpret_cast<const void *>(tensor.address), tensor.bytes);
}

// What the task would have left in device memory is not there.
void leave_out(const Description &what) {
    for (const TensorLine &tensor : what.tensors)
        if (tensor.output) dry::computed(reinterpret_cast<const void *>(tensor.address), tensor.bytes);
}

}  // namespace

std::atomic<bool> detail::observing{false};

void observe(const Settings &settings) {
    dry::begin(settings.dry);
    clocks::begin(*settings.chip);
    always.store(settings.dry || settings.model_time);
    observe();
}

void observe() noexcept { detail::observing.store(always.load() || Timeline::enabled()); }

void note_launch(Task &task) noexcept {
    const uint32_t external = task.launch.external != 0 ? task.launch.external : external_correlation();
    task.launch = {launches.fetch_add(1, std::memory_order_relaxed) + 1, Timeline::enabled() ? monotonic() : 0,
                   clocks::launch(task.kernel()), thread_number(), external};
    note_launched(task.launch.correlation);
}

void perform_observed(Task &task, Stream &stream) {
    // Kept for the next task: its list has room already. A graph's task runs others.
    static thread_local Description spare;
    Description what = std::move(spare);
    what.clear();
    task.describe(what);
    const CollectiveSeen collective = described_collective();
    const bool logged = Timeline::enabled();
    TaskTimes times{task.launch.at, logged ? monotonic() : 0, 0, task.launch.virtual_at, 0, 0};
    stream.reach(times.virtual_queued);
    const int64_t ready = stream.virtual_time();
    const auto over = [&](const Description &done, bool failed) noexcept {
        times.virtual_began = stream.virtual_time();  // behind what the task has waited for
        times.virtual_end = times.virtual_began + clocks::duration(*Machine::instance().settings().chip, done.work,
                                                                   done.ranks, clocks::several_machines());
        stream.reach(times.virtual_end);
        if (!logged) return;
        times.ended = monotonic();
        Timeline::task({task.label(), stream.device(), stream.id(), task.launch.thread, failed, task.launch.correlation,
                        task.launch.external, ready, times, done, collective});
    };
    try {
        // The one place where dry mode differs: what is checked and queued is not computed.
        if (task.kernel() && dry::on() && !carries(task, what)) {
            leave_out(what);
        } else {
            task.run();
            if (task.kernel() && dry::on()) keep(what);
        }
    } catch (...) {
        over(what, true);
        throw;
    }
    over(what, false);
    spare = std::move(what);
}

}  // namespace vnpu
