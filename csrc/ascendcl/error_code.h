// The runtime's code for a kind of failure, for who reports one that no call gives back.
#pragma once

#include <acl/acl_base_rt.h>

#include "device/fault.h"

namespace vnpu::acl {

[[gnu::visibility("default")]] aclError code_of(FaultKind kind);

}  // namespace vnpu::acl
