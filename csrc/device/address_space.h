// Where device memory lives. One reservation of 2 x S bytes:
//
//     base                      base + S                    base + 2S
//     | device 0 | 1 | .. | window | device 0 | 1 | .. | window |
//      device addresses, PROT_NONE   kernel aliases, read-write
//
// A device address is what the program holds; the host cannot touch it, as on hardware. The bytes
// are one sparse memfd per device, mapped at the alias. address + S is the alias, for every device
// and for memory mapped through the virtual-memory API (which takes addresses from the window),
// so translation is one addition and costs a kernel no system call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace vnpu {

// A piece of device memory that was allocated or mapped as one.
struct Allocation {
    uintptr_t start;
    uint64_t size;
    int device;
};
// "the allocation of 4096 bytes at 0x7f.. on virtual NPU 0"
std::string describe(const Allocation &allocation);

class AddressSpace {
  public:
    AddressSpace(int devices, uint64_t capacity);
    ~AddressSpace();
    AddressSpace(const AddressSpace &) = delete;
    AddressSpace &operator=(const AddressSpace &) = delete;

    // Whether the address lies in device memory or the window (live or not).
    bool contains(const void *address) const noexcept { return reinterpret_cast<uintptr_t>(address) - base_ < span_; }
    // Kernel alias of a device address. The caller has checked contains().
    std::byte *alias(const void *address) const noexcept {
        return reinterpret_cast<std::byte *>(reinterpret_cast<uintptr_t>(address) + span_);
    }
    // Device address of a kernel alias.
    void *unalias(const void *alias) const noexcept {
        return reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(alias) - span_);
    }
    std::byte *device_base(int device) const noexcept {
        return reinterpret_cast<std::byte *>(base_ + static_cast<uint64_t>(device) * capacity_);
    }
    bool in_window(const void *address) const noexcept {
        return contains(address) && reinterpret_cast<uintptr_t>(address) >= window_;
    }

    // Who has reserved addresses: what is ours the program neither releases nor maps memory to.
    enum class Owner { Program, Runtime };
    // Addresses from the window; Fault OutOfMemory when it is full.
    void *reserve(size_t size, Owner owner = Owner::Program);
    // Gives them back; Fault InvalidAddress unless `address` came from reserve() for this owner. Returns the size.
    size_t release(void *address, Owner owner = Owner::Program);
    // Size of the program's reservation that holds `address`, counted from it to its end; 0 if none does.
    size_t reserved_from(const void *address) const;

    // Shows `size` bytes of the file at `offset` behind the device address; and takes them away.
    void map(void *address, size_t size, int file, uint64_t offset);
    void unmap(void *address, size_t size);
    // The same for host memory, which the program reads and writes at the address itself.
    void map_for_host(void *address, size_t size, int file, uint64_t offset);
    void unmap_for_host(void *address, size_t size);

    // Lets kernels touch mapped device memory, or not: whoever does all the same crashes.
    void protect(void *address, size_t size, bool usable);

    // Counts what was freed or unmapped: whoever has found memory alive asks again when this has changed.
    uint64_t revision() const noexcept { return revision_.load(std::memory_order_acquire); }
    void revise() noexcept { revision_.fetch_add(1, std::memory_order_release); }

  private:
    uint64_t capacity_;
    uint64_t span_;
    uintptr_t base_;
    uintptr_t window_;
    std::atomic<uint64_t> revision_{1};
    mutable std::mutex mutex_;
    struct Reservation {
        size_t size;
        Owner owner;
    };
    std::map<uintptr_t, Reservation> reservations_;  // by their start, in the window
};

}  // namespace vnpu
