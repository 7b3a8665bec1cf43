#include "device/sum_order.h"

#include <algorithm>
#include <numeric>

namespace vnpu {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014): every state is a good one, so that a seed may be any number.
uint64_t next(uint64_t &state) {
    uint64_t value = state += 0x9e3779b97f4a7c15;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
}

uint64_t start(uint64_t seed, int64_t count) { return next(seed) + static_cast<uint64_t>(count); }

}  // namespace

std::vector<int64_t> sum_order(uint64_t seed, int64_t count) {
    std::vector<int64_t> order(static_cast<size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    uint64_t state = start(seed, count);
    for (size_t left = order.size(); left > 1; --left) std::swap(order[left - 1], order[next(state) % left]);
    if (count > 2 && std::is_sorted(order.begin(), order.end()))
        std::rotate(order.begin(), order.begin() + 1, order.end());
    return order;
}

int64_t sum_cut(uint64_t seed, int64_t count) {
    uint64_t state = start(seed, count);
    return 1 + static_cast<int64_t>(next(state) % static_cast<uint64_t>(count - 1));
}

}  // namespace vnpu
