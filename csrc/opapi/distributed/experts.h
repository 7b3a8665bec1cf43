// Which rank has which expert of a mixture, and which tokens go there: of the dispatch of tokens to experts and of its
// way back.
#pragma once

#include <string>
#include <vector>

#include "opapi/distributed/group.h"

namespace vnpu::opapi {

// Ranks with a copy of a shared expert come first, `shared_ranks / shared` of them for each; the other ranks have as
// many experts each, in their order.
struct Experts {
    std::string group;
    int64_t ranks, rank, routed, shared, shared_ranks;
    std::string tensor_group;
    int64_t tensor_ranks, tensor_rank, shard_type, global_tokens;
    std::string algorithm = {};
    int64_t zero = 0, copies = 0, constants = 0;  // numbers that stand for no rank's expert, behind the routed ones

    int64_t special() const { return zero + copies + constants; }
    bool has_shared() const { return rank < shared_ranks; }
    int64_t each() const { return routed / (ranks - shared_ranks); }  // routed experts of a rank that has them
    int64_t here() const { return has_shared() ? 1 : each(); }        // places on this rank
    // Ranks that have a copy of one shared expert.
    int64_t per_shared() const { return shared_ranks / shared; }
    // Shared experts that tokens go to.
    int64_t to_shared() const { return shared_ranks > 0 ? shared : 0; }
    int64_t places() const { return shared_ranks + routed; }
    int64_t places_on(int64_t peer) const { return peer < shared_ranks ? 1 : each(); }
    int64_t first_place(int64_t peer) const {
        return peer < shared_ranks ? peer : shared_ranks + (peer - shared_ranks) * each();
    }
    // The most tokens of a rank, and the most rows that can come to this one, for `k` experts a token.
    int64_t most_tokens(int64_t tokens) const { return global_tokens == 0 ? tokens : global_tokens / ranks; }
    int64_t most_rows(int64_t tokens, int64_t k) const;
};

// What both ways check of the first phase: the numbers, the ids, the mask, the size of what a row is. `first`: the
// first version of the operators, which has narrower limits on A3.
void check_experts(const Experts &experts, bool first, const Operand &ids, const Operand &active, int64_t width);

// For each place, in order, the rows of this rank that go there: token * (k + shared) + which of the token's experts,
// the shared ones last. Fault OutOfBounds for an id that is no expert's.
std::vector<std::vector<int64_t>> places(const Experts &experts, const at::Tensor &ids, const at::Tensor &active);
// In the first phase, of what CANN's versions 3 and 4 have beyond the virtual NPU: groups that shrink, times of the
// ranks.
void check_not_offered(const Operand &elastic);
void check_not_timed(const Operand &performance);

// Which tokens take part, as bool; of a mask of pairs those that have one.
at::Tensor taking_part(const at::Tensor &ids, const at::Tensor &active);

}  // namespace vnpu::opapi

// The parameters' names are the same in each version, which adds some.
#define EXPERTS                                                                                                   \
    Experts {                                                                                                     \
        groupEp, epWorldSize, epRankId, moeExpertNum, sharedExpertNum, sharedExpertRankNum, groupTp, tpWorldSize, \
            tpRankId, expertShardType, globalBs                                                                   \
    }
#define EXPERTS_V2                                                                                                \
    Experts {                                                                                                     \
        groupEp, epWorldSize, epRankId, moeExpertNum, sharedExpertNum, sharedExpertRankNum, groupTp, tpWorldSize, \
            tpRankId, expertShardType, globalBs, commAlg                                                          \
    }
#define EXPERTS_V3                                                                                                \
    Experts {                                                                                                     \
        groupEp, epWorldSize, epRankId, moeExpertNum, sharedExpertNum, sharedExpertRankNum, groupTp, tpWorldSize, \
            tpRankId, expertShardType, globalBs, commAlg, zeroExpertNum, copyExpertNum, constExpertNum            \
    }
