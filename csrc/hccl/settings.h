// Time-outs and sizes of the environment.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "device/doorbell.h"

namespace vnpu::hccl {

// HCCL_EXEC_TIMEOUT: seconds that a collective waits for others; 0 = for ever (none); CANN's default is 1836.
std::optional<Clock::duration> exec_timeout();
// HCCL_CONNECT_TIMEOUT: seconds that a new communicator waits for its ranks; CANN's default is 120.
std::chrono::seconds connect_timeout();
// HCCL_BUFFSIZE: bytes of each of a communicator's two buffers, from megabytes; HCCL's default is 200.
uint64_t buffer_size();
// The same from HcclCommConfig::hcclBufferSize. Fault InvalidArgument.
uint64_t buffer_size(uint32_t megabytes);

}  // namespace vnpu::hccl
