#include "device/overflow.h"

#include <array>

#include "device/machine.h"

namespace vnpu {
namespace {

std::array<std::array<std::atomic<bool>, 2>, 64> status{};  // by device; VNPU_DEVICES is at most 64

std::atomic<bool> &current(OverflowStatus which) noexcept {
    const Stream *stream = current_worker();
    return status[stream == nullptr ? 0 : static_cast<size_t>(stream->device())][static_cast<size_t>(which)];
}

}  // namespace

std::atomic<bool> detail::saturates{false};

void set_overflow_mode(OverflowMode mode) {
    const Chip &chip = *Machine::instance().settings().chip;
    if (mode == OverflowMode::InfNan && !chip.inf_nan)
        fail(FaultKind::Unsupported, "{} has no inf and nan mode: its floating-point results always saturate.",
             chip.name);
    detail::saturates.store(mode == OverflowMode::Saturate);
}

void raise_overflow() noexcept {
    for (const OverflowStatus which : {OverflowStatus::Ordinary, OverflowStatus::Debug}) current(which).store(true);
}
bool overflowed(OverflowStatus which) noexcept { return current(which).load(); }
void clear_overflow(OverflowStatus which) noexcept { current(which).store(false); }

}  // namespace vnpu
