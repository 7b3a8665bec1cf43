// What becomes of floating-point results beyond their dtype's range, as the device is set: infinities and nan, or the
// largest finite value and 0 (saturation, the only mode of older chips). In saturation a status per device remembers
// that it has happened; programs read and clear it where others would look for infinities.
#pragma once

#include <atomic>

namespace vnpu {

enum class OverflowMode { Saturate, InfNan };

namespace detail {
extern std::atomic<bool> saturates;
}

// Whether results saturate. Read after every kernel.
inline bool saturates() noexcept { return detail::saturates.load(std::memory_order_relaxed); }
// For all devices of the process. Fault Unsupported when the chip has no inf and nan.
void set_overflow_mode(OverflowMode mode);

// The status of the device whose stream's worker is the calling thread.
void raise_overflow() noexcept;
bool overflowed() noexcept;
void clear_overflow() noexcept;

}  // namespace vnpu
