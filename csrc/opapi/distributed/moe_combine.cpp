// The way back of moe_dispatch.cpp: each expert's rows to the ranks that sent the tokens, which add them up by weight,
// in float32 and in the order of a token's experts. Tokens that take no part keep what the result had.
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/precision.h"
#include "opapi/distributed/experts.h"

namespace vnpu::opapi {
namespace {

constexpr int64_t kNotQuantized = 0, kInt8 = 2;

struct Inputs {
    const Operand &rows, &ids, &assist, &counts, &weights, &active, &shared;
    int64_t quantized;
    const Operand &origin, &alpha1, &alpha2, &constant;
};

void check_special(const Experts &experts, const Inputs &in, int64_t width) {
    const auto needed = [&](const Operand &tensor, at::IntArrayRef sizes, int64_t count) {
        tiled(
            tensor.defined() && tensor.sizes() == sizes && tensor.scalar_type() == in.rows.scalar_type(),
            "parameter {} is {}, expected a tensor of {} elements in the dtype of expandX for the {} experts that need "
            "it",
            tensor.parameter(), tensor.defined() ? describe(tensor) : "null", c10::multiply_integers(sizes), count);
    };
    if (experts.copies + experts.constants > 0)
        needed(in.origin, {in.ids.size(0), width}, experts.copies + experts.constants);
    if (experts.constants > 0) {
        needed(in.alpha1, {experts.constants}, experts.constants);
        needed(in.alpha2, {experts.constants}, experts.constants);
        needed(in.constant, {experts.constants, width}, experts.constants);
    }
}

void check_combine(const Experts &experts, bool first, const Inputs &in, const Operand &out) {
    required(in.rows, in.ids, in.assist, in.counts, in.weights, out);
    tiled(in.rows.dim() == 2, "parameter expandX is {}, expected two dimensions", describe(in.rows));
    dtype(in.rows, {at::kHalf, at::kBFloat16});
    dtype(in.ids, {at::kInt});
    dtype(in.counts, {at::kInt});
    dtype(in.weights, {at::kFloat});
    const int64_t width = in.rows.size(1);
    check_experts(experts, first, in.ids, in.active, width);
    const int64_t tokens = in.ids.size(0), most = experts.most_rows(tokens, in.ids.size(1));
    tiled(in.rows.size(0) >= most, "parameter expandX is {}, expected room for {} rows", describe(in.rows), most);
    tiled(in.weights.sizes() == in.ids.sizes(), "parameter {} is {}, expected a weight for each of {}",
          in.weights.parameter(), describe(in.weights), describe(in.ids));
    const int64_t assist = first ? tokens * in.ids.size(1) : is_a3() ? most * 128 : 0;
    tiled(in.assist.dim() == 1 && in.assist.size(0) >= assist, "parameter {} is {}, expected {} elements",
          in.assist.parameter(), describe(in.assist), assist);
    tiled(in.counts.dim() == 1 && in.counts.size(0) >= experts.here() * experts.ranks,
          "parameter {} is {}, expected {} elements", in.counts.parameter(), describe(in.counts),
          experts.here() * experts.ranks);
    tiled(in.quantized == kNotQuantized || (in.quantized == kInt8 && !first),
          "parameter commQuantMode is {}, allowed are 0 (none){}", in.quantized, first ? "" : " and 2 (int8)");
    if (in.shared.defined()) {
        tiled(experts.shared_ranks == 0 && is_a3(), "parameter {} is given, but sharedExpertRankNum is {}",
              in.shared.parameter(), experts.shared_ranks);
        same_dtype(in.shared, in.rows);
        tiled((in.shared.dim() == 2 || in.shared.dim() == 3) && in.shared.size(-1) == width &&
                  in.shared.numel() == tokens * width,
              "parameter {} is {}, expected {} rows of {}", in.shared.parameter(), describe(in.shared), tokens, width);
    }
    check_special(experts, in, width);
    same_dtype(out, in.rows);
    tiled(out.numel() == tokens * width && out.size(-1) == width, "parameter {} is {}, expected {} rows of {}",
          out.parameter(), describe(out), tokens, width);
}

// What arrives of rows that travel as int8: blocks of eight elements with a scale in the rows' dtype (ops-transformer:
// moe_distribute_combine_v2.h, Int8QuantProcess).
at::Tensor through_int8(const at::Tensor &rows) {
    if (rows.numel() == 0) return rows;
    const at::Tensor value = widened(rows).view({rows.size(0), -1, 8});
    const at::Tensor scale = value.abs().amax(-1, true) / 127;
    const at::Tensor whole = (value / scale).to(at::kHalf).to(at::kFloat).round_().nan_to_num_(0).clamp_(-128, 127);
    return (whole * scale.to(rows.scalar_type()).to(at::kFloat)).view(rows.sizes()).to(rows.scalar_type());
}

// The rows of each place that came from each rank, as the running totals of epSendCounts tell.
at::Tensor counts_of(const Experts &experts, const at::Tensor &totals, int64_t rows) {
    const at::Tensor ends = totals.slice(0, 0, experts.here() * experts.ranks).to(at::kLong).contiguous();
    const at::Tensor counts = at::diff(ends, 1, 0, at::zeros({1}, at::kLong));
    if (counts.lt(0).any().item().toBool() || ends[-1].item().toLong() > rows)
        fail(FaultKind::OutOfBounds,
             "epSendCounts are no running totals of the {} rows: pass what the dispatch has given", rows);
    return counts.view({experts.here(), experts.ranks});
}

// Every token's rows, one for each of its experts and of the shared ones, zeros where none came.
at::Tensor exchange_back(const Group &ranks, const Experts &experts, const Inputs &in) {
    const at::Tensor counts = counts_of(experts, in.counts, in.rows.size(0));
    const auto routes = places(experts, in.ids, in.active);
    const int64_t width = in.rows.size(1), wide = in.ids.size(1) + experts.to_shared();
    std::vector<std::vector<at::Tensor>> for_peer(static_cast<size_t>(experts.ranks));
    int64_t start = 0;
    for (int64_t place = 0; place < experts.here(); ++place)
        for (int64_t peer = 0; peer < experts.ranks; ++peer) {
            const int64_t rows = counts[place][peer].item().toLong();
            for_peer[static_cast<size_t>(peer)].push_back(in.rows.narrow(0, start, rows));
            start += rows;
        }
    std::vector<at::Tensor> out, back;
    std::vector<int64_t> which;
    for (int64_t peer = 0; peer < experts.ranks; ++peer) {
        out.push_back(at::cat(for_peer[static_cast<size_t>(peer)]));
        if (in.quantized == kInt8) out.back() = through_int8(out.back());
        const size_t before = which.size();
        for (int64_t i = 0; i < experts.places_on(peer); ++i) {
            const auto &place = routes[static_cast<size_t>(experts.first_place(peer) + i)];
            which.insert(which.end(), place.begin(), place.end());
        }
        back.push_back(at::empty({static_cast<int64_t>(which.size() - before), width}, in.rows.options()));
    }
    ranks.exchange(out, back);
    at::Tensor all = at::zeros({in.ids.size(0) * wide, width});
    all.index_copy_(0, at::tensor(at::IntArrayRef(which), at::kLong), at::cat(back).to(at::kFloat));
    return all.view({in.ids.size(0), wide, width});
}

// What the numbers behind the experts' stand for: nothing, the token itself, the token and a constant.
void add_special(const Experts &experts, const Inputs &in, const at::Tensor &weight, const at::Tensor &id,
                 at::Tensor &sum) {
    const at::Tensor copied = id - (experts.routed + experts.zero), constant = copied - experts.copies;
    if (experts.copies > 0) {
        const at::Tensor is = copied.ge(0).logical_and(constant.lt(0)).unsqueeze(1);
        sum.add_(at::where(is, widened(in.origin) * weight, at::zeros({})));
    }
    if (experts.constants > 0) {
        const at::Tensor which = constant.clamp(0, experts.constants - 1);
        const at::Tensor made =
            widened(in.origin) * widened(in.alpha1).index_select(0, which).unsqueeze(1) +
            widened(in.constant).index_select(0, which) * widened(in.alpha2).index_select(0, which).unsqueeze(1);
        sum.add_(at::where(constant.ge(0).unsqueeze(1), made * weight, at::zeros({})));
    }
}

at::Tensor combined(const char *operation, const Experts &experts, const Inputs &in) {
    const at::Tensor back = exchange_back(Group(operation, experts.group), experts, in);
    const at::Tensor ids = in.ids.to(at::kLong);
    const bool pairs = in.active.defined() && in.active.dim() == 2;
    at::Tensor sum = at::zeros({back.size(0), back.size(2)});
    for (int64_t i = 0; i < back.size(1); ++i) {
        if (i >= ids.size(1)) {
            sum.add_(back.select(1, i));
            continue;
        }
        at::Tensor weight = in.weights.select(1, i).unsqueeze(1);
        if (pairs) weight = weight.masked_fill(in.active.select(1, i).unsqueeze(1).logical_not(), 0);
        sum.add_(back.select(1, i) * weight);
        add_special(experts, in, weight, ids.select(1, i), sum);
    }
    if (in.shared.defined()) sum.add_(widened(in.shared).reshape(sum.sizes()));
    return sum;
}

// Rows of the tokens that take part.
void give_tokens(const Inputs &in, at::Tensor &out, const at::Tensor &value) {
    const at::Tensor which = taking_part(in.ids, in.active).nonzero().squeeze(1);
    const at::Tensor made = value.index_select(0, which).to(out.scalar_type());
    at::Tensor rows = out.reshape(value.sizes()).index_copy(0, which, made);
    out.copy_(rows.view(out.sizes()));
}

void combine(const char *operation, const Experts &experts, const Inputs &in, at::Tensor &out) {
    give_tokens(in, out, combined(operation, experts, in));
}

// (ops-transformer: moe_distribute_combine_add_rms_norm)
void check_norm(const Inputs &in, const Operand &residual, const Operand &gamma, const Operand &y, const Operand &rstd,
                const Operand &out) {
    for (const Operand *tensor : {&residual, &gamma, &y, &out}) dtype(*tensor, {at::kBFloat16});
    const int64_t tokens = in.ids.size(0), width = in.rows.size(1);
    for (const Operand *tensor : {&residual, &y, &out}) shape(*tensor, {tokens, 1, width});
    shape(gamma, {width});
    dtype(rstd, {at::kFloat});
    shape(rstd, {tokens, 1, 1});
}

void combine_and_normalize(const char *operation, const Experts &experts, const Inputs &in, const at::Tensor &residual,
                           const at::Tensor &gamma, float epsilon, at::Tensor &y, at::Tensor &rstd, at::Tensor &out) {
    at::Tensor sum = combined(operation, experts, in);
    sum.add_(widened(residual).view(sum.sizes()));
    const at::Tensor reciprocal = 1 / (sum.square().mean(1, true) + epsilon).sqrt();
    give_tokens(in, out, sum);
    give_tokens(in, rstd, reciprocal);
    give_tokens(in, y, (sum * reciprocal).to(y.scalar_type()).to(at::kFloat) * widened(gamma));
}

// CANN's own check, before any kernel is looked for (ops-transformer: aclnn_moe_distribute_combine_add_rms_norm.cpp).
void check_not_910b(const char *operation) { on_chip(is_a3(), "{} is for A3 (Ascend910_93...) only", operation); }

const Operand kNone(nullptr, "none");

}  // namespace
}  // namespace vnpu::opapi

