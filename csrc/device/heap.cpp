#include "device/heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "device/bytes.h"
#include "device/injection.h"
#include "device/timeline.h"

namespace vnpu {
namespace {

constexpr uint64_t kPage = 4096;     // the grain in which memory can go back to the machine
constexpr uint64_t kAlignment = 64;  // of the addresses in checked memory

double gib(uint64_t bytes) { return static_cast<double>(bytes) / (1ull << 30); }

}  // namespace

void HostBudget::take(uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes > limit_ - used_) {
        const std::string sentence = fmt::format(
            "The virtual NPU may hold {:.2f} GiB of this machine's memory and holds {:.2f}; {:.2f} GiB more were asked "
            "for. Make the model or batch smaller, or raise VNPU_HOST_LIMIT (for example VNPU_HOST_LIMIT=32GiB).",
            gib(limit_), gib(used_), gib(bytes));
        // The program's own error will say that the chip's memory is full: where the limit is ours, the user would
        // search in vain for what to change.
        static std::once_flag once;
        std::call_once(once, [&] { std::fprintf(stderr, "torchport: %s\n", sentence.c_str()); });
        throw Fault(FaultKind::HostLimit, sentence);
    }
    used_ += bytes;
}

void HostBudget::give(uint64_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
}

uint64_t HostBudget::used() const {
    const std::lock_guard lock(mutex_);
    return used_;
}

Heap::Heap(int device, uint64_t capacity, AddressSpace &space, HostBudget &budget, bool checked)
    : device_(device), capacity_(capacity / kPage * kPage), space_(space), budget_(budget), checked_(checked) {
    file_ = memfd_create("vnpu-hbm", MFD_CLOEXEC);
    if (file_ < 0 || ftruncate(file_, static_cast<off_t>(capacity_)) != 0)
        fail(FaultKind::HostOutOfMemory, "The memory of virtual NPU {} could not be created: {}.", device,
             std::strerror(errno));
    space_.map(space_.device_base(device), capacity_, file_, 0);
    if (checked_) space_.protect(space_.device_base(device), capacity_, false);
    free_.emplace(0, capacity_);
}

Heap::~Heap() {
    for (const auto &[offset, block] : live_)
        if (block.kind != Kind::Reserved) budget_.give(block.size - block.guard);
    close(file_);
}

uint64_t Heap::take(size_t size, Kind kind) {
    if (size == 0) fail(FaultKind::InvalidArgument, "An allocation of 0 bytes of device memory was asked for.");
    if (kind != Kind::Reserved && injection::armed.load(std::memory_order_relaxed)) [[unlikely]]
        injection::at_allocation();
    const std::lock_guard lock(mutex_);
    const uint64_t guard = checked_ && kind == Kind::Addressed ? kPage : 0;
    const uint64_t pages = size > capacity_ ? size : bytes::round_up(size, kPage, "size");
    const uint64_t need = bytes::sum(pages, guard, "size");
    const auto find = [&] {
        return std::find_if(free_.begin(), free_.end(), [&](const auto &range) { return range.second >= need; });
    };
    auto it = find();
    for (; it == free_.end() && need <= capacity_ && !quarantine_.empty(); it = find()) {
        merge(quarantine_.front().first, quarantine_.front().second);
        quarantine_.pop_front();
    }
    if (it == free_.end())
        fail(FaultKind::OutOfMemory,
             "Virtual NPU {} is out of memory: {:.2f} GiB asked for, {:.2f} of {:.2f} GiB in use, no free range is "
             "large "
             "enough.",
             device_, gib(size), gib(used_), gib(capacity_));
    const uint64_t offset = it->first;
    if (guard != 0) space_.protect(space_.device_base(device_) + offset, pages, true);
    if (kind != Kind::Reserved) budget_.take(pages);
    const uint64_t rest = it->second - need;
    free_.erase(it);
    if (rest != 0) free_.emplace(offset + need, rest);
    live_.emplace(offset, Block{need, size, kind == Kind::Addressed ? lead(size) : 0, guard, kind, false});
    auto overlapped = freed_.upper_bound(offset);
    if (overlapped != freed_.begin() && std::prev(overlapped)->first + std::prev(overlapped)->second.size > offset)
        --overlapped;
    while (overlapped != freed_.end() && overlapped->first < offset + need) overlapped = freed_.erase(overlapped);
    used_ += pages;
    peak_ = std::max(peak_, used_);
    if (Timeline::enabled()) [[unlikely]]
        Timeline::memory({device_, space_.device_base(device_) + offset, static_cast<int64_t>(pages), used_});
    return offset;
}

void Heap::give(Blocks::iterator block) {
    const uint64_t start = block->first, size = block->second.size, pages = size - block->second.guard;
    const bool quarantined = block->second.guard != 0;
    // Without the hole the pages would stay with the file for ever.
    if (fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(start),
                  static_cast<off_t>(size)) != 0)
        fail(FaultKind::HostOutOfMemory, "Giving device memory back to the machine failed: {}.", std::strerror(errno));
    if (quarantined) space_.protect(space_.device_base(device_) + start, pages, false);
    used_ -= pages;
    if (Timeline::enabled()) [[unlikely]]
        Timeline::memory({device_, space_.device_base(device_) + start, -static_cast<int64_t>(pages), used_});
    if (block->second.kind != Kind::Reserved) budget_.give(pages);
    if (block->second.kind == Kind::Addressed) freed_.insert(*block);
    live_.erase(block);
    space_.revise();
    if (quarantined)
        quarantine_.emplace_back(start, size);
    else
        merge(start, size);
}

