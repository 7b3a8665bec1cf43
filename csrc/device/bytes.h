// Arithmetic with sizes that a caller gave: what no address could count is a Fault that names the parameter, never a
// small number that wrapped around.
#pragma once

#include <cstdint>

#include "device/fault.h"

namespace vnpu::bytes {

constexpr uint64_t sum(uint64_t a, uint64_t b, const char *name) {
    uint64_t all = 0;
    if (__builtin_add_overflow(a, b, &all))
        fail(FaultKind::InvalidArgument, "{} reaches {} + {} bytes, further than an address can count.", name, a, b);
    return all;
}

constexpr uint64_t product(uint64_t count, uint64_t each, const char *name) {
    uint64_t all = 0;
    if (__builtin_mul_overflow(count, each, &all))
        fail(FaultKind::InvalidArgument, "{} is {} times {} bytes, more than an address can count.", name, count, each);
    return all;
}

// The multiple of `grain` that is not smaller than `size`.
constexpr uint64_t round_up(uint64_t size, uint64_t grain, const char *name) {
    const uint64_t over = size % grain;
    if (over != 0 && size > UINT64_MAX - (grain - over))
        fail(FaultKind::InvalidArgument, "{} is {} bytes, more than an address can count.", name, size);
    return over == 0 ? size : size + (grain - over);
}

}  // namespace vnpu::bytes