#define NO_SPECIAL kNone, kNone, kNone, kNone
#define SPECIAL oriXOptional, constExpertAlpha1Optional, constExpertAlpha2Optional, constExpertVOptional
#define INPUTS(SPECIAL)                                                       \
    {expandX,      expertIds,           assistInfoForCombine,  epSendCounts,  \
     expertScales, xActiveMaskOptional, sharedExpertXOptional, commQuantMode, \
     SPECIAL}

RANKS_OP(aclnnMoeDistributeCombine,
         optional(tpSendCounts, xActiveMask, activationScale, weightScale, groupList, expandScales);
         check_combine(EXPERTS, true,
                       {expandX, expertIds, expandIdx, epSendCounts, expertScales, xActiveMask, kNone, commQuantMode,
                        NO_SPECIAL},
                       x),
         combine("aclnnMoeDistributeCombine", EXPERTS,
                 {expandX, expertIds, expandIdx, epSendCounts, expertScales, xActiveMask, kNone, commQuantMode,
                  NO_SPECIAL},
                 x))
RANKS_OP(aclnnMoeDistributeCombineV2, check_combine(EXPERTS_V2, false, INPUTS(NO_SPECIAL), xOut),
         combine("aclnnMoeDistributeCombineV2", EXPERTS_V2, INPUTS(NO_SPECIAL), xOut))
