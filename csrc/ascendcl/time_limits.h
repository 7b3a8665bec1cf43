// How long things may take, as the program set it.
#pragma once

#include <chrono>
#include <optional>

namespace vnpu::acl {

// What aclrtSetOpWaitTimeout allows a stream to wait for an event; none: for ever.
std::optional<std::chrono::milliseconds> wait_limit();

}  // namespace vnpu::acl
