// VNPU_MODE=dry: operators are checked and queued as ever, and no kernel runs. Device memory holds no results then, so
// it takes none of this machine's; only what the program itself has put there is kept, up to kCarried bytes a copy
// (indices, masks, scalars). What it reads of anything else is zero.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vnpu::dry {

// Copies up to this size carry their bytes, larger ones are counted alone.
inline constexpr uint64_t kCarried = 1ull << 20;

// Reads VNPU_DRY_COUNTS. Fault InvalidArgument names the variable and what is allowed.
void begin(bool dry);
bool on() noexcept;

// How many elements the next operator finds whose result's size depends on data, of at most so many: what
// VNPU_DRY_COUNTS says in its turn, else VNPU_DRY_SHARE of them.
int64_t found(int64_t most);

// Device memory that a copy from the host has filled; and that a kernel would have written, had it run.
void uploaded(const void *address, uint64_t bytes);
void computed(const void *address, uint64_t bytes);
// Whether the program has put all that is there.
bool known(const void *address, uint64_t bytes);

// A copy between these two kernels' views, as far as it carries; `to_device` and `from_device` say what they are.
void copy(std::byte *to, const std::byte *from, uint64_t bytes, bool to_device, bool from_device);

void fill(std::byte *to, int value, uint64_t bytes);  // the same of device memory that is set

}  // namespace vnpu::dry

// For programs that look up the name in libvnpu.so: how often values have been read that no kernel has computed.
extern "C" uint64_t vnpuUnknownReads() noexcept;
