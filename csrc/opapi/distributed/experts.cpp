#include "opapi/distributed/experts.h"

#include "opapi/aclnn/limits.h"

namespace vnpu::opapi {
namespace {

// What the two chips' kernels allow (ops-transformer: moe_distribute_dispatch_tiling.cpp,
// moe_distribute_dispatch_v2_tiling.cpp).
void check_910b(const Experts &experts, const Operand &ids, const Operand &active, int64_t width) {
    const bool layered = experts.algorithm == "hierarchy";
    tiled(layered || experts.algorithm.empty() || experts.algorithm == "0" || experts.algorithm == "fullmesh",
          "parameter commAlg is \"{}\", allowed are fullmesh and hierarchy", experts.algorithm);
    tiled(experts.ranks > 0 && experts.ranks <= 256 && experts.ranks % 8 == 0,
          "parameter epWorldSize is {}, allowed are multiples of 8 up to 256", experts.ranks);
    tiled(experts.shared_ranks == 0, "parameter sharedExpertRankNum is {}, allowed is 0", experts.shared_ranks);
    tiled(experts.routed > 0 && experts.routed <= 512 && experts.routed % experts.ranks == 0,
          "parameter moeExpertNum is {}, allowed are multiples of epWorldSize ({}) up to 512", experts.routed,
          experts.ranks);
    tiled(layered || experts.each() <= 24, "parameter moeExpertNum is {}, allowed are 24 a rank", experts.routed);
    tiled(experts.special() == 0, "zeroExpertNum, copyExpertNum and constExpertNum are allowed to be 0");
    tiled(width > 0 && width % 32 == 0 && width <= (layered ? 10240 : 7168),
          "a token has {} elements, allowed are multiples of 32 up to {}", width, layered ? 10240 : 7168);
    tiled(ids.size(0) > 0 && ids.size(0) <= 256, "there are {} tokens, allowed are 1 to 256", ids.size(0));
    tiled(ids.size(1) > 0 && ids.size(1) <= 16, "a token has {} experts, allowed are 1 to 16", ids.size(1));
    tiled(!active.defined() || active.dim() == 1, "parameter {} is {}, allowed is one dimension", active.parameter(),
          active.defined() ? describe(active) : "");
}

void check_a3(const Experts &experts, bool first, const Operand &ids, int64_t width) {
    const int64_t most_experts = first ? 512 : 1024;
    tiled(experts.ranks >= 2 && experts.ranks <= 768, "parameter epWorldSize is {}, allowed are 2 to 768",
          experts.ranks);
    tiled(!first || (experts.ranks % 8 == 0 && (256 % experts.ranks == 0 || experts.ranks % 144 == 0)),
          "parameter epWorldSize is {}, allowed are 8, 16, 32, 64, 128, 144, 256 and 288", experts.ranks);
    tiled(experts.tensor_ranks >= 0 && experts.tensor_ranks <= 2, "parameter tpWorldSize is {}, allowed are 0 to 2",
          experts.tensor_ranks);
    tiled(experts.tensor_ranks == 2 || experts.tensor_rank == 0, "parameter tpRankId is {}, allowed is 0",
          experts.tensor_rank);
    tiled(experts.shard_type == 0, "parameter expertShardType is {}, allowed is 0 (shared experts come first)",
          experts.shard_type);
    tiled(experts.shared_ranks >= 0 && experts.shared_ranks < experts.ranks,
          "parameter sharedExpertRankNum is {}, allowed are 0 to {}", experts.shared_ranks, experts.ranks - 1);
    tiled(first ? experts.shared == 1 : experts.shared >= 0 && experts.shared <= 4,
          "parameter sharedExpertNum is {}, allowed are {}", experts.shared, first ? "1" : "0 to 4");
    tiled(experts.shared_ranks == 0 ? experts.shared <= 1
                                    : experts.shared > 0 && experts.shared_ranks % experts.shared == 0,
          "{} shared experts are on {} ranks, as many on each", experts.shared, experts.shared_ranks);
    tiled(experts.routed > 0 && experts.routed <= most_experts &&
              experts.routed % (experts.ranks - experts.shared_ranks) == 0,
          "parameter moeExpertNum is {}, allowed are multiples of {} up to {}", experts.routed,
          experts.ranks - experts.shared_ranks, most_experts);
    tiled(experts.zero >= 0 && experts.copies >= 0 && experts.constants >= 0,
          "zeroExpertNum, copyExpertNum and constExpertNum are {}, {} and {}, which cannot be negative", experts.zero,
          experts.copies, experts.constants);
    tiled(first ? width == 7168 : width >= 1024 && width <= 8192, "a token has {} elements, allowed are {}", width,
          first ? "7168" : "1024 to 8192");
    tiled(ids.size(0) > 0 && ids.size(0) <= 512, "there are {} tokens, allowed are 1 to 512", ids.size(0));
    tiled(ids.size(1) > 0 && ids.size(1) <= (first ? 8 : 16) && ids.size(1) <= experts.routed + experts.special(),
          "a token has {} experts of {}, allowed are 1 to {}", ids.size(1), experts.routed + experts.special(),
          first ? 8 : 16);
    if (experts.tensor_ranks == 2)
        fail(FaultKind::Unsupported, "The virtual NPU has no second group (groupTp) for the dispatch of tokens.");
}

// (ops-transformer: moe_distribute_dispatch_v2_tiling.cpp, CheckWinSize, and the first version's)
void check_buffer(const Experts &experts, bool first, const hccl::OperatorGroup &ranks, int64_t tokens, int64_t k,
                  int64_t width) {
    const auto up = [](int64_t size, int64_t grain) { return (size + grain - 1) / grain * grain; };
    const int64_t most = experts.most_tokens(tokens);
    const int64_t row = up(up(width * 2, 32) + 44, 512), back = up(width * 2, 512);
    const int64_t needed = first
                               ? experts.ranks * most * width * 2 * 2 * experts.each()
                               : 2 * (most * row * experts.ranks * experts.each() + most * back * (k + experts.shared));
    tiled(needed <= static_cast<int64_t>(ranks.buffer_size()),
          "HCCL_BUFFSIZE is {} MB, the rows of {} tokens on {} ranks need {}", ranks.buffer_size() >> 20, most,
          experts.ranks, (needed >> 20) + 1);
}

}  // namespace

int64_t Experts::most_rows(int64_t tokens, int64_t k) const {
    const int64_t most = most_tokens(tokens);
    if (has_shared()) return most * ((ranks + per_shared() - 1) / per_shared());
    return most * ranks * std::min(each(), k);
}

void check_experts(const Experts &experts, bool first, const Operand &ids, const Operand &active, int64_t width) {
    tiled(ids.dim() == 2, "parameter expertIds is {}, expected two dimensions", describe(ids));
    tiled(!active.defined() || (active.dim() == 1 && active.size(0) == ids.size(0)) || active.sizes() == ids.sizes(),
          "parameter {} is {}, expected one value for each of {} tokens or of their experts", active.parameter(),
          active.defined() ? describe(active) : "", ids.size(0));
    tiled(experts.rank >= 0 && experts.rank < experts.ranks, "parameter epRankId is {}, allowed are 0 to {}",
          experts.rank, experts.ranks - 1);
    if (is_a3())
        check_a3(experts, first, ids, width);
    else
        check_910b(experts, ids, active, width);
    tiled(experts.global_tokens == 0 ||
              (experts.global_tokens >= ids.size(0) * experts.ranks && experts.global_tokens % experts.ranks == 0),
          "parameter globalBs is {}, allowed are 0 and epWorldSize ({}) times the most tokens of a rank ({} here)",
          experts.global_tokens, experts.ranks, ids.size(0));
    const hccl::OperatorGroup ranks(experts.group);
    // On hardware the ranks would wait for ever.
    tiled(ranks.size() == experts.ranks && ranks.rank() == experts.rank,
          "parameters epWorldSize and epRankId are {} and {}, this is rank {} of the {} of groupEp", experts.ranks,
          experts.rank, ranks.rank(), ranks.size());
    if (is_a3()) check_buffer(experts, first, ranks, ids.size(0), ids.size(1), width);
    ranks.take_buffers();
}

void check_not_offered(const Operand &elastic) {
    if (elastic.defined())
        fail(FaultKind::Unsupported, "parameter {} is given; the virtual NPU has no groups that shrink",
             elastic.parameter());
}

void check_not_timed(const Operand &performance) {
    if (performance.defined())
        fail(FaultKind::Unsupported, "parameter {} is given; the virtual NPU does not time the ranks",
             performance.parameter());
}

at::Tensor taking_part(const at::Tensor &ids, const at::Tensor &active) {
    if (!active.defined()) return at::ones({ids.size(0)}, at::kBool);
    return active.dim() == 1 ? active : active.any(1);
}

std::vector<std::vector<int64_t>> places(const Experts &experts, const at::Tensor &ids, const at::Tensor &active) {
    std::vector<std::vector<int64_t>> made(static_cast<size_t>(experts.places()));
    const at::Tensor numbers = ids.to(at::kLong).contiguous(), tokens = taking_part(ids, active).contiguous();
    const at::Tensor pairs =
        active.defined() && active.dim() == 2 ? active.contiguous() : tokens.unsqueeze(1).expand_as(ids).contiguous();
    const int64_t k = ids.size(1), shared = experts.to_shared(), wide = k + shared;
    const auto *number = numbers.const_data_ptr<int64_t>();
    const auto *token_in = tokens.const_data_ptr<bool>(), *pair_in = pairs.const_data_ptr<bool>();
    for (int64_t token = 0; token < ids.size(0); ++token) {
        if (!token_in[token]) continue;
        for (int64_t s = 0; s < shared; ++s)
            made[static_cast<size_t>(experts.rank % experts.per_shared() + s * experts.per_shared())].push_back(
                token * wide + k + s);
        for (int64_t i = 0; i < k; ++i) {
            const int64_t id = number[token * k + i];
            if (!pair_in[token * k + i]) continue;
            if (id < 0 || id >= experts.routed + experts.special())
                fail(FaultKind::OutOfBounds, "expertIds has {} for token {}, there are experts 0 to {}", id, token,
                     experts.routed + experts.special() - 1);
            if (id < experts.routed) made[static_cast<size_t>(experts.shared_ranks + id)].push_back(token * wide + i);
        }
    }
    return made;
}

}  // namespace vnpu::opapi
