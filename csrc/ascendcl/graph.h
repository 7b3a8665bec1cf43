// Graph capture, for the other files of the runtime.
#pragma once

#include "device/stream.h"

namespace vnpu::acl {

// Throws CANN's 107027 (stream is captured) for a call that waits, which a captured stream cannot answer: `what` names
// it.
void outside_capture(const Stream &stream, const char *what);

}  // namespace vnpu::acl
