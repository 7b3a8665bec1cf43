// How long things may take, as the program set it.
#pragma once

#include <chrono>
#include <optional>

namespace vnpu::acl {

// What aclrtSetOpWaitTimeout allows a stream to wait for an event; none: for ever.
std::optional<std::chrono::milliseconds> wait_limit();
// What aclrtSetOpExecuteTimeOut allows an operator: for those that wait for the program. None: CANN's default, which is
// not enforced.
[[gnu::visibility("default")]] std::optional<std::chrono::microseconds> execute_limit();

}  // namespace vnpu::acl