RANKS_OP(aclnnMoeDistributeCombineV3, check_not_offered(elasticInfoOptional);
         check_combine(EXPERTS_V3, false, INPUTS(SPECIAL), xOut),
         combine("aclnnMoeDistributeCombineV3", EXPERTS_V3, INPUTS(SPECIAL), xOut))
RANKS_OP(aclnnMoeDistributeCombineV4, check_not_offered(elasticInfoOptional); check_not_timed(performanceInfoOptional);
         check_combine(EXPERTS_V3, false, INPUTS(SPECIAL), xOut),
         combine("aclnnMoeDistributeCombineV4", EXPERTS_V3, INPUTS(SPECIAL), xOut))

RANKS_OP(aclnnMoeDistributeCombineAddRmsNorm, check_not_910b("aclnnMoeDistributeCombineAddRmsNorm");
         check_combine(EXPERTS_V2, false, INPUTS(NO_SPECIAL), xOut);
         check_norm(INPUTS(NO_SPECIAL), residualX, gamma, yOut, rstdOut, xOut),
         combine_and_normalize("aclnnMoeDistributeCombineAddRmsNorm", EXPERTS_V2, INPUTS(NO_SPECIAL), residualX, gamma,
                               normEps, yOut, rstdOut, xOut))
RANKS_OP(aclnnMoeDistributeCombineAddRmsNormV2, check_not_910b("aclnnMoeDistributeCombineAddRmsNormV2");
         check_not_offered(elasticInfoOptional); check_combine(EXPERTS_V3, false, INPUTS(SPECIAL), xOut);
         check_norm(INPUTS(SPECIAL), residualX, gamma, yOut, rstdOut, xOut),
         combine_and_normalize("aclnnMoeDistributeCombineAddRmsNormV2", EXPERTS_V3, INPUTS(SPECIAL), residualX, gamma,
                               normEps, yOut, rstdOut, xOut))
