#include "hccl/rounds.h"

#include <algorithm>

namespace vnpu::hccl {

std::vector<Round> all_reduce(int rank, int ranks, std::byte *from, std::byte *to, uint64_t count,
                              const Reduction &how) {
    const auto all = static_cast<uint64_t>(ranks);
    const uint64_t slice = padded((count + all - 1) / all * how.element);
    const auto start = [&](int peer) { return std::min(static_cast<uint64_t>(peer) * slice, count * how.element); };
    const auto bytes = [&](int peer) { return start(peer + 1) - start(peer); };
    Round reduce, spread;
    reduce.fold = Fold{&how, from + start(rank), to + start(rank), bytes(rank)};
    for (int peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        reduce.sends.push_back({peer, from + start(peer), bytes(peer)});
        spread.sends.push_back({peer, to + start(rank), bytes(rank)});
        spread.receives.push_back({peer, to + start(peer), bytes(peer)});
    }
    return {std::move(reduce), std::move(spread)};
}

}  // namespace vnpu::hccl
