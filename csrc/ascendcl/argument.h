// Checks of arguments that every function needs.
#pragma once

#include <optional>

#include "device/doorbell.h"
#include "device/fault.h"

namespace vnpu::acl {

// Fault NullArgument, naming the parameter.
inline void not_null(const void *pointer, const char *name) {
    if (pointer == nullptr) fail(FaultKind::NullArgument, "{} is null.", name);
}

template <class T>
T &required(T *pointer, const char *name) {
    not_null(pointer, name);
    return *pointer;
}

// CANN's time-outs: milliseconds, -1 waits for ever.
inline Deadline deadline(int32_t milliseconds) {
    if (milliseconds < -1)
        fail(FaultKind::InvalidArgument, "timeout is {}; it is a number of milliseconds, or -1 to wait for ever.",
             milliseconds);
    if (milliseconds == -1) return std::nullopt;
    return Clock::now() + std::chrono::milliseconds(milliseconds);
}

}  // namespace vnpu::acl
