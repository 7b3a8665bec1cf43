// Which NPU's memory the kernels of another may use: that of those only whose access has been asked for.
#pragma once

namespace vnpu {

void open_peer(int device, int peer) noexcept;
void close_peer(int device, int peer) noexcept;

// Whether kernels on `device` reach the memory of `owner`: its own, or that of a peer that has been opened to it.
bool reaches(int device, int owner) noexcept;

}  // namespace vnpu
