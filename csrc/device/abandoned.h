// Devices to which the program's framework launches nothing any more, although the program goes on.
//
// torch_npu (2.13) launches from a thread of its own. At the first call that fails there the thread ends; torch_npu
// raises that error once, at its next look, and drops every later operator without a word. What the program then reads
// was never computed. So the device remembers the first failure, and whoever waits for the device or copies from it to
// the host gets it, until the device is reset.
#pragma once

#include "device/fault.h"

namespace vnpu {

// `cause` stands for the device from now on, unless an earlier one does.
void abandon(int device, const Fault &cause);
// Throws the cause where there is one.
void refuse_abandoned(int device);
// The device was reset.
void forget_abandoned(int device) noexcept;

}  // namespace vnpu
