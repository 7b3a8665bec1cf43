// The virtual-memory API: physical memory and addresses taken apart, then joined by mapping
// (PYTORCH_NPU_ALLOC_CONF=expandable_segments:True grows its segments so).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "device/address_space.h"
#include "device/heap.h"

namespace vnpu {

class PhysicalMemory {
  public:
    PhysicalMemory(Heap &heap, int device, size_t size)
        : heap_(&heap), device_(device), size_(size), offset_(heap.allocate_physical(size)), file_(heap.file()) {}
    // The host's, pinned. Fault HostOutOfMemory.
    explicit PhysicalMemory(size_t size);
    ~PhysicalMemory();
    PhysicalMemory(const PhysicalMemory &) = delete;
    PhysicalMemory &operator=(const PhysicalMemory &) = delete;

    bool on_host() const noexcept { return heap_ == nullptr; }
    int device() const noexcept { return device_; }  // -1: the host
    size_t size() const noexcept { return size_; }
    uint64_t offset() const noexcept { return offset_; }
    int file() const noexcept { return file_; }

  private:
    Heap *const heap_ = nullptr;
    const int device_ = -1;
    const size_t size_;
    const uint64_t offset_ = 0;
    const int file_;
};

class Mappings {
  public:
    explicit Mappings(AddressSpace &space) : space_(space) {}

    // Puts `size` bytes of `memory` from `offset` behind a reserved address. The mapping keeps the memory alive.
    // Faults: OutOfBounds (past the memory or the reservation), InvalidArgument (address in use).
    void map(void *address, size_t size, size_t offset, std::shared_ptr<PhysicalMemory> memory);
    // Faults InvalidAddress unless a mapping starts at `address`.
    void unmap(void *address);
    // Whether anything is mapped in the `size` bytes at `address`.
    bool any(const void *address, size_t size) const;
    // The mapped run of a device's memory that holds the address: mappings that touch count as one.
    std::optional<Allocation> allocation(const void *address) const;
    // Why none does: what is mapped before it.
    std::string why_dead(const void *address) const;
    // Device whose memory is mapped at `address`; -1 when none is.
    int device_at(const void *address) const;
    // Whether the host's memory is mapped in all of the `size` bytes at `address`.
    bool on_host(const void *address, size_t size) const;

  private:
    struct Mapping {
        size_t size;
        std::shared_ptr<PhysicalMemory> memory;
    };
    using Table = std::map<uintptr_t, Mapping>;
    Table::const_iterator find(const void *address) const;
    Allocation run(Table::const_iterator first) const;

    AddressSpace &space_;
    mutable std::mutex mutex_;
    Table live_;
};

}  // namespace vnpu
