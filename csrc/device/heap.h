// The memory of one device: a sparse file, and who owns which part of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "device/address_space.h"

namespace vnpu {

// What this process may hold in device memory on all devices together (VNPU_HOST_LIMIT). Counted when memory is
// allocated, not when it is touched: a refusal the program can handle comes before the kernel's OOM killer.
class HostBudget {
  public:
    explicit HostBudget(uint64_t limit) : limit_(limit) {}
    void take(uint64_t bytes);  // Fault HostLimit
    void give(uint64_t bytes) noexcept;
    uint64_t limit() const noexcept { return limit_; }
    uint64_t used() const;

  private:
    const uint64_t limit_;
    mutable std::mutex mutex_;
    uint64_t used_ = 0;
};

class Heap {
  public:
    // Maps `capacity` bytes at the device's base address. `checked` (VNPU_CHECK_MEMORY): each block ends at a page that
    // nothing can touch, as near as its alignment lets it; freed ones cannot be touched either, and their addresses are
    // given out again only when no others are left.
    Heap(int device, uint64_t capacity, AddressSpace &space, HostBudget &budget, bool checked);
    ~Heap();
    Heap(const Heap &) = delete;
    Heap &operator=(const Heap &) = delete;

    // Zero-filled memory at a device address. Faults: InvalidArgument (size 0), OutOfMemory, HostLimit.
    void *allocate(size_t size);
    // Gives the pages back to the machine. Does nothing, once, where clear() has given them back: at the end of a
    // process torch_npu resets the device, and then frees what tensors still hold. Faults: DoubleFree, InvalidAddress.
    void free(void *address);

    // The live allocation that holds the address; none does where it was freed or never given out.
    std::optional<Allocation> allocation(const void *address) const;
    // Why none does: what was there, or what lies before it.
    std::string why_dead(const void *address) const;

    // Memory without an address, for the virtual-memory API: offsets in file(), to be mapped by the caller.
    uint64_t allocate_physical(size_t size);
    void free_physical(uint64_t offset);
    int file() const noexcept { return file_; }

    // Room that is taken and never touched: what a library keeps for itself on hardware. It takes none of this
    // machine's memory, nor of HostBudget. Fault OutOfMemory.
    uint64_t reserve(size_t size);
    void release(uint64_t offset);

    uint64_t capacity() const noexcept { return capacity_; }
    uint64_t used() const;
    uint64_t peak() const;  // the most that was ever in use
    // Frees what is still allocated at an address (device reset). Physical memory belongs to its PhysicalMemory, and
    // what is reserved to who has reserved it.
    void clear();

  private:
    enum class Kind { Addressed, Physical, Reserved };
    struct Block {
        uint64_t size;    // whole pages
        uint64_t length;  // what was asked for
        uint64_t lead;    // bytes before its address
        uint64_t guard;   // bytes that nothing can touch, the last
        Kind kind;
        bool cleared;  // freed by clear()
    };
    using Blocks = std::map<uint64_t, Block>;  // by offset
    uint64_t take(size_t size, Kind kind);
    void give_unaddressed(uint64_t offset, Kind kind, const char *what);
    void give(Blocks::iterator block);
    void merge(uint64_t start, uint64_t size);
    static Blocks::iterator starting_at(Blocks &blocks, uint64_t offset);
    uint64_t lead(size_t size) const;
    bool owns(const void *address) const noexcept;
    uint64_t offset_of(const void *address) const noexcept;
    Allocation describe_block(const Blocks::value_type &block) const noexcept;
    const Blocks::value_type *holding(uint64_t offset) const noexcept;

    const int device_;
    const uint64_t capacity_;
    AddressSpace &space_;
    HostBudget &budget_;
    const bool checked_;
    int file_ = -1;
    mutable std::mutex mutex_;
    Blocks live_;
    std::map<uint64_t, uint64_t> free_;  // offset -> size, neighbours merged
    Blocks freed_;                       // and not given out again: they tell a double free, and a use after it
    std::deque<std::pair<uint64_t, uint64_t>> quarantine_;  // offset, size: the first was freed first
    uint64_t used_ = 0, peak_ = 0;
};

}  // namespace vnpu
