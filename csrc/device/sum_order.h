// The order in which sums are added where VNPU_SUM_ORDER asks for another one than the CPU's: a permutation of the
// terms for each length, the same at each call, as a device's own order is.
#pragma once

#include <cstdint>
#include <vector>

namespace vnpu {

// A permutation of 0 to count - 1, which depends on the seed and the count alone. From three on it is not the identity.
std::vector<int64_t> sum_order(uint64_t seed, int64_t count);

// A place to cut a sum of `count` terms, two or more, in two: from 1 to count - 1.
int64_t sum_cut(uint64_t seed, int64_t count);

}  // namespace vnpu
