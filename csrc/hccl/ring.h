// A pipe of bytes from one rank to another: one writer, one reader, in memory that both see (or, between machines, that
// a socket fills and empties).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "device/bytes.h"

namespace vnpu::hccl {

// Every message starts at a multiple of this, so that no element ever straddles the end of a ring.
constexpr size_t kGrain = 64;
constexpr size_t padded(size_t size) { return bytes::round_up(size, kGrain, "count"); }

class Ring {
  public:
    struct Marks {  // bytes so far; each on a cache line of its own
        alignas(kGrain) std::atomic<uint64_t> written;
        alignas(kGrain) std::atomic<uint64_t> taken;
    };

    Ring() = default;
    Ring(Marks &marks, std::byte *data, size_t capacity) : marks_(&marks), data_(data), capacity_(capacity) {}

    // Writer: room in one piece, which commit() then hands over.
    std::span<std::byte> room() const noexcept {
        const uint64_t written = marks_->written.load(std::memory_order_relaxed);
        const uint64_t free = capacity_ - (written - marks_->taken.load(std::memory_order_acquire));
        const uint64_t at = written % capacity_;
        return {data_ + at, std::min<uint64_t>(free, capacity_ - at)};
    }
    void commit(size_t bytes) noexcept { marks_->written.fetch_add(bytes, std::memory_order_release); }
    // Whether the reader has taken everything.
    bool empty() const noexcept {
        return marks_->taken.load(std::memory_order_acquire) == marks_->written.load(std::memory_order_relaxed);
    }

    // Reader: bytes in one piece, which take() then frees.
    std::span<const std::byte> bytes() const noexcept {
        const uint64_t taken = marks_->taken.load(std::memory_order_relaxed);
        const uint64_t filled = marks_->written.load(std::memory_order_acquire) - taken;
        const uint64_t at = taken % capacity_;
        return {data_ + at, std::min<uint64_t>(filled, capacity_ - at)};
    }
    void take(size_t bytes) noexcept { marks_->taken.fetch_add(bytes, std::memory_order_release); }

    size_t capacity() const noexcept { return capacity_; }

  private:
    Marks *marks_ = nullptr;
    std::byte *data_ = nullptr;
    size_t capacity_ = 0;
};

}  // namespace vnpu::hccl
