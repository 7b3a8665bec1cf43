#include "device/launches.h"

#include <atomic>

namespace {

// On a cache line of its own: workers write it, and what lay beside it would slow down those who launch.
alignas(64) struct {
    std::atomic<uint64_t> count{0};
    char rest[64 - sizeof(std::atomic<uint64_t>)];
} launches;

}  // namespace

void vnpu::count_launch() noexcept { launches.count.fetch_add(1, std::memory_order_relaxed); }

uint64_t vnpuLaunches() noexcept { return launches.count.load(std::memory_order_relaxed); }
