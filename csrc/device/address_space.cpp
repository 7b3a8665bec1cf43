#include "device/address_space.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "device/bytes.h"

namespace vnpu {
namespace {

constexpr uint64_t kGranule = 2ull << 20;  // CANN's granularity for mapped memory
#ifdef __SANITIZE_THREAD__
constexpr uint64_t kWindow = 64ull << 30;  // ThreadSanitizer leaves a process 1.5 TiB of addresses
#else
constexpr uint64_t kWindow = 4ull << 40;  // addresses only: torch_npu reserves 9/8 of HBM per segment
#endif

}  // namespace

std::string describe(const Allocation &allocation) {
    if (allocation.device < 0)
        return fmt::format("the {} bytes of registered host memory that the devices reach at {:#x}", allocation.size,
                           allocation.start);
    return fmt::format("the allocation of {} bytes at {:#x} on virtual NPU {}", allocation.size, allocation.start,
                       allocation.device);
}

AddressSpace::AddressSpace(int devices, uint64_t capacity)
    : capacity_(bytes::round_up(capacity, kGranule, "capacity")) {
    span_ = capacity_ * static_cast<uint64_t>(devices) + kWindow;
    void *base = mmap(nullptr, 2 * span_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        fail(FaultKind::HostOutOfMemory,
             "The virtual NPU could not reserve {} GiB of addresses ({}). An address-space limit (ulimit -v) is the "
             "usual reason: limit resident memory instead, with VNPU_HOST_LIMIT.",
             2 * span_ >> 30, std::strerror(errno));
    madvise(base, 2 * span_, MADV_DONTDUMP);
    base_ = reinterpret_cast<uintptr_t>(base);
    window_ = base_ + capacity_ * static_cast<uint64_t>(devices);
}

AddressSpace::~AddressSpace() { munmap(reinterpret_cast<void *>(base_), 2 * span_); }

void *AddressSpace::reserve(size_t size, Owner owner) {
    size = bytes::round_up(size, kGranule, "size");
    const std::lock_guard lock(mutex_);
    uintptr_t at = window_;
    for (const auto &[start, taken] : reservations_) {
        if (start - at >= size + kGranule) break;
        at = start + taken.size + kGranule;  // apart, so that what runs past one is not in the next
    }
    if (at > base_ + span_ || base_ + span_ - at < size)
        fail(FaultKind::OutOfMemory, "No {} bytes of device addresses are left to reserve.", size);
    reservations_.emplace(at, Reservation{size, owner});
    return reinterpret_cast<void *>(at);
}

size_t AddressSpace::release(void *address, Owner owner) {
    const std::lock_guard lock(mutex_);
    const auto it = reservations_.find(reinterpret_cast<uintptr_t>(address));
    if (it == reservations_.end() || it->second.owner != owner)
        fail(FaultKind::InvalidAddress, "{} is not the start of a reserved address range.", address);
    const size_t size = it->second.size;
    reservations_.erase(it);
    madvise(alias(address), size, MADV_DONTNEED);  // what unmap() left there
    return size;
}

size_t AddressSpace::reserved_from(const void *address) const {
    const std::lock_guard lock(mutex_);
    const auto at = reinterpret_cast<uintptr_t>(address);
    auto it = reservations_.upper_bound(at);
    if (it == reservations_.begin()) return 0;
    --it;
    const uintptr_t end = it->first + it->second.size;
    return it->second.owner == Owner::Program && at < end ? end - at : 0;
}

void AddressSpace::map(void *address, size_t size, int file, uint64_t offset) {
    if (mmap(alias(address), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, static_cast<off_t>(offset)) ==
        MAP_FAILED)
        fail(FaultKind::HostOutOfMemory, "Mapping {} bytes of device memory failed: {}.", size, std::strerror(errno));
    madvise(alias(address), size, MADV_DONTDUMP);
}

// Pages of nobody take the place of the memory's: a thread that has looked whether the memory is live and reads or
// writes it now, while another unmaps it, does something wrong, but must not end the process.
void AddressSpace::unmap(void *address, size_t size) {
    if (mmap(alias(address), size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED)
        fail(FaultKind::HostOutOfMemory, "Unmapping {} bytes of device memory failed: {}.", size, std::strerror(errno));
}

void AddressSpace::map_for_host(void *address, size_t size, int file, uint64_t offset) {
    if (mmap(address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, static_cast<off_t>(offset)) ==
        MAP_FAILED)
        fail(FaultKind::HostOutOfMemory, "Mapping {} bytes of host memory failed: {}.", size, std::strerror(errno));
}

void AddressSpace::unmap_for_host(void *address, size_t size) {
    if (mmap(address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        fail(FaultKind::HostOutOfMemory, "Unmapping {} bytes of host memory failed: {}.", size, std::strerror(errno));
    madvise(address, size, MADV_DONTDUMP);
}

void AddressSpace::protect(void *address, size_t size, bool usable) {
    if (mprotect(alias(address), size, usable ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
        fail(FaultKind::HostOutOfMemory,
             "Protecting {} bytes of device memory failed: {}. VNPU_CHECK_MEMORY needs two of this machine's mappings "
             "for "
             "each block: raise vm.max_map_count, or check a smaller run.",
             size, std::strerror(errno));
}

}  // namespace vnpu
