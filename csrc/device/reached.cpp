#include "device/reached.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "device/bytes.h"
#include "device/live_memory.h"

namespace vnpu {
namespace {

constexpr size_t kPage = 4096;

struct Unmap {
    size_t size;
    void operator()(void *pages) const noexcept { munmap(pages, size); }
};
using Pages = std::unique_ptr<void, Unmap>;

// A copy of the program's pages in pages of their own. Read by a system call: what cannot be read is an error, no
// signal.
Pages copied(void *from, size_t size, int sharing) {
    void *pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        fail(FaultKind::HostOutOfMemory, "{} bytes of host memory could not be made: {}.", size, std::strerror(errno));
    Pages copy(pages, Unmap{size});
    for (size_t done = 0; done < size;) {
        const iovec to{static_cast<std::byte *>(pages) + done, size - done};
        const iovec source{static_cast<std::byte *>(from) + done, size - done};
        const ssize_t got = process_vm_readv(getpid(), &to, 1, &source, 1, 0);
        if (got <= 0)
            fail(FaultKind::InvalidAddress, "Of the {} bytes of host memory at {} only {} can be read: {}.", size, from,
                 done, std::strerror(errno));
        done += static_cast<size_t>(got);
    }
    return copy;
}

// Puts pages in the place of others.
void take_place(Pages pages, size_t size, void *of) {
    if (mremap(pages.get(), size, size, MREMAP_MAYMOVE | MREMAP_FIXED, of) == MAP_FAILED)
        fail(FaultKind::HostOutOfMemory, "{} bytes of host memory could not be moved to {}: {}.", size, of,
             std::strerror(errno));
    (void)pages.release();
}

// The same pages at a second place: a mapping that is shared, moved from a length of 0. False where it is private.
bool repeat(void *pages, size_t size, void *place) {
    if (mremap(pages, 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, place) != MAP_FAILED) return true;
    if (errno == EINVAL) return false;
    fail(errno == EFAULT ? FaultKind::InvalidAddress : FaultKind::HostOutOfMemory,
         "{} bytes of host memory at {} cannot be mapped for the devices: {}.", size, pages, std::strerror(errno));
}

}  // namespace

ReachedMemory &ReachedMemory::instance() {
    static auto *all = new ReachedMemory;
    return *all;
}

void *ReachedMemory::show(AddressSpace &space, void *host, size_t size) {
    if (reinterpret_cast<uintptr_t>(host) % kPage != 0)
        fail(FaultKind::InvalidArgument,
             "{} is not the start of a page of {} bytes: only whole pages are mapped for the devices.", host, kPage);
    size = bytes::round_up(size, kPage, "size");
    host_range(host, size, "ptr");
    const std::lock_guard lock(mutex_);
    const auto at = reinterpret_cast<uintptr_t>(host);
    const auto next = shown_.lower_bound(at);
    if ((next != shown_.end() && next->first < at + size) ||
        (next != shown_.begin() && std::prev(next)->first + std::prev(next)->second.size > at))
        fail(FaultKind::InvalidArgument, "Host memory in the {} bytes at {} is mapped for the devices already.", size,
             host);
    auto *address = static_cast<std::byte *>(space.reserve(size));
    bool moved = false;
    try {
        (void)copied(host, kPage, MAP_PRIVATE);  // mremap() of a place where nothing is would be EFAULT or EINVAL
        if (!repeat(host, size, space.alias(address))) {
            Pages shared = copied(host, size, MAP_SHARED);
            repeat(shared.get(), size, space.alias(address));
            take_place(std::move(shared), size, host);
            moved = true;
        }
    } catch (...) {
        space.unmap(address, size);
        space.release(address);
        throw;
    }
    shown_.emplace(at, Shown{address, size, moved});
    return address;
}

bool ReachedMemory::hide(AddressSpace &space, void *host) {
    const std::lock_guard lock(mutex_);
    const auto found = shown_.find(reinterpret_cast<uintptr_t>(host));
    if (found == shown_.end()) return false;
    const Shown shown = found->second;
    shown_.erase(found);
    space.unmap(shown.address, shown.size);
    space.release(shown.address);
    space.revise();
    // Private again: else children that the program forks would write into its memory.
    if (shown.moved) take_place(copied(host, shown.size, MAP_PRIVATE), shown.size, host);
    return true;
}

void *ReachedMemory::device_address(const void *host) const {
    const std::lock_guard lock(mutex_);
    const auto at = reinterpret_cast<uintptr_t>(host);
    const auto after = shown_.upper_bound(at);
    if (after == shown_.begin()) return nullptr;
    const auto &[start, shown] = *std::prev(after);
    return at - start < shown.size ? shown.address + (at - start) : nullptr;
}

std::optional<Allocation> ReachedMemory::allocation(const void *address) const {
    const std::lock_guard lock(mutex_);
    const auto *at = static_cast<const std::byte *>(address);
    for (const auto &[host, shown] : shown_)
        if (at >= shown.address && at < shown.address + shown.size)
            return Allocation{reinterpret_cast<uintptr_t>(shown.address), shown.size, kAnyDevice};
    return std::nullopt;
}

}  // namespace vnpu
