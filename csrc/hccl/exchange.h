// Moves bytes between this rank and others until everything has arrived. All directions advance together, so that no
// order of sends and receives on the ranks can lock them up.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "hccl/reduction.h"
#include "hccl/transport.h"

namespace vnpu::hccl {

struct Piece {
    int peer;
    std::byte *at;
    size_t bytes;
    std::function<void()> arrived = {};  // of a receive: looks at what came before more is read
};

// Every rank's contribution combined in the order of the ranks, or of VNPU_SUM_ORDER, so that the result does not
// depend on timing: `own` and `bytes` from every peer.
struct Fold {
    const Reduction *reduction;
    const std::byte *own;
    std::byte *out;
    size_t bytes;
};

// What happens at the same time. Pieces for one peer go in their order.
struct Round {
    std::vector<Piece> sends, receives;
    std::optional<Fold> fold;
    bool settle = false;  // whether a send is over only when the receiver has taken it
};

// How long nothing may move (none: for ever), and what says so. Asked again and again: it may change meanwhile.
struct Limit {
    std::optional<Clock::duration> span;
    const char *reason;
};
using Patience = std::function<Limit()>;

// Faults: RankGone when a peer that is needed is gone, RankSilent when the limit is reached.
void exchange(Transport &transport, const Round &round, const Patience &patience);

}  // namespace vnpu::hccl
