#include "device/dry.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "device/machine.h"

namespace vnpu::dry {
namespace {

std::atomic<uint64_t> unknown_reads{0};
std::atomic<bool> dry{false};

// Ranges of addresses, none of which touch.
class Ranges {
  public:
    void add(uintptr_t start, uintptr_t end) {
        const std::lock_guard lock(mutex_);
        auto next = ends_.upper_bound(start);
        if (next != ends_.begin() && std::prev(next)->second >= start) {
            --next;
            start = next->first;
        }
        while (next != ends_.end() && next->first <= end) {
            end = std::max(end, next->second);
            next = ends_.erase(next);
        }
        ends_.emplace(start, end);
    }
    void remove(uintptr_t start, uintptr_t end) {
        const std::lock_guard lock(mutex_);
        auto next = ends_.upper_bound(start);
        if (next != ends_.begin() && std::prev(next)->second > start) --next;
        while (next != ends_.end() && next->first < end) {
            const auto [from, to] = *next;
            next = ends_.erase(next);
            if (from < start) ends_.emplace(from, start);
            if (to > end) next = ends_.emplace(end, to).first;
        }
    }
    bool holds(uintptr_t start, uintptr_t end) const {
        const std::lock_guard lock(mutex_);
        const auto next = ends_.upper_bound(start);
        return next != ends_.begin() && std::prev(next)->second >= end;
    }

  private:
    mutable std::mutex mutex_;
    std::map<uintptr_t, uintptr_t> ends_;
};

Ranges &values() {
    static auto *all = new Ranges;  // never destroyed: workers run until the very end
    return *all;
}

// VNPU_DRY_COUNTS: "12,40" gives 12, 40, 12, 40 ...
struct Counts {
    std::vector<int64_t> each;
    std::atomic<size_t> next{0};
};

Counts &counts() {
    static auto *all = new Counts;
    return *all;
}

std::vector<int64_t> counts_in(std::string_view text) {
    std::vector<int64_t> found;
    const char *at = text.data(), *const end = at + text.size();
    while (at < end) {
        int64_t count = 0;
        const auto [next, error] = std::from_chars(at, end, count);
        const bool over = next == end, more = !over && *next == ',' && next + 1 < end;
        if (error != std::errc() || count < 0 || !(over || more))
            fail(FaultKind::InvalidArgument, "VNPU_DRY_COUNTS={} is no list of numbers such as 12,40.", text);
        found.push_back(count);
        at = next + more;
    }
    return found;
}

}  // namespace

void begin(bool wanted) {
    const char *text = std::getenv("VNPU_DRY_COUNTS");
    counts().each = counts_in(text == nullptr ? "" : text);
    dry.store(wanted);
}

int64_t found(int64_t most) {
    Counts &all = counts();
    if (!all.each.empty())
        return std::min(most, all.each[all.next.fetch_add(1, std::memory_order_relaxed) % all.each.size()]);
    const double share = Machine::instance().settings().dry_share;
    return share < 1 ? static_cast<int64_t>(std::ceil(static_cast<double>(most) * share)) : most;
}

bool on() noexcept { return dry.load(std::memory_order_relaxed); }

void uploaded(const void *address, uint64_t bytes) {
    const auto start = reinterpret_cast<uintptr_t>(address);
    values().add(start, start + bytes);
}

void computed(const void *address, uint64_t bytes) {
    const auto start = reinterpret_cast<uintptr_t>(address);
    values().remove(start, start + bytes);
}

bool known(const void *address, uint64_t bytes) {
    const auto start = reinterpret_cast<uintptr_t>(address);
    return values().holds(start, start + bytes);
}

void copy(std::byte *to, const std::byte *from, uint64_t bytes, bool to_device, bool from_device) {
    AddressSpace &space = Machine::instance().space();
    const bool values = bytes <= kCarried && (!from_device || known(space.unalias(from), bytes));
    if (values) std::memmove(to, from, bytes);
    if (to_device) {
        if (values)
            uploaded(space.unalias(to), bytes);
        else
            computed(space.unalias(to), bytes);
    } else if (!values) {
        std::memset(to, 0, bytes);
        unknown_reads.fetch_add(1, std::memory_order_relaxed);
    }
}

void fill(std::byte *to, int value, uint64_t bytes) {
    const void *address = Machine::instance().space().unalias(to);
    if (bytes > kCarried) return computed(address, bytes);
    std::memset(to, value, bytes);
    uploaded(address, bytes);
}

}  // namespace vnpu::dry

uint64_t vnpuUnknownReads() noexcept { return vnpu::dry::unknown_reads.load(std::memory_order_relaxed); }
