// Failures on the device that no call has reported: an operator runs after its launch has returned, and a program that
// ends without waiting for it never learns that it has failed.
#pragma once

#include "device/fault.h"

namespace vnpu {

void unseen(const Fault &failure);
// A call reports it to the program.
void seen(const Fault &failure) noexcept;

}  // namespace vnpu

// For who runs a program and looks up the name in libvnpu.so, when the program's own code is over: what is reported
// from now on is not seen by it (torch_npu waits for its devices at exit, with a warning). If the process would end
// with 0 and there is a failure that the program has not seen, it ends with 1 instead and stderr names the first.
extern "C" void vnpuFailUnlessSeen() noexcept;
