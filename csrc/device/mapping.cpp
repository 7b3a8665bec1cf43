#include "device/mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "device/fault.h"

namespace vnpu {
namespace {

int host_file(size_t size) {
    const int file = memfd_create("vnpu-pinned", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, static_cast<off_t>(size)) == 0) return file;
    const int why = errno;
    if (file >= 0) close(file);
    fail(FaultKind::HostOutOfMemory, "{} bytes of host memory could not be made: {}.", size, std::strerror(why));
}

}  // namespace

PhysicalMemory::PhysicalMemory(size_t size) : size_(size), file_(host_file(size)) {}

PhysicalMemory::~PhysicalMemory() {
    if (on_host())
        close(file_);
    else
        heap_->free_physical(offset_);
}

void Mappings::map(void *address, size_t size, size_t offset, std::shared_ptr<PhysicalMemory> memory) {
    const std::lock_guard lock(mutex_);
    if (offset > memory->size() || size > memory->size() - offset)
        fail(FaultKind::OutOfBounds, "Mapping {} bytes at offset {} runs past physical memory of {} bytes.", size,
             offset, memory->size());
    if (space_.reserved_from(address) < size)
        fail(FaultKind::OutOfBounds, "Mapping {} bytes at {} runs past the reserved address range.", size, address);
    const auto at = reinterpret_cast<uintptr_t>(address);
    const auto next = live_.lower_bound(at);
    const bool overlaps_next = next != live_.end() && next->first < at + size;
    const bool overlaps_before = next != live_.begin() && std::prev(next)->first + std::prev(next)->second.size > at;
    if (overlaps_next || overlaps_before)
        fail(FaultKind::InvalidArgument, "Memory is mapped in the {} bytes at {} already.", size, address);
    if (memory->on_host())
        space_.map_for_host(address, size, memory->file(), offset);
    else
        space_.map(address, size, memory->file(), memory->offset() + offset);
    live_.emplace(at, Mapping{size, std::move(memory)});
}

void Mappings::unmap(void *address) {
    const std::lock_guard lock(mutex_);
    const auto it = live_.find(reinterpret_cast<uintptr_t>(address));
    if (it == live_.end()) fail(FaultKind::InvalidAddress, "No mapping starts at {}.", address);
    if (it->second.memory->on_host())
        space_.unmap_for_host(address, it->second.size);
    else
        space_.unmap(address, it->second.size);
    live_.erase(it);
    space_.revise();
}

bool Mappings::any(const void *address, size_t size) const {
    const std::lock_guard lock(mutex_);
    const auto start = reinterpret_cast<uintptr_t>(address);
    const auto next = live_.lower_bound(start);
    if (next != live_.end() && next->first < start + size) return true;
    return next != live_.begin() && std::prev(next)->first + std::prev(next)->second.size > start;
}

Mappings::Table::const_iterator Mappings::find(const void *address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    auto it = live_.upper_bound(at);
    if (it == live_.begin()) return live_.end();
    --it;
    return at < it->first + it->second.size ? it : live_.end();
}

// The run of one device's touching mappings around one.
Allocation Mappings::run(Table::const_iterator first) const {
    const int device = first->second.memory->device();
    const auto touch = [device](const auto &before, const auto &after) {
        return before->first + before->second.size == after->first && before->second.memory->device() == device &&
               after->second.memory->device() == device;
    };
    auto last = first;
    while (first != live_.begin() && touch(std::prev(first), first)) --first;
    while (std::next(last) != live_.end() && touch(last, std::next(last))) ++last;
    return {first->first, last->first + last->second.size - first->first, device};
}

std::optional<Allocation> Mappings::allocation(const void *address) const {
    const std::lock_guard lock(mutex_);
    const auto it = find(address);
    return it == live_.end() || it->second.memory->on_host() ? std::nullopt : std::optional(run(it));
}

std::string Mappings::why_dead(const void *address) const {
    const std::lock_guard lock(mutex_);
    const auto at = reinterpret_cast<uintptr_t>(address);
    const auto after = live_.upper_bound(at);
    if (const auto here = find(address); here != live_.end() && here->second.memory->on_host())
        return "host memory is mapped there";
    if (after == live_.begin() || std::prev(after)->second.memory->on_host()) return "nothing is mapped there";
    const Allocation before = run(std::prev(after));
    return fmt::format("nothing is mapped there, and {} ends {} bytes before", describe(before),
                       at - before.start - before.size);
}

bool Mappings::on_host(const void *address, size_t size) const {
    const std::lock_guard lock(mutex_);
    auto at = reinterpret_cast<uintptr_t>(address);
    const uintptr_t end = at + size;
    for (auto it = find(address); it != live_.end() && it->first <= at && it->second.memory->on_host(); ++it) {
        at = it->first + it->second.size;
        if (at >= end) return true;
    }
    return false;
}

int Mappings::device_at(const void *address) const {
    const std::lock_guard lock(mutex_);
    const auto it = find(address);
    return it == live_.end() ? -1 : it->second.memory->device();
}

}  // namespace vnpu