// Makes a range free, one with those it touches.
void Heap::merge(uint64_t start, uint64_t size) {
    auto next = free_.lower_bound(start);
    if (next != free_.end() && next->first == start + size) {
        size += next->second;
        next = free_.erase(next);
    }
    if (next != free_.begin()) {
        const auto before = std::prev(next);
        if (before->first + before->second == start) {
            start = before->first;
            size += before->second;
            free_.erase(before);
        }
    }
    free_.emplace(start, size);
}

bool Heap::owns(const void *address) const noexcept {
    const std::byte *base = space_.device_base(device_);
    return address >= base && address < base + capacity_;
}

// In checked memory a block ends where its pages do, as near as the alignment of its address lets it.
uint64_t Heap::lead(size_t size) const {
    return checked_ ? bytes::round_up(size, kPage, "size") - bytes::round_up(size, kAlignment, "size") : 0;
}

void *Heap::allocate(size_t size) {
    const uint64_t offset = take(size, Kind::Addressed);
    return space_.device_base(device_) + offset + lead(size);
}

Heap::Blocks::iterator Heap::starting_at(Blocks &blocks, uint64_t offset) {
    const auto after = blocks.upper_bound(offset);
    if (after == blocks.begin()) return blocks.end();
    const auto found = std::prev(after);
    return found->first + found->second.lead == offset ? found : blocks.end();
}

void Heap::free(void *address) {
    const std::lock_guard lock(mutex_);
    if (!owns(address)) fail(FaultKind::InvalidAddress, "{} is not an address of virtual NPU {}.", address, device_);
    const uint64_t offset = offset_of(address);
    if (const auto it = starting_at(live_, offset); it != live_.end() && it->second.kind == Kind::Addressed)
        return give(it);
    const auto before = starting_at(freed_, offset);
    if (before != freed_.end() && std::exchange(before->second.cleared, false)) return;
    // An address inside live memory may have been the start of an allocation once; that is not what is wrong now.
    if (before != freed_.end() && holding(offset) == nullptr)
        fail(FaultKind::DoubleFree, "The device memory at {} was freed before.", address);
    fail(FaultKind::InvalidAddress, "{} is not the start of an allocation on virtual NPU {}.", address, device_);
}

uint64_t Heap::offset_of(const void *address) const noexcept {
    return static_cast<uint64_t>(static_cast<const std::byte *>(address) - space_.device_base(device_));
}

Allocation Heap::describe_block(const Blocks::value_type &block) const noexcept {
    return {reinterpret_cast<uintptr_t>(space_.device_base(device_)) + block.first + block.second.lead,
            block.second.length, device_};
}

// The live block that holds the offset; null when none does.
const Heap::Blocks::value_type *Heap::holding(uint64_t offset) const noexcept {
    const auto after = live_.upper_bound(offset);
    if (after == live_.begin()) return nullptr;
    const auto &found = *std::prev(after);
    return found.second.kind == Kind::Addressed && offset - found.first - found.second.lead < found.second.length
               ? &found
               : nullptr;
}

std::optional<Allocation> Heap::allocation(const void *address) const {
    const std::lock_guard lock(mutex_);
    const Blocks::value_type *block = owns(address) ? holding(offset_of(address)) : nullptr;
    return block == nullptr ? std::nullopt : std::optional(describe_block(*block));
}

std::string Heap::why_dead(const void *address) const {
    const std::lock_guard lock(mutex_);
    const uint64_t offset = offset_of(address);
    if (const auto after = freed_.upper_bound(offset); after != freed_.begin())
        if (const auto &block = *std::prev(after); offset - block.first - block.second.lead < block.second.length)
            return describe(describe_block(block)) + " has been freed";
    for (auto before = live_.upper_bound(offset); before != live_.begin();) {
        const auto &block = *--before;
        if (block.second.kind != Kind::Addressed) continue;
        const uint64_t start = block.first + block.second.lead;
        return offset < start
                   ? fmt::format("{} begins {} bytes behind", describe(describe_block(block)), start - offset)
                   : fmt::format("{} ends {} bytes before", describe(describe_block(block)),
                                 offset - start - block.second.length);
    }
    return fmt::format("virtual NPU {} has never given it out", device_);
}

uint64_t Heap::allocate_physical(size_t size) { return take(size, Kind::Physical); }

void Heap::free_physical(uint64_t offset) { give_unaddressed(offset, Kind::Physical, "physical memory"); }

uint64_t Heap::reserve(size_t size) { return take(size, Kind::Reserved); }

void Heap::release(uint64_t offset) { give_unaddressed(offset, Kind::Reserved, "reserved memory"); }

void Heap::give_unaddressed(uint64_t offset, Kind kind, const char *what) {
    const std::lock_guard lock(mutex_);
    const auto it = live_.find(offset);
    if (it == live_.end() || it->second.kind != kind)
        fail(FaultKind::InvalidHandle, "Offset {:#x} is not {} of virtual NPU {}.", offset, what, device_);
    give(it);
}

uint64_t Heap::used() const {
    const std::lock_guard lock(mutex_);
    return used_;
}

uint64_t Heap::peak() const {
    const std::lock_guard lock(mutex_);
    return peak_;
}

void Heap::clear() {
    const std::lock_guard lock(mutex_);
    for (auto it = live_.begin(); it != live_.end();) {
        const auto block = it++;
        if (block->second.kind != Kind::Addressed) continue;
        block->second.cleared = true;
        give(block);
    }
}

}  // namespace vnpu
