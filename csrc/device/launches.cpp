#include "device/launches.h"

#include <array>
#include <atomic>

#include "device/stream.h"

namespace {

// Each on a cache line of its own: workers write it, and what lay beside it would slow down those who launch.
struct alignas(64) Used {
    std::atomic<uint64_t> launches{0};
    std::atomic<bool> opened{false};
};

std::array<Used, vnpu::kMostDevices> devices;

}  // namespace

void vnpu::count_launch() noexcept {
    // A kernel runs on behalf of a stream, on whatever thread.
    const auto device = static_cast<size_t>(current_worker()->device());
    devices[device].launches.fetch_add(1, std::memory_order_relaxed);
}

void vnpu::note_opened(int device) noexcept {
    devices[static_cast<size_t>(device)].opened.store(true, std::memory_order_relaxed);
}

uint64_t vnpuLaunches() noexcept {
    uint64_t all = 0;
    for (const Used &each : devices) all += each.launches.load(std::memory_order_relaxed);
    return all;
}

int64_t vnpuDeviceLaunches(int device) noexcept {
    if (device < 0 || device >= vnpu::kMostDevices) return -1;
    const Used &used = devices[static_cast<size_t>(device)];
    if (!used.opened.load(std::memory_order_relaxed)) return -1;
    return static_cast<int64_t>(used.launches.load(std::memory_order_relaxed));
}
