// Mixture of experts: tokens gathered for their experts, and the experts' answers weighed and added.
#include <limits>

#include "opapi/quantization/quantization.h"

namespace vnpu::opapi {
namespace {

using namespace quantization;

constexpr auto kLongs = [] { return at::TensorOptions().dtype(at::kLong); };

void check_routing(const Operand &x, const Operand &expert, const Operand &row) {
    rank(x, {2});
    rank(expert, {2});
    dtype(expert, {at::kInt});
    dtype(row, {at::kInt});
    if (expert.size(0) != x.size(0))
        fail(FaultKind::InvalidArgument, "parameter expertIdx is {}, expected a row for each of {} tokens",
             describe(expert), x.size(0));
    if (row.numel() != expert.numel())
        fail(FaultKind::InvalidArgument, "parameter expandedRowIdxOut is {}, expected {} elements", describe(row),
             expert.numel());
}

void check_mode(int64_t mode, int64_t experts, int64_t capacity, int64_t form = 0) {
    if (mode != 0 && mode != 1)
        fail(FaultKind::InvalidArgument, "parameter dropPadMode is {}, allowed are 0 and 1", mode);
    if (mode == 1 && (experts <= 0 || capacity <= 0))
        fail(FaultKind::InvalidArgument, "expertNum is {} and expertCapacity is {}, which dropPadMode 1 needs", experts,
             capacity);
    if (form > 0 && experts <= 0)
        fail(FaultKind::InvalidArgument, "parameter expertNum is {}, expected > 0 where tokens are counted", experts);
}

// Where each expanded row comes from.
struct Expansion {
    at::Tensor source;  // position in expertIdx, row by row; -1 where the place stays empty
    at::Tensor expert;  // of each expanded row
    at::Tensor place;   // of each position of expertIdx: its expanded row, or -1
    at::Tensor order;   // the positions sorted by expert, all
    at::Tensor counts;  // routes of each expert
};

// Routes to the experts [first, last), sorted by expert; `capacity` > 0 gives each as many places, else `rows` > 0 is
// the number of rows.
Expansion expand(const at::Tensor &expert, int64_t first, int64_t last, int64_t capacity, int64_t rows) {
    at::Tensor flat = expert.reshape({-1}).to(at::kLong);
    // Those behind the active experts stay in order, those before them come last (op-plugin:
    // test_npu_moe_init_routing_v2).
    flat = flat.masked_fill(flat.lt(first), std::numeric_limits<int64_t>::max());
    Expansion result;
    const auto [sorted, order] = at::sort(flat, true, 0, false);
    const int64_t active = sorted.lt(last).sum().item().toLong(), total = flat.size(0);
    const at::Tensor of = sorted.slice(0, 0, active) - first, from = order.slice(0, 0, active);
    result.order = order;
    result.counts = at::bincount(of, {}, last - first);
    result.place = at::full({total}, -1, kLongs());
    const at::Tensor rank_in_expert =
        at::arange(active, kLongs()) - (result.counts.cumsum(0) - result.counts).index({of});
    const int64_t places = capacity > 0 ? capacity * (last - first) : rows > 0 ? rows : total;
    const at::Tensor to = capacity > 0 ? of * capacity + rank_in_expert : at::arange(active, kLongs());
    const at::Tensor fits = capacity > 0 ? rank_in_expert.lt(capacity) : to.lt(total);
    const at::Tensor kept = to.masked_select(fits), kept_from = from.masked_select(fits);
    result.place.index_put_({kept_from}, kept);
    const at::Tensor inside = kept.lt(places);
    result.source = at::full({places}, -1, kLongs());
    result.source.index_put_({kept.masked_select(inside)}, kept_from.masked_select(inside));
    result.expert = at::zeros({places}, kLongs());
    result.expert.index_put_({kept.masked_select(inside)}, of.masked_select(fits).masked_select(inside));
    return result;
}

// Token rows in expanded order; empty places are zeros.
at::Tensor gathered(const at::Tensor &x, const Expansion &expansion, int64_t k) {
    const at::Tensor token = expansion.source.clamp_min(0).div(k, "floor");
    return x.index_select(0, token).masked_fill(expansion.source.lt(0).view([&] {
        std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
        sizes[0] = expansion.source.size(0);
        return sizes;
    }()),
                                                0);
}

void give_rows(at::Tensor &out, const at::Tensor &rows) { out.copy_(rows.view(out.sizes())); }

void check_fits(const Operand &out, int64_t rows, const Operand &x) {
    if (out.numel() != rows * x.size(1) || out.dim() < 2 || out.size(-1) != x.size(1))
        fail(FaultKind::InvalidArgument, "parameter expandedXOut is {}, expected {} rows of {}", describe(out), rows,
             x.size(1));
}

int64_t expanded_rows(const at::Tensor &expert, int64_t active, int64_t mode, int64_t experts, int64_t capacity) {
    if (mode == 1) return experts * capacity;
    return active > 0 ? std::min(active, expert.numel()) : expert.numel();
}

void init_routing(const at::Tensor &x, const at::Tensor &row, const at::Tensor &expert, at::Tensor &out,
                  at::Tensor &expanded_row, at::Tensor &expanded_expert) {
    const auto [sorted, order] = at::sort(expert.reshape({-1}), true, 0, false);
    const at::Tensor source = row.reshape({-1}).to(at::kLong).index_select(0, order);
    expanded_row.copy_(at::argsort(source));
    expanded_expert.copy_(sorted);
    out.copy_(x.index_select(0, source.slice(0, 0, out.size(0)).remainder(x.size(0))));
}

void give_counts(at::Tensor &out, const at::Tensor &counts, int64_t form) {
    if (form == 1) out.copy_(counts.cumsum(0));
    if (form == 2) out.copy_(counts);
}

// The end of the experts that count: where nothing is asked for by expert, whatever is there.
int64_t last_expert(const at::Tensor &expert, int64_t experts, bool by_expert) {
    return by_expert ? experts : expert.max().item().toLong() + 1;
}

void init_routing_v2(const at::Tensor &x, const at::Tensor &expert, int64_t experts, int64_t capacity, int64_t mode,
                     int64_t form, bool before, at::Tensor &rows, at::Tensor &place, at::Tensor &counts,
                     at::Tensor &counts_before) {
    const bool padded = mode == 1;
    const Expansion found = expand(expert, 0, last_expert(expert, experts, padded || form > 0), padded ? capacity : 0,
                                   rows.dim() == 2 ? rows.size(0) : 0);
    give_rows(rows, gathered(x, found, expert.size(1)));
    place.copy_(found.place.view(place.sizes()));
    if (!padded && counts.defined()) give_counts(counts, found.counts, form);
    if (padded && before) give(counts_before, found.counts);
}

// One factor for all rows, or one row of factors for each expert.
at::Tensor per_expert(const at::Tensor &factor, const Expansion &found) {
    return factor.size(0) == 1 ? widened(factor) : widened(factor).index_select(0, found.expert);
}

void quantize_rows(const at::Tensor &x, const Expansion &found, int64_t k, int64_t mode, const at::Tensor &scale,
                   const at::Tensor &offset, at::Tensor &out, at::Tensor &row_scale) {
    at::Tensor rows = gathered(widened(x), found, k);
    if (mode == 0) {
        rows = rows * widened(scale) + widened(offset);
    } else {
        if (scale.defined()) rows = rows * per_expert(scale, found);
        const Dynamic scales = dynamic(rows, {-1}, range(at::kChar), true);
        give(row_scale, scales.scale.flatten().view(row_scale.sizes()));
    }
    at::Tensor flat = out.view(rows.sizes());
    saturate(flat, rows);
}

void check_quant(int64_t mode, const Operand &scale, const Operand &offset, const Operand &out, const Operand &x) {
    network(x);
    quantized(out);
    if (mode != 0 && mode != 1)
        fail(FaultKind::InvalidArgument, "parameter quantMode is {}, allowed are 0 (static) and 1 (dynamic)", mode);
    if (mode == 0 && (!scale.defined() || !offset.defined()))
        fail(FaultKind::NullArgument, "parameters scaleOptional and offsetOptional are null, but quantMode is 0");
    if (mode == 0 && (scale.numel() != 1 || offset.numel() != 1))
        fail(FaultKind::InvalidArgument, "parameter scaleOptional is {}, expected one value in quantMode 0",
             describe(scale));
    if (mode == 1 && scale.defined() && (scale.dim() != 2 || scale.size(1) != x.size(1)))
        fail(FaultKind::InvalidArgument, "parameter scaleOptional is {}, expected [1 or experts, {}]", describe(scale),
             x.size(1));
}

struct V3 {
    int64_t capacity, experts, mode, form;
    bool count;
    int64_t quant;
    Ints range;
    int64_t row_type;
    int64_t first() const { return range.size() == 2 ? range[0] : 0; }
    int64_t last() const { return range.size() == 2 ? range[1] : experts; }
};

void check_v3(const V3 &call, const Operand &x, const Operand &scale, const Operand &offset, const Operand &rows,
              const Operand &counts) {
    if (call.quant != -1) check_quant(call.quant, scale, offset, rows, x);
    if (call.quant == -1) same_dtype(rows, x);
    if (call.first() < 0 || call.last() <= call.first() || call.last() > call.experts)
        fail(FaultKind::InvalidArgument, "activeExpertRange is [{}, {}), expected a part of [0, {})", call.first(),
             call.last(), call.experts);
    if (call.form < 0 || call.form > 2 || (call.form == 2 && call.mode == 1))
        fail(FaultKind::InvalidArgument,
             "parameter expertTokensNumType is {}, allowed are 0 (running totals), 1 (counts) and, in dropPadMode 0, 2 "
             "(pairs)",
             call.form);
    if (call.count && call.form == 2 && counts.defined()) shape(counts, {call.experts, 2});
    if (call.row_type != 0 && call.row_type != 1)
        fail(FaultKind::InvalidArgument, "parameter rowIdxType is {}, allowed are 0 and 1", call.row_type);
}

void init_routing_v3(const V3 &call, const at::Tensor &x, const at::Tensor &expert, const at::Tensor &scale,
                     const at::Tensor &offset, at::Tensor &rows, at::Tensor &place, at::Tensor &counts,
                     at::Tensor &row_scale) {
    const int64_t k = expert.size(1);
    const Expansion found = expand(expert, call.first(), call.last(), call.mode == 1 ? call.capacity : 0,
                                   rows.dim() == 2 ? rows.size(0) : 0);
    if (call.quant == -1) {
        give_rows(rows, gathered(x, found, k));
        if (scale.defined() && row_scale.defined()) row_scale.copy_(gathered(scale, found, k).view(row_scale.sizes()));
    } else {
        quantize_rows(x, found, k, call.quant, scale, offset, rows, row_scale);
    }
    const bool scatter = call.row_type == 1 && call.mode == 0;
    place.copy_((scatter ? found.order : found.place).view(place.sizes()));
    if (!call.count || !counts.defined()) return;
    if (call.form == 2) {  // each expert that has tokens, and how many; then zeros
        const at::Tensor with = found.counts.nonzero().flatten();
        counts.zero_();
        counts.slice(0, 0, with.size(0)).copy_(at::stack({with + call.first(), found.counts.index({with})}, 1));
        return;
    }
    counts.copy_(call.form == 0 && call.mode == 0 ? found.counts.cumsum(0) : found.counts);
}

// --- adding up

void check_finalize(const Operand &rows, const Operand &place, const Operand &first, const Operand &second,
                    const Operand &bias, const Operand &scales, const Operand &expert, int64_t mode,
                    const Operand &out) {
    network(rows, first, second, bias, scales, out);
    dtype(place, {at::kInt});
    rank(out, {2});
    for (const Operand *skip : {&first, &second})
        if (skip->defined()) same_shape(*skip, out);
    if (out.size(0) == 0 || place.numel() % out.size(0) != 0 || rows.size(-1) != out.size(1))
        fail(FaultKind::InvalidArgument, "parameter out is {}, expected the rows of {} positions of width {}",
             describe(out), place.numel(), rows.size(-1));
    if (scales.defined() && scales.numel() != place.numel())
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected {} values", scales.parameter(), describe(scales),
             place.numel());
    if (bias.defined() && (!expert.defined() || expert.numel() != place.numel()))
        fail(FaultKind::InvalidArgument, "parameter {} is {}, but a bias needs the expert of each position",
             expert.parameter(), describe(expert));
    if (mode < 0 || mode > 3) fail(FaultKind::InvalidArgument, "parameter dropPadMode is {}, allowed are 0 to 3", mode);
}

// Positions are column by column in modes 0 and 1, row by row in 2 and 3; -1 is a dropped one.
void finalize(const at::Tensor &rows, const at::Tensor &place, const at::Tensor &first, const at::Tensor &second,
              const at::Tensor &bias, const at::Tensor &scales, const at::Tensor &expert, int64_t mode,
              at::Tensor &out) {
    const int64_t tokens = out.size(0), k = place.numel() / tokens;
    const at::Tensor at = place.reshape({-1}).to(at::kLong);
    const at::Tensor where = mode < 2 ? at.view({k, tokens}).t() : at.view({tokens, k});
    const at::Tensor flat = widened(rows).reshape({-1, out.size(1)});
    at::Tensor each = flat.index({where.clamp_min(0)}).masked_fill(where.lt(0).unsqueeze(2), 0);
    if (bias.defined()) each = each + widened(bias).index({expert.to(at::kLong).view({tokens, k})});
    if (scales.defined()) each = each * widened(scales).reshape({tokens, k, 1});
    at::Tensor sum = each.sum(1);
    if (first.defined()) sum = sum + widened(first);
    if (second.defined()) sum = sum + widened(second);
    out.copy_(sum);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnMoeComputeExpertTokens, rank(sortedExperts, {1}); dtype(sortedExperts, {at::kInt}); dtype(out, {at::kInt});
   shape(out, {numExperts}),
   out.copy_(at::searchsorted(sortedExperts.contiguous(), at::arange(numExperts, sortedExperts.options()), true, true)))
OP(aclnnMoeInitRouting, check_routing(x, expertIdx, expandedRowIdxOut); same_shape(rowIdx, expertIdx);
   dtype(rowIdx, {at::kInt}); check_fits(expandedXOut, std::min(activeNum, x.size(0)) * expertIdx.size(1), x);
   same_shape(expandedExpertIdxOut, expandedRowIdxOut),
   init_routing(x, rowIdx, expertIdx, expandedXOut, expandedRowIdxOut, expandedExpertIdxOut))
OP(aclnnMoeInitRoutingV2, optional(expertTokensCountOrCumsumOutOptional, expertTokensBeforeCapacityOutOptional);
   check_routing(x, expertIdx, expandedRowIdxOut);
   check_mode(dropPadModeOptional, expertNumOptional, expertCapacityOptional, expertTokensCountOrCumsumFlagOptional);
   check_fits(expandedXOut,
              expanded_rows(expertIdx, activeNumOptional, dropPadModeOptional, expertNumOptional,
                            expertCapacityOptional),
              x),
   init_routing_v2(x, expertIdx, expertNumOptional, expertCapacityOptional, dropPadModeOptional,
                   expertTokensCountOrCumsumFlagOptional, expertTokensBeforeCapacityFlagOptional, expandedXOut,
                   expandedRowIdxOut, expertTokensCountOrCumsumOutOptional, expertTokensBeforeCapacityOutOptional))
OP(aclnnMoeInitRoutingQuantV2,
   optional(expertTokensCountOrCumsumOutOptional, expertTokensBeforeCapacityOutOptional, dynamicQuantScaleOutOptional);
   check_routing(x, expertIdx, expandedRowIdxOut);
   check_mode(dropPadMode, expertNum, expertCapacity, expertTokensCountOrCumsumFlag);
   check_quant(quantMode, scaleOptional, offsetOptional, expandedXOut, x);
   check_fits(expandedXOut, expanded_rows(expertIdx, activeNum, dropPadMode, expertNum, expertCapacity), x),
   at::Tensor rows = at::empty(expandedXOut.sizes(), at::kFloat);
   init_routing_v2(widened(x), expertIdx, expertNum, expertCapacity, dropPadMode, expertTokensCountOrCumsumFlag,
                   expertTokensBeforeCapacityFlag, rows, expandedRowIdxOut, expertTokensCountOrCumsumOutOptional,
                   expertTokensBeforeCapacityOutOptional);
   quantize_rows(x,
                 expand(expertIdx, 0,
                        last_expert(expertIdx, expertNum, dropPadMode == 1 || expertTokensCountOrCumsumFlag > 0),
                        dropPadMode == 1 ? expertCapacity : 0, rows.dim() == 2 ? rows.size(0) : 0),
                 expertIdx.size(1), quantMode, scaleOptional, offsetOptional, expandedXOut,
                 dynamicQuantScaleOutOptional))
OP(aclnnMoeInitRoutingV3, optional(expertTokensCountOrCumsumOut, expandedScaleOut);
   check_routing(x, expertIdx, expandedRowIdxOut); check_mode(dropPadMode, expertNum, expertCapacity);
   check_v3({expertCapacity, expertNum, dropPadMode, expertTokensNumType, expertTokensNumFlag, quantMode,
             activeExpertRangeOptional, rowIdxType},
            x, scaleOptional, offsetOptional, expandedXOut, expertTokensCountOrCumsumOut);
   check_fits(expandedXOut, expanded_rows(expertIdx, activeNum, dropPadMode, expertNum, expertCapacity), x),
   init_routing_v3({expertCapacity, expertNum, dropPadMode, expertTokensNumType, expertTokensNumFlag, quantMode,
                    activeExpertRangeOptional, rowIdxType},
                   x, expertIdx, scaleOptional, offsetOptional, expandedXOut, expandedRowIdxOut,
                   expertTokensCountOrCumsumOut, expandedScaleOut))

OP(aclnnMoeFinalizeRouting, optional(x1, bias, scales, expandedExpertIdx);
   check_finalize(expandedX, expandedRowIdx, x1, x2Optional, bias, scales, expandedExpertIdx, 0, out),
   finalize(expandedX, expandedRowIdx, x1, x2Optional, bias, scales, expandedExpertIdx, 0, out))
OP(aclnnMoeFinalizeRoutingV2,
   check_finalize(expandedX, expandedRowIdx, x1Optional, x2Optional, biasOptional, scalesOptional, expertIdxOptional,
                  dropPadMode, out),
   finalize(expandedX, expandedRowIdx, x1Optional, x2Optional, biasOptional, scalesOptional, expertIdxOptional,
            dropPadMode, out))
OP(aclnnMoeFinalizeRoutingV4,
   for (const Ints *range : {&zeroExpertRange, &copyExpertRange, &constantExpertRange}) if (!range->empty())
       fail(vnpu::FaultKind::InvalidArgument, "the virtual NPU has no zero, copy or constant experts");
   check_finalize(expandedX, expandedRowIdx, x1Optional, x2Optional, biasOptional, scalesOptional, expertIdxOptional,
                  dropPadMode, out),
   finalize(expandedX, expandedRowIdx, x1Optional, x2Optional, biasOptional, scalesOptional, expertIdxOptional,
            dropPadMode, out))
