#include "device/reached.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>

#include "device/bytes.h"
#include "device/live_memory.h"

namespace vnpu {
namespace {

constexpr size_t kPage = 4096;
constexpr AddressSpace::Owner kOurs = AddressSpace::Owner::Runtime;

struct Unmap {
    size_t size;
    void operator()(void *pages) const noexcept { munmap(pages, size); }
};
using Mapped = std::unique_ptr<void, Unmap>;

void read_again(std::byte *from, size_t size, void *into) {
    for (size_t done = 0; done < size;) {
        const iovec to{static_cast<std::byte *>(into) + done, size - done};
        const iovec source{from + done, size - done};
        // A system call: what cannot be read is an error, no signal.
        const ssize_t got = process_vm_readv(getpid(), &to, 1, &source, 1, 0);
        if (got <= 0)
            fail(FaultKind::InvalidAddress, "Of the {} bytes of host memory at {} only {} can be read: {}.", size,
                 static_cast<void *>(from), done, std::strerror(errno));
        done += static_cast<size_t>(got);
    }
}

// A copy of the program's pages in pages of their own.
Mapped copied(std::byte *from, size_t size, int sharing) {
    void *pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        fail(FaultKind::HostOutOfMemory, "{} bytes of host memory could not be made: {}.", size, std::strerror(errno));
    Mapped copy(pages, Unmap{size});
    read_again(from, size, pages);
    return copy;
}

// Puts copied pages in the place of the program's. The last one may hold something else behind what was registered,
// which another thread writes meanwhile: it is read once more, as late as can be.
void take_place(Mapped copy, size_t size, std::byte *of) {
    read_again(of + size - kPage, kPage, static_cast<std::byte *>(copy.get()) + size - kPage);
    if (mremap(copy.get(), size, size, MREMAP_MAYMOVE | MREMAP_FIXED, of) == MAP_FAILED)
        fail(FaultKind::HostOutOfMemory, "{} bytes of host memory could not be moved to {}: {}.", size,
             static_cast<void *>(of), std::strerror(errno));
    (void)copy.release();
}

// The same pages at a second place: a mapping that is shared, moved from a length of 0.
void repeat(std::byte *pages, size_t size, std::byte *place) {
    if (mremap(pages, 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, place) == MAP_FAILED)
        fail(FaultKind::HostOutOfMemory, "{} bytes of host memory at {} cannot be mapped for the devices: {}.", size,
             static_cast<void *>(pages), std::strerror(errno));
}

struct Mapping {
    uintptr_t at;
    size_t size;
    bool shared;
};

// What the program has mapped in these pages, in order. Fault InvalidAddress where nothing is that can be read.
std::vector<Mapping> mappings(uintptr_t at, size_t size) {
    std::vector<Mapping> found;
    uintptr_t next = at;
    std::ifstream lines("/proc/self/maps");
    for (std::string line; next < at + size && std::getline(lines, line);) {
        unsigned long start = 0, end = 0;
        std::array<char, 5> rights{};
        if (std::sscanf(line.c_str(), "%lx-%lx %4s", &start, &end, rights.data()) != 3 || end <= next) continue;
        if (start > next || rights[0] != 'r') break;
        const uintptr_t until = std::min<uintptr_t>(end, at + size);
        found.push_back({next, until - next, rights[3] == 's'});
        next = until;
    }
    if (next < at + size)
        fail(FaultKind::InvalidAddress, "Of the {} bytes of host memory at {:#x} only {} can be read.", size, at,
             next - at);
    return found;
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
    const std::vector<Mapping> pieces = mappings(at, size);
    auto *address = static_cast<std::byte *>(space.reserve(size, kOurs));
    std::vector<Pages> moved;
    moved.reserve(pieces.size());  // nothing is allocated while pages are replaced that may be the heap's
    try {
        for (const Mapping &piece : pieces) {
            auto *pages = reinterpret_cast<std::byte *>(piece.at);
            std::byte *alias = space.alias(address) + (piece.at - at);
            if (piece.shared) {
                repeat(pages, piece.size, alias);
                continue;
            }
            Mapped copy = copied(pages, piece.size, MAP_SHARED);
            repeat(static_cast<std::byte *>(copy.get()), piece.size, alias);
            moved.push_back({pages, piece.size});
            take_place(std::move(copy), piece.size, pages);
        }
    } catch (...) {
        space.unmap(address, size);
        space.release(address, kOurs);
        move_back(moved);
        throw;
    }
    shown_.emplace(at, Shown{address, size, std::move(moved)});
    return address;
}

// Private again: else children that the program forks would write into its memory.
void ReachedMemory::move_back(const std::vector<Pages> &moved) {
    for (const Pages &pages : moved) take_place(copied(pages.at, pages.size, MAP_PRIVATE), pages.size, pages.at);
}

bool ReachedMemory::hide(AddressSpace &space, void *host) {
    const std::lock_guard lock(mutex_);
    const auto found = shown_.find(reinterpret_cast<uintptr_t>(host));
    if (found == shown_.end()) return false;
    const Shown shown = std::move(found->second);
    shown_.erase(found);
    space.unmap(shown.address, shown.size);
    space.release(shown.address, kOurs);
    space.revise();
    move_back(shown.moved);
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
