// Tokens to the ranks that have their experts: rows come sorted by expert, then by the rank that sent them, then by
// token. What the way back needs of this (the assist information, the counts) is for it alone, as on hardware, where it
// differs between chips and versions. What is behind the rows that came stays as it was.
#include "opapi/aclnn/limits.h"
#include "opapi/distributed/experts.h"
#include "opapi/quantization/quantization.h"

namespace vnpu::opapi {
namespace {

using namespace quantization;

constexpr int64_t kNotQuantized = 0, kDynamic = 2;

struct Inputs {
    const Operand &x, &ids, &scales, &active, &weights;
    int64_t quantized, count_type;
};
struct Results {
    Operand &rows, &row_scales, &assist, &numbers, &counts, &row_weights;
};

void check_dispatch(const Experts &experts, bool first, const Inputs &in, const Results &out) {
    required(in.x, in.ids, out.rows, out.assist, out.numbers, out.counts);
    tiled(in.x.dim() == 2, "parameter x is {}, expected two dimensions", describe(in.x));
    network(in.x);
    dtype(in.ids, {at::kInt});
    check_experts(experts, first, in.ids, in.active, in.x.size(1));
    const int64_t tokens = in.x.size(0), width = in.x.size(1), k = in.ids.size(1);
    tiled(in.ids.size(0) == tokens, "parameter expertIds is {}, expected the experts of {} tokens", describe(in.ids),
          tokens);
    tiled(in.quantized == kNotQuantized || in.quantized == kDynamic,
          "parameter quantMode is {}, allowed are 0 (none) and 2 (dynamic)", in.quantized);
    tiled(in.count_type == 0 || in.count_type == 1,
          "parameter expertTokenNumsType is {}, allowed are 0 (running totals) and 1 (counts)", in.count_type);
    if (in.scales.defined()) {
        tiled(in.quantized != kNotQuantized, "parameter {} is given, but quantMode is 0", in.scales.parameter());
        const int64_t shared = first ? std::min<int64_t>(experts.shared_ranks, 1) : is_a3() ? experts.shared : 0;
        tiled(in.scales.dim() == 2 && in.scales.size(0) == experts.routed + shared && in.scales.size(1) == width,
              "parameter {} is {}, expected [{}, {}]", in.scales.parameter(), describe(in.scales),
              experts.routed + shared, width);
    }
    if (in.weights.defined())
        tiled(in.weights.sizes() == in.ids.sizes(), "parameter {} is {}, expected a weight for each of {}",
              in.weights.parameter(), describe(in.weights), describe(in.ids));
    const int64_t most = experts.most_rows(tokens, k), here = experts.here();
    if (in.quantized == kNotQuantized) same_dtype(out.rows, in.x);
    if (in.quantized == kDynamic) dtype(out.rows, {at::kChar});
    tiled(out.rows.dim() == 2 && out.rows.size(0) >= most && out.rows.size(1) == width,
          "parameter {} is {}, expected room for {} rows of {}", out.rows.parameter(), describe(out.rows), most, width);
    if (in.quantized == kDynamic) {
        require(out.row_scales);
        tiled(out.row_scales.dim() == 1 && out.row_scales.size(0) >= most, "parameter {} is {}, expected room for {}",
              out.row_scales.parameter(), describe(out.row_scales), most);
    }
    const int64_t assist = first ? tokens * k : is_a3() ? most * 3 : 0;
    tiled(out.assist.dim() == 1 && out.assist.size(0) >= assist, "parameter {} is {}, expected room for {}",
          out.assist.parameter(), describe(out.assist), assist);
    tiled(out.numbers.dim() == 1 && out.numbers.size(0) == here, "parameter {} is {}, expected {} numbers",
          out.numbers.parameter(), describe(out.numbers), here);
    tiled(out.counts.dim() == 1 && out.counts.size(0) >= here * experts.ranks,
          "parameter {} is {}, expected room for {}", out.counts.parameter(), describe(out.counts),
          here * experts.ranks);
}

at::Tensor longs(const std::vector<int64_t> &values) { return at::tensor(at::IntArrayRef(values), at::kLong); }

// The factors of a place: shared experts' come first.
at::Tensor factors(const Experts &experts, const at::Tensor &scales, int64_t place) {
    const int64_t shared = scales.size(0) - experts.routed;
    if (place >= experts.shared_ranks) return scales[place - experts.shared_ranks + shared];
    return scales[place / experts.per_shared()];
}

// What goes to one place.
struct Sent {
    at::Tensor rows, numbers, triples;
};

Sent send(const Experts &experts, const Inputs &in, int64_t place, const std::vector<int64_t> &which) {
    const int64_t k = in.ids.size(1), wide = k + experts.to_shared();
    const at::Tensor row = longs(which), token = row.div(wide, "floor"), slot = row.remainder(wide);
    Sent made;
    made.rows = in.x.index_select(0, token);
    made.numbers = at::zeros({row.size(0), 2});  // its scale and its weight
    if (in.quantized == kDynamic && row.size(0) > 0) {
        at::Tensor value = widened(made.rows);
        if (in.scales.defined()) value = value * factors(experts, in.scales, place);
        const Dynamic scales = dynamic(value, {-1}, range(at::kChar), true);
        made.rows = at::empty(value.sizes(), at::kChar);
        saturate(made.rows, value);
        made.numbers.select(1, 0).copy_(scales.scale.flatten());
    } else if (in.quantized == kDynamic) {
        made.rows = made.rows.to(at::kChar);
    }
    if (in.weights.defined() && place >= experts.shared_ranks)
        made.numbers.select(1, 1).copy_(in.weights.reshape({-1}).index_select(0, token * k + slot));
    made.triples = at::stack({at::full_like(token, experts.rank), token, slot}, 1).to(at::kInt);
    return made;
}

// Counts of the rows from each rank (first dimension) for each place here.
at::Tensor exchange_counts(const Group &ranks, const Experts &experts,
                           const std::vector<std::vector<int64_t>> &places) {
    std::vector<int64_t> mine;
    for (const auto &place : places) mine.push_back(static_cast<int64_t>(place.size()));
    const at::Tensor all = longs(mine), come = at::empty({experts.ranks, experts.here()}, at::kLong);
    std::vector<at::Tensor> out, in;
    for (int64_t peer = 0; peer < experts.ranks; ++peer) {
        out.push_back(all.narrow(0, experts.first_place(peer), experts.places_on(peer)));
        in.push_back(come[peer]);
    }
    ranks.exchange(out, in);
    return come;
}

// What the places of each rank get, and what comes here, sorted by place and then by rank.
at::Tensor exchange_rows(const Group &ranks, const Experts &experts, const std::vector<at::Tensor> &to_places,
                         const at::Tensor &counts) {
    at::DimVector sizes(to_places.front().sizes().begin(), to_places.front().sizes().end());
    std::vector<at::Tensor> out, in;
    for (int64_t peer = 0; peer < experts.ranks; ++peer) {
        const auto first = to_places.begin() + experts.first_place(peer);
        out.push_back(at::cat(std::vector<at::Tensor>(first, first + experts.places_on(peer))));
        sizes[0] = counts[peer].sum().item().toLong();
        in.push_back(at::empty(sizes, to_places.front().options()));
    }
    ranks.exchange(out, in);
    std::vector<at::Tensor> sorted;
    std::vector<int64_t> starts(static_cast<size_t>(experts.ranks));
    for (int64_t place = 0; place < experts.here(); ++place)
        for (int64_t peer = 0; peer < experts.ranks; ++peer) {
            const int64_t rows = counts[peer][place].item().toLong();
            auto &start = starts[static_cast<size_t>(peer)];
            sorted.push_back(in[static_cast<size_t>(peer)].narrow(0, start, rows));
            start += rows;
        }
    return at::cat(sorted);
}

// The place of each pair among those that this rank sends to the same expert, which the first version gives.
void number_pairs(const Inputs &in, const std::vector<std::vector<int64_t>> &places, const Experts &experts,
                  at::Tensor &assist) {
    const int64_t k = in.ids.size(1), wide = k + experts.to_shared();
    at::Tensor order = at::zeros({in.ids.numel()}, at::kInt);
    for (size_t place = static_cast<size_t>(experts.shared_ranks); place < places.size(); ++place)
        for (size_t i = 0; i < places[place].size(); ++i) {
            const int64_t row = places[place][i];
            order[row / wide * k + row % wide] = static_cast<int64_t>(i);
        }
    assist.slice(0, 0, order.size(0)).copy_(order);
}

void dispatch(const char *operation, const Experts &experts, bool first, const Inputs &in, Results out) {
    const Group ranks(operation, experts.group);
    const auto routes = places(experts, in.ids, in.active);
    std::vector<at::Tensor> rows, numbers, triples;
    for (int64_t place = 0; place < experts.places(); ++place) {
        Sent sent = send(experts, in, place, routes[static_cast<size_t>(place)]);
        rows.push_back(std::move(sent.rows));
        numbers.push_back(std::move(sent.numbers));
        triples.push_back(std::move(sent.triples));
    }
    const at::Tensor counts = exchange_counts(ranks, experts, routes);
    const at::Tensor come = exchange_rows(ranks, experts, rows, counts);
    const at::Tensor with = exchange_rows(ranks, experts, numbers, counts);
    const at::Tensor from = exchange_rows(ranks, experts, triples, counts);
    const int64_t total = come.size(0);
    out.rows.slice(0, 0, total).copy_(come);
    if (in.quantized == kDynamic) out.row_scales.slice(0, 0, total).copy_(with.select(1, 0));
    if (in.weights.defined() && out.row_weights.defined() && out.row_weights.numel() >= total)
        out.row_weights.slice(0, 0, total).copy_(with.select(1, 1));
    if (first)
        number_pairs(in, routes, experts, out.assist);
    else if (out.assist.numel() >= total * 3)
        out.assist.slice(0, 0, total * 3).copy_(from.reshape({-1}));
    const at::Tensor by_place = counts.sum(0);
    out.numbers.copy_(in.count_type == 0 ? by_place.cumsum(0) : by_place);
    out.counts.slice(0, 0, counts.numel()).copy_(counts.t().reshape({-1}).cumsum(0));
}

}  // namespace
}  // namespace vnpu::opapi

