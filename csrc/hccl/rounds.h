// What goes from rank to rank in collectives that both the program's calls and operators run.
#pragma once

#include "hccl/exchange.h"

namespace vnpu::hccl {

// Each rank reduces one slice and tells all others the result. `from` and `to` may be the same.
std::vector<Round> all_reduce(int rank, int ranks, std::byte *from, std::byte *to, uint64_t count,
                              const Reduction &how);

}  // namespace vnpu::hccl
