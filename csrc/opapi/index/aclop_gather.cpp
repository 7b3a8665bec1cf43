// Rows that are put together and looked up by numbers of theirs, as MindSpore's functions ask for them by type:
// CANN's operators, and MindSpore's own kernels (its coalesce.cc, concat_offset.cc).
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kIndices{at::kInt, at::kLong};

int64_t one(const at::Tensor &tensor, const char *what) {
    holds(tensor, 1, what);
    return ints(tensor).front();
}

// x, segments of its rows in ascending order.
void check_sum(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    allowed(x, kReals, "x");
    allowed(call.in[1], kIndices, "the segments");
    if (x.dim() == 0) fail(FaultKind::InvalidArgument, "x is {}, expected rows", describe(x));
    sizes(call.in[1], {x.size(0)}, "the segments");
    std::vector<int64_t> expected = x.sizes().vec();
    expected[0] = -1;
    sizes(call.out[0], expected, "the output");
}

void sum(LegacyArguments &call) {
    const at::Tensor ids = call.in[1].to(at::kLong), x = widened(call.in[0]);
    const int64_t count = call.out[0].size(0);
    if (ids.numel() > 0 &&
        (ids[0].item<int64_t>() < 0 || ids[-1].item<int64_t>() >= count || ids.diff().lt(0).any().item<bool>()))
        fail(FaultKind::OutOfBounds, "the segments are not in ascending order below {}", count);
    call.out[0].copy_(at::zeros(call.out[0].sizes(), x.options()).index_add(0, ids, x));
}

// Places [dimensions, n], their values, the sizes: each place once, in ascending order, with the sum of its values.
void check_coalesce(LegacyArguments &call) {
    const at::Tensor &places = call.in[0], &values = call.in[1];
    allowed(places, at::kLong, "the places");
    allowed(values, {at::kHalf, at::kFloat, at::kDouble}, "the values");
    allowed(call.in[2], at::kLong, "the sizes");
    sizes(places, {-1, -1}, "the places");
    sizes(values, {places.size(1)}, "the values");
    sizes(call.in[2], {places.size(0)}, "the sizes");
    for (const size_t i : {0, 1, 2}) alike(call.out[i], call.in[i], "an output");
}

void coalesce(LegacyArguments &call) {
    const at::Tensor &places = call.in[0], values = widened(call.in[1]);
    const at::Tensor limits = call.in[2].unsqueeze(1);
    if (places.lt(0).logical_or(places.ge(limits)).any().item<bool>())
        fail(FaultKind::OutOfBounds, "a place lies outside of the sizes");
    const auto [made, where, counts] = at::unique_dim(places, 1, true, true, false);
    const int64_t count = made.size(1);
    call.out[0].view({-1}).narrow(0, 0, made.numel()).view(made.sizes()).copy_(made);
    call.out[1].narrow(0, 0, count).copy_(at::zeros({count}, values.options()).index_add(0, where, values));
    call.out[2].copy_(call.in[2]);
    (*call.found)[0] = {places.size(0), count};
    (*call.found)[1] = {count};
}

void check_offsets(LegacyArguments &call) {
    const int64_t axis = axis_of(call.in[0], call.attributes, "axis", 0);
    allowed(call.out[0], at::kLong, "the output");
    for (const at::Tensor &each : call.in) {
        std::vector<int64_t> expected = call.in[0].sizes().vec();
        expected[static_cast<size_t>(axis)] = -1;
        sizes(each, expected, "an input");
    }
    sizes(call.out[0], {static_cast<int64_t>(call.in.size()), call.in[0].dim()}, "the output");
}

// Where each input begins in what they make together.
void offsets(LegacyArguments &call) {
    const int64_t axis = axis_of(call.in[0], call.attributes, "axis", 0);
    call.out[0].zero_();
    int64_t begin = 0;
    for (size_t i = 0; i < call.in.size(); ++i) {
        call.out[0][static_cast<int64_t>(i)][axis] = begin;
        begin += call.in[i].size(axis);
    }
}

// Rows, their numbers, what is the number of the first one: rows that are not there are zeros.
void check_lookup(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    allowed(x, kAll, "the rows");
    allowed(call.in[1], kIndices, "the indices");
    holds(call.in[2], 1, "the offset");
    if (x.dim() == 0 || x.size(0) == 0) fail(FaultKind::InvalidArgument, "x is {}, expected rows", describe(x));
    holds(call.out[0], call.in[1].numel() * (x.numel() / x.size(0)), "the output");
}

void lookup(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    const at::Tensor rows = call.in[1].to(at::kLong).flatten() - one(call.in[2], "the offset");
    const at::Tensor there = rows.ge(0).logical_and(rows.lt(x.size(0)));
    const at::Tensor found = x.reshape({x.size(0), -1}).index_select(0, at::where(there, rows, 0));
    put(call.out[0], at::where(there.unsqueeze(1), found, at::zeros_like(found)));
}

// Rows in ascending order, values for each of them.
void check_bounds(LegacyArguments &call) {
    sizes(call.in[0], {-1, -1}, "the rows");
    allowed(call.in[0], kReals, "the rows");
    allowed(call.in[1], call.in[0].scalar_type(), "the values");
    sizes(call.in[1], {call.in[0].size(0), -1}, "the values");
    allowed(call.out[0], kIndices, "the output");
    sizes(call.out[0], call.in[1].sizes(), "the output");
}

void bounds(LegacyArguments &call, bool right) {
    call.out[0].copy_(at::searchsorted(call.in[0], call.in[1], false, right));
}

void check_ones(LegacyArguments &call) {
    allowed(call.in[0], kInts | kUnsigned, "x");
    allowed(call.out[0], at::kByte, "the output");
    sizes(call.out[0], call.in[0].sizes(), "the output");
}

// How many bits of each element are set.
void ones(LegacyArguments &call) {
    const at::Tensor bytes = call.in[0].contiguous().reshape({-1, 1}).view(at::kByte).to(at::kInt);
    at::Tensor counts = at::zeros({bytes.size(0)}, at::kInt);
    for (int64_t bit = 0; bit < 8; ++bit)
        counts += bytes.bitwise_right_shift(bit).bitwise_and(1).sum(1, false, at::kInt);
    put(call.out[0], counts);
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(SegmentSum, check_sum(arguments), sum(arguments))
LEGACY(CustCoalesce, check_coalesce(arguments), coalesce(arguments))
LEGACY(CustConcatOffset, check_offsets(arguments), offsets(arguments))
LEGACY(EmbeddingLookup, check_lookup(arguments), lookup(arguments))
LEGACY(LowerBound, check_bounds(arguments), bounds(arguments, false))
LEGACY(UpperBound, check_bounds(arguments), bounds(arguments, true))
LEGACY(PopulationCount, check_ones(arguments), ones(arguments))
