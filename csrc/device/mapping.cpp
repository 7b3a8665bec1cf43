#include "device/mapping.h"

#include "device/fault.h"

namespace vnpu {

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
    space_.map(address, size, memory->heap().file(), memory->offset() + offset);
    live_.emplace(at, Mapping{size, std::move(memory)});
}

void Mappings::unmap(void *address) {
    const std::lock_guard lock(mutex_);
    const auto it = live_.find(reinterpret_cast<uintptr_t>(address));
    if (it == live_.end()) fail(FaultKind::InvalidAddress, "No mapping starts at {}.", address);
    space_.unmap(address, it->second.size);
    live_.erase(it);
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

size_t Mappings::extent(const void *address) const {
    const std::lock_guard lock(mutex_);
    auto it = find(address);
    if (it == live_.end()) return 0;
    uintptr_t end = it->first + it->second.size;
    for (++it; it != live_.end() && it->first == end; ++it) end += it->second.size;
    return end - reinterpret_cast<uintptr_t>(address);
}

int Mappings::device_at(const void *address) const {
    const std::lock_guard lock(mutex_);
    const auto it = find(address);
    return it == live_.end() ? -1 : it->second.memory->device();
}

}  // namespace vnpu
