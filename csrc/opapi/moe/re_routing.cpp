// Where tokens and experts go: tokens that came from other ranks sorted by expert, logical experts mapped to the places
// where copies of them are.
#include <fmt/ranges.h>

#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/precision.h"
#include "opapi/distributed/group.h"

namespace vnpu::opapi {
namespace {

// What came from rank i for expert j is numbers[i][j] rows, in the order of ranks and then of experts (ops-transformer:
// moe_re_routing). Its parameters have no names in any header: tokens, expertTokenNumPerRank, perTokenScalesOptional,
// expertTokenNumType, idxType, then the results permuteTokens, permutePerTokenScales, permuteTokenIdx, expertTokenNum.
void check_re_routing(const Operand &tokens, const Operand &numbers, const Operand &scales, int64_t number_type,
                      int64_t index_type, const Operand &sorted, const Operand &sorted_scales, const Operand &index,
                      const Operand &total) {
    required(tokens, numbers, sorted, index, total);
    tiled(
        tokens.dim() == 2 && numbers.dim() == 2 && tokens.size(1) > 0 && numbers.numel() > 0,
        "the tokens are {} and their numbers {}, expected two dimensions of both, of which only that of the tokens may "
        "be empty",
        describe(tokens), describe(numbers));
    tiled(number_type == 1, "expertTokenNumType is {}, allowed is 1 (counts)", number_type);
    tiled(index_type == 0, "idxType is {}, allowed is 0 (where each row comes from)", index_type);
    same_dtype(sorted, tokens);
    same_shape(sorted, tokens);
    if (scales.defined()) {
        tiled(scales.dim() > 0 && scales.dim() <= 2 && scales.size(0) == tokens.size(0),
              "the scales are {}, expected one for each of {} tokens", describe(scales), tokens.size(0));
        same_shape(sorted_scales, scales);
        same_dtype(sorted_scales, scales);
    }
    dtype(index, {at::kInt});
    shape(index, {tokens.size(0)});
    same_dtype(total, numbers);
    shape(total, {numbers.size(1)});
}

void re_route(const at::Tensor &tokens, const at::Tensor &numbers, const at::Tensor &scales, at::Tensor &sorted,
              at::Tensor &sorted_scales, at::Tensor &index, at::Tensor &total) {
    const at::Tensor counts = numbers.to(at::kLong);
    total.copy_(counts.sum(0));
    const at::Tensor experts = at::arange(counts.size(1), counts.options()).repeat({counts.size(0)});
    const at::Tensor expert = experts.repeat_interleave(counts.reshape({-1}));
    const at::Tensor order = at::argsort(expert, true, 0, false);
    if (order.size(0) > tokens.size(0))
        fail(FaultKind::OutOfBounds, "the numbers of tokens add up to {}, there are {}", order.size(0), tokens.size(0));
    // Rows behind those that the numbers count stay as they are.
    index.slice(0, 0, order.size(0)).copy_(order);
    sorted.slice(0, 0, order.size(0)).copy_(tokens.index_select(0, order));
    if (scales.defined()) sorted_scales.slice(0, 0, order.size(0)).copy_(scales.index_select(0, order));
}

// --- experts that have several copies (ops-transformer: moe_update_expert)

void check_update(const Operand &experts, const Operand &table, const Operand &scales, const Operand &threshold,
                  const Operand &active, int64_t rank, int64_t ranks, int64_t mode, const Operand &balanced,
                  const Operand &kept) {
    required(experts, table, balanced, kept);
    const auto both = [&](const Operand &tensor, at::IntArrayRef sizes) {
        tiled(tensor.sizes() == sizes, "parameter {} is {}, expected {}", tensor.parameter(), describe(tensor),
              fmt::join(sizes, " x "));
    };
    tiled(mode == 0 || mode == 1, "parameter balanceMode is {}, allowed are 0 (by rank) and 1 (by token)", mode);
    if (mode == 0) {
        tiled(ranks >= 2 && ranks <= 768, "parameter worldSize is {}, allowed are 2 to 768", ranks);
        tiled(rank >= 0 && rank < ranks, "parameter localRankId is {}, allowed are 0 to {}", rank, ranks - 1);
    }
    tiled(experts.dim() == 2 && experts.size(0) > 0 && experts.size(0) <= 512 && experts.size(1) > 0 &&
              experts.size(1) <= 16,
          "parameter expertIds is {}, allowed are 1 to 512 tokens with 1 to 16 experts each", describe(experts));
    tiled(table.dim() == 2 && table.size(0) >= experts.size(1) && table.size(0) <= 1024 && table.size(1) > 1,
          "parameter eplbTable is {}, allowed are {} to 1024 experts with a number and places", describe(table),
          experts.size(1));
    const int64_t places = mode == 0 ? ranks : 768;
    tiled(table.size(1) <= places + 1, "parameter eplbTable is {}, allowed are {} places", describe(table), places);
    tiled(scales.defined() == threshold.defined() && (!active.defined() || scales.defined()),
          "parameters expertScalesOptional, pruningThresholdOptional and activeMaskOptional: the first two come "
          "together, "
          "the third only with them");
    if (scales.defined()) {
        both(scales, experts.sizes());
        tiled(threshold.numel() == experts.size(1) && (threshold.dim() == 1 || threshold.dim() == 2),
              "parameter pruningThresholdOptional is {}, expected one for each of {} experts", describe(threshold),
              experts.size(1));
    }
    if (active.defined()) both(active, {experts.size(0)});
    tiled(balanced.scalar_type() == experts.scalar_type(), "parameter balancedExpertIds is {}, expertIds {}",
          describe(balanced), describe(experts));
    both(balanced, experts.sizes());
    both(kept, experts.sizes());
}

void update_experts(const at::Tensor &experts, const at::Tensor &table, int64_t rank, int64_t ranks, int64_t mode,
                    at::Tensor &balanced) {
    const at::Tensor rows = table.to(at::kLong).index_select(0, experts.reshape({-1}).to(at::kLong));
    const at::Tensor copies = rows.select(1, 0);
    at::Tensor place;
    if (mode == 0) {
        const at::Tensor share = (copies + (ranks - 1)).div(copies, "floor");
        place = at::full_like(copies, rank).div(share, "floor");
    } else {
        const at::Tensor token = at::arange(copies.size(0), copies.options()).div(experts.size(1), "floor");
        place = token.remainder(copies);
    }
    place = place.masked_fill(copies.eq(1), 0) + 1;
    balanced.copy_(rows.gather(1, place.unsqueeze(1)).view(balanced.sizes()));
}

// An expert stays with a token where its scale reaches its threshold's part of the sum of all.
void prune(const at::Tensor &scales, const at::Tensor &threshold, const at::Tensor &active, at::Tensor &kept) {
    const at::Tensor wide = widened(scales);
    at::Tensor stays = wide.ge(threshold.reshape({1, -1}) * wide.sum(1, true));
    if (active.defined()) stays = stays.logical_and(active.unsqueeze(1));
    kept.copy_(stays);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnMoeReRouting, optional(permutePerTokenScalesOut);
   check_re_routing(tokens, expertTokenNumPerRank, perTokenScalesOptional, expertTokenNumType, idxType,
                    permuteTokensOut, permutePerTokenScalesOut, permuteTokenIdxOut, expertTokenNumOut),
   re_route(tokens, expertTokenNumPerRank, perTokenScalesOptional, permuteTokensOut, permutePerTokenScalesOut,
            permuteTokenIdxOut, expertTokenNumOut))
OP(aclnnMoeUpdateExpert, check_a3_only("aclnnMoeUpdateExpert");
   check_update(expertIds, eplbTable, expertScalesOptional, pruningThresholdOptional, activeMaskOptional, localRankId,
                worldSize, balanceMode, balancedExpertIds, balancedActiveMask),
   update_experts(expertIds, eplbTable, localRankId, worldSize, balanceMode, balancedExpertIds);
   if (expertScalesOptional.defined())
       prune(expertScalesOptional, pruningThresholdOptional, activeMaskOptional, balancedActiveMask))
