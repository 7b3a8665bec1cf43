#include "device/clock.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

namespace vnpu::clocks {
namespace {

std::atomic<int64_t> program{0};
std::atomic<int64_t> launch_cost{0};

// Of the words of bandwidth and microseconds in devices.toml.
constexpr double kGiga = 1e9, kMicrosecond = 1e-6;

double matrix_peak(const Chip &chip) noexcept {
    constexpr double kMacs = 16. * 16. * 16.;  // of one core, in a cycle, in float16
    return static_cast<double>(chip.cube_cores) * kMacs * 2 * chip.clock_ghz * kGiga;
}

// What the unit itself takes, without conversions.
double seconds(const Chip &chip, const Work &work, int ranks, bool across) noexcept {
    const TimeModel &model = chip.time;
    const double memory = chip.bandwidth_gbs * kGiga;
    const double rate = model.rate[static_cast<size_t>(work.unit)];
    switch (work.unit) {
        case Unit::None:
            return 0;
        case Unit::Cube:
        case Unit::Depthwise:
            return std::max(work.flops / (matrix_peak(chip) * rate),
                            work.bytes / (memory * model.rate[static_cast<size_t>(Unit::Stream)])) +
                   model.floor_us * kMicrosecond;
        case Unit::Stream: {
            const bool cached = work.bytes <= model.l2_share * static_cast<double>(chip.l2_bytes);
            return work.bytes / (cached ? model.l2_gbs * kGiga : memory * rate) + model.floor_us * kMicrosecond;
        }
        case Unit::Norm:
        case Unit::Pool:
        case Unit::Move:
        case Unit::Gather:
            return work.bytes / (memory * rate) + model.floor_us * kMicrosecond;
        case Unit::DeviceCpu:
            return work.bytes / (memory * rate) + model.device_cpu_us * kMicrosecond;
        case Unit::HostCopy:
            return work.bytes / (model.pcie_gbs * kGiga) + model.copy_us * kMicrosecond;
        case Unit::Collective: {
            if (ranks < 2) return model.floor_us * kMicrosecond;
            // `bytes` is what one rank sends of it.
            const double link = (across ? model.roce_gbs : model.hccs_gbs) * kGiga;
            return work.bytes / link + model.collective_us * kMicrosecond;
        }
    }
    return 0;
}

}  // namespace

int64_t duration(const Chip &chip, const Work &work, int ranks, bool across) noexcept {
    const double conversions =
        work.converted / (chip.bandwidth_gbs * kGiga * chip.time.rate[static_cast<size_t>(Unit::Move)]);
    return static_cast<int64_t>((seconds(chip, work, ranks, across) + (work.converted > 0 ? conversions : 0)) * 1e9);
}

void begin(const Chip &chip) noexcept { launch_cost.store(static_cast<int64_t>(chip.time.host_us * 1e3)); }

int64_t host() noexcept { return program.load(std::memory_order_relaxed); }

int64_t launch(bool kernel) noexcept {
    if (!kernel) return host();
    const int64_t cost = launch_cost.load(std::memory_order_relaxed);
    return program.fetch_add(cost, std::memory_order_relaxed) + cost;
}

void waited(int64_t until) noexcept {
    int64_t now = program.load(std::memory_order_relaxed);
    while (now < until && !program.compare_exchange_weak(now, until, std::memory_order_relaxed)) {
    }
}

bool several_machines() noexcept {
    static const bool answer = [] {
        const char *world = std::getenv("WORLD_SIZE"), *local = std::getenv("LOCAL_WORLD_SIZE");
        return world != nullptr && local != nullptr && std::atoi(world) > std::atoi(local);
    }();
    return answer;
}

}  // namespace vnpu::clocks
