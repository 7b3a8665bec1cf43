// Rows or elements of a variable that the old API changes in place where indices say so, and copies with such changes.
// Where an index comes twice, one change after the other; in fp32 and rounded once.
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"
#include "opapi/index/aclop_turns.h"

namespace vnpu::opapi {
namespace {

using Change = at::Tensor (*)(const at::Tensor &, const at::Tensor &);

constexpr DTypes kOrdered{at::kHalf, at::kFloat, at::kBFloat16, at::kInt};
constexpr DTypes kCounted{at::kHalf, at::kFloat, at::kBFloat16, at::kInt, at::kChar, at::kByte};

at::Tensor add(const at::Tensor &x, const at::Tensor &y) { return x + y; }
at::Tensor sub(const at::Tensor &x, const at::Tensor &y) { return x - y; }
at::Tensor mul(const at::Tensor &x, const at::Tensor &y) { return x * y; }
at::Tensor div(const at::Tensor &x, const at::Tensor &y) {
    return x.is_floating_point() ? at::div(x, y) : at::div(x, y, "trunc");
}
at::Tensor set(const at::Tensor &, const at::Tensor &y) { return y; }

// How many dimensions of the variable an index has, and the sizes in front of the updates'.
struct Depth {
    int64_t dims;
    at::IntArrayRef front;
};

// The last dimension of the indices is a place in the first dimensions.
Depth deep(const at::Tensor &indices) {
    if (indices.dim() == 0) fail(FaultKind::InvalidArgument, "the indices are {}, expected places", describe(indices));
    return {indices.size(-1), indices.sizes().slice(0, static_cast<size_t>(indices.dim()) - 1)};
}

Depth rows(const at::Tensor &indices) { return {1, indices.sizes()}; }

Depth depth(const at::Tensor &indices, bool places) { return places ? deep(indices) : rows(indices); }

// var, indices, updates.
void check_scatter(LegacyArguments &call, bool places, DTypes dtypes) {
    const at::Tensor &x = call.in[0], &indices = call.in[1], &updates = call.in[2];
    allowed(x, dtypes, "the variable");
    allowed(indices, {at::kInt, at::kLong}, "the indices");
    allowed(updates, x.scalar_type(), "the updates");
    const Depth of = depth(indices, places);
    if (of.dims < 1 || of.dims > x.dim())
        fail(FaultKind::InvalidArgument, "the variable is {}, the indices {}", describe(x), describe(indices));
    std::vector<int64_t> expected = of.front.vec();
    const at::IntArrayRef rest = x.sizes().slice(static_cast<size_t>(of.dims));
    expected.insert(expected.end(), rest.begin(), rest.end());
    sizes(updates, expected, "the updates");
    alike(call.out[0], x, "the output");
}

// Rows of the variable, of which the first dimensions are one.
at::Tensor numbered(const at::Tensor &x, const at::Tensor &indices, int64_t dims, bool places) {
    if (!places) return indices.to(at::kLong).flatten();
    at::Tensor row = at::zeros({indices.numel() / dims}, at::kLong);
    for (int64_t i = 0; i < dims; ++i) {
        const at::Tensor place = indices.select(-1, i).to(at::kLong).flatten();
        if (place.lt(0).logical_or(place.ge(x.size(i))).any().item<bool>())
            fail(FaultKind::OutOfBounds, "an index lies outside of {}", describe(x));
        row = row * x.size(i) + place;
    }
    return row;
}

at::Tensor changed(LegacyArguments &call, bool places, Change change) {
    const int64_t dims = depth(call.in[1], places).dims;
    const at::Tensor &var = call.in[0], row = numbered(var, call.in[1], dims, places);
    const int64_t count = c10::multiply_integers(var.sizes().slice(0, static_cast<size_t>(dims)));
    const at::Tensor x = widened(var).clone().reshape({count, count == 0 ? 0 : var.numel() / count});
    const at::Tensor updates = widened(call.in[2]).reshape({row.numel(), x.size(1)});
    for (const at::Tensor &turn : turns(row, count)) {
        const at::Tensor where = row.index_select(0, turn);
        x.index_copy_(0, where, change(x.index_select(0, where), updates.index_select(0, turn)).to(x.scalar_type()));
    }
    return x.reshape(var.sizes());
}

void in_place(LegacyArguments &call, bool places, Change change) {
    const at::Tensor made = changed(call, places, change);
    call.in[0].copy_(made);
    call.out[0].copy_(made);
}

// The rows are an attribute.
void check_listed(LegacyArguments &call) {
    const auto listed = attribute<std::vector<int64_t>>(call.attributes, "indices", {});
    std::vector<int64_t> expected = call.in[0].sizes().vec();
    allowed(call.in[0], {at::kHalf, at::kFloat, at::kInt}, "x");
    allowed(call.in[1], call.in[0].scalar_type(), "v");
    if (expected.empty() || listed.empty())
        fail(FaultKind::InvalidArgument, "x is {}, attribute indices has {} values", describe(call.in[0]),
             listed.size());
    for (const int64_t row : listed)
        if (row < 0 || row >= expected[0])
            fail(FaultKind::InvalidArgument, "attribute indices has {} for {}", row, describe(call.in[0]));
    expected[0] = static_cast<int64_t>(listed.size());
    sizes(call.in[1], expected, "v");
    alike(call.out[0], call.in[0], "the output");
}

void listed(LegacyArguments &call, int sign) {
    const auto list = attribute<std::vector<int64_t>>(call.attributes, "indices", {});
    call.out[0].copy_(at::index_add(widened(call.in[0]), 0, at::tensor(list, at::kLong), widened(call.in[1]), sign));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(ScatterAdd, check_scatter(arguments, false, kCounted), in_place(arguments, false, add))
LEGACY(ScatterSub, check_scatter(arguments, false, kCounted), in_place(arguments, false, sub))
LEGACY(ScatterMul, check_scatter(arguments, false, kCounted), in_place(arguments, false, mul))
LEGACY(ScatterDiv, check_scatter(arguments, false, kCounted), in_place(arguments, false, div))
LEGACY(ScatterMax, check_scatter(arguments, false, kOrdered), in_place(arguments, false, at::maximum))
LEGACY(ScatterMin, check_scatter(arguments, false, kOrdered), in_place(arguments, false, at::minimum))
LEGACY(ScatterUpdate, check_scatter(arguments, false, kAll), in_place(arguments, false, set))
LEGACY(ScatterNdAdd, check_scatter(arguments, true, kCounted | at::kLong), in_place(arguments, true, add))
LEGACY(ScatterNdSub, check_scatter(arguments, true, kCounted | at::kLong), in_place(arguments, true, sub))
LEGACY(ScatterNdMax, check_scatter(arguments, true, kReals), in_place(arguments, true, at::maximum))
LEGACY(ScatterNdMin, check_scatter(arguments, true, kReals), in_place(arguments, true, at::minimum))
LEGACY(ScatterNdUpdate, check_scatter(arguments, true, kAll), in_place(arguments, true, set))
LEGACY(ScatterNonAliasingAdd, check_scatter(arguments, true, kReals), out[0].copy_(changed(arguments, true, add)))
LEGACY(TensorScatterSub, check_scatter(arguments, true, kReals), out[0].copy_(changed(arguments, true, sub)))
LEGACY(TensorScatterMax, check_scatter(arguments, true, kReals), out[0].copy_(changed(arguments, true, at::maximum)))
LEGACY(TensorScatterMin, check_scatter(arguments, true, kReals), out[0].copy_(changed(arguments, true, at::minimum)))
LEGACY(InplaceAddD, check_listed(arguments), listed(arguments, 1))
LEGACY(InplaceSubD, check_listed(arguments), listed(arguments, -1))