#define INPUTS_V2 \
    {x, expertIds, scalesOptional, xActiveMaskOptional, expertScalesOptional, quantMode, expertTokenNumsType}
#define RESULTS_V2 \
    {expandXOut, dynamicScalesOut, assistInfoForCombineOut, expertTokenNumsOut, epRecvCountsOut, expandScalesOut}

RANKS_OP(aclnnMoeDistributeDispatch, optional(scales, xActiveMask, expertScales, dynamicScales, expandScales);
         check_dispatch(EXPERTS, true,
                        {x, expertIds, scales, xActiveMask, expertScales, quantMode, expertTokenNumsType},
                        {expandX, dynamicScales, expandIdx, expertTokenNums, epRecvCounts, expandScales}),
         dispatch("aclnnMoeDistributeDispatch", EXPERTS, true,
                  {x, expertIds, scales, xActiveMask, expertScales, quantMode, expertTokenNumsType},
                  {expandX, dynamicScales, expandIdx, expertTokenNums, epRecvCounts, expandScales}))
RANKS_OP(aclnnMoeDistributeDispatchV2, optional(dynamicScalesOut, expandScalesOut);
         check_dispatch(EXPERTS_V2, false, INPUTS_V2, RESULTS_V2),
         dispatch("aclnnMoeDistributeDispatchV2", EXPERTS_V2, false, INPUTS_V2, RESULTS_V2))
RANKS_OP(aclnnMoeDistributeDispatchV3, optional(dynamicScalesOut, expandScalesOut);
         check_not_offered(elasticInfoOptional);
         check_dispatch(EXPERTS_V3, false, INPUTS_V2, RESULTS_V2),
         dispatch("aclnnMoeDistributeDispatchV3", EXPERTS_V3, false, INPUTS_V2, RESULTS_V2))
RANKS_OP(aclnnMoeDistributeDispatchV4, optional(dynamicScalesOut, expandScalesOut);
         check_not_offered(elasticInfoOptional); check_not_timed(performanceInfoOptional);
         check_dispatch(EXPERTS_V3, false, INPUTS_V2, RESULTS_V2),
         dispatch("aclnnMoeDistributeDispatchV4", EXPERTS_V3, false, INPUTS_V2, RESULTS_V2))
