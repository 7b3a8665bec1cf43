// The virtual clock: what each task would take on the chip. Every stream has a clock of its own and the program's
// threads have one together, which a launch moves on by what it costs the host and a wait for a stream by what that is
// ahead. Nothing of this machine's time is in it, so the same program gives the same times everywhere.
//
// Times are nanoseconds since the process began to use the device. The constants are the chip's, in devices.toml with a
// source each.
#pragma once

#include <cstdint>

#include "device/chip.h"
#include "device/description.h"

namespace vnpu {

namespace clocks {

// Nanoseconds that the chip takes for the work; `ranks` of a collective, `across`: between machines.
int64_t duration(const Chip &chip, const Work &work, int ranks = 1, bool across = false) noexcept;

// Whose constants launches are counted with, from the start of the machine on.
void begin(const Chip &chip) noexcept;

// The program's clock.
int64_t host() noexcept;
// A launch: the program's clock after it.
int64_t launch(bool kernel) noexcept;
// The program has waited for what was over at that time.
void waited(int64_t until) noexcept;

// Whether ranks of this job are on several machines (LOCAL_WORLD_SIZE < WORLD_SIZE).
bool several_machines() noexcept;

}  // namespace clocks
}  // namespace vnpu
