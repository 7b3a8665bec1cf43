// What becomes of floating-point results beyond their dtype's range, as the device is set: infinities and nan, or the
// largest finite value and 0 (saturation, the only mode of older chips). In saturation a status per device remembers
// that it has happened; programs read and clear it where others would look for infinities.
#pragma once

#include <atomic>

namespace vnpu {

enum class OverflowMode { Saturate, InfNan };

// CANN keeps the status twice, each read and cleared by operators of its own (NPUGetFloatStatusV2 and
// NPUGetFloatDebugStatus), which its pages describe by one sentence: "the value of global workspace".
enum class OverflowStatus { Ordinary, Debug };

namespace detail {
extern std::atomic<bool> saturates;
}

// Whether results saturate. Read after every kernel.
inline bool saturates() noexcept { return detail::saturates.load(std::memory_order_relaxed); }
// For all devices of the process. Fault Unsupported when the chip has no inf and nan.
void set_overflow_mode(OverflowMode mode);

// The status of the device whose stream's worker is the calling thread; an overflow raises both.
void raise_overflow() noexcept;
bool overflowed(OverflowStatus which = OverflowStatus::Ordinary) noexcept;
void clear_overflow(OverflowStatus which = OverflowStatus::Ordinary) noexcept;

}  // namespace vnpu
