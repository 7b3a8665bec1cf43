// Operators of the old API that MindSpore calls by their type and that pick, order or place elements.
#include <ATen/Dispatch_v2.h>

#include <limits>

#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

// Classes, how many there are, the values on and off. Classes past the last are off everywhere.
void check_one_hot(LegacyArguments &call) {
    allowed(call.in[0], {at::kInt, at::kLong, at::kByte}, "the classes");
    holds(call.out[0], call.in[0].numel() * one(call.in[1], "depth"), "the output");
    for (const size_t i : {2, 3}) holds(call.in[i], 1, "a value");
}

void one_hot(LegacyArguments &call) {
    const auto axis = attribute<int64_t>(call.attributes, "axis", -1);
    const at::Tensor hot = call.in[0].to(at::kLong).unsqueeze(-1).eq(at::arange(one(call.in[1], "depth")));
    const at::Tensor values = at::where(hot, call.in[2].reshape({}), call.in[3].reshape({}));
    put(call.out[0], axis == -1 || axis == call.in[0].dim() ? values : values.movedim(-1, axis));
}

void check_largest(LegacyArguments &call) {
    allowed(call.in[0], kAll, "x");
    const int64_t dim = axis_of(call.in[0], call.attributes, "dim"), k = one(call.in[1], "k");
    if (k < 0 || k > call.in[0].size(dim)) fail(FaultKind::InvalidArgument, "k is {} for {}", k, describe(call.in[0]));
}

void largest(LegacyArguments &call) {
    const auto [values, where] =
        at::topk(call.in[0], one(call.in[1], "k"), axis_of(call.in[0], call.attributes, "dim"),
                 attribute<bool>(call.attributes, "largest", true), attribute<bool>(call.attributes, "sorted", true));
    put(call.out[0], values);
    put(call.out[1], where);
}

void sorted(LegacyArguments &call) {
    const auto [values, where] = at::sort(call.in[0], /*stable=*/true, axis_of(call.in[0], call.attributes, "axis"),
                                          attribute<bool>(call.attributes, "descending", false));
    put(call.out[0], values);
    put(call.out[1], where);
}

void check_segments(LegacyArguments &call) {
    const at::Tensor &x = call.in[0], &ids = call.in[1];
    allowed(ids, {at::kInt, at::kLong}, "the segments");
    if (ids.dim() > x.dim() || x.sizes().slice(0, static_cast<size_t>(ids.dim())) != ids.sizes())
        fail(FaultKind::InvalidArgument, "x is {}, the segments {}", describe(x), describe(ids));
    const int64_t width = ids.numel() == 0 ? 0 : x.numel() / ids.numel();
    if (ids.numel() > 0) holds(call.out[0], one(call.in[2], "num_segments") * width, "the output");
}

// Elements of a negative segment are left out.
void segments(LegacyArguments &call) {
    const at::Tensor ids = call.in[1].to(at::kLong).flatten(), x = widened(call.in[0]).reshape({ids.numel(), -1});
    const int64_t count = one(call.in[2], "num_segments");
    const at::Tensor kept = at::nonzero(ids >= 0).flatten(), where = ids.index_select(0, kept);
    if (where.numel() > 0 && where.max().item<int64_t>() >= count)
        fail(FaultKind::OutOfBounds, "a segment is {}, there are {}", where.max().item<int64_t>(), count);
    const at::Tensor sums = at::zeros({count, x.size(1)}, x.options());
    put(call.out[0], sums.index_add_(0, where, x.index_select(0, kept)));
}

// Positions in the first dimensions of x, in the last dimension of `indices`.
c10::List<std::optional<at::Tensor>> places(const at::Tensor &x, const at::Tensor &indices) {
    c10::List<std::optional<at::Tensor>> all;
    for (int64_t i = 0; i < indices.size(-1); ++i) {
        const at::Tensor place = indices.select(-1, i).to(at::kLong);
        if (place.numel() > 0 && (place.min().item<int64_t>() < 0 || place.max().item<int64_t>() >= x.size(i)))
            fail(FaultKind::OutOfBounds, "an index lies outside of {}", describe(x));
        all.push_back(place);
    }
    return all;
}

void check_positions(const at::Tensor &x, const at::Tensor &indices) {
    allowed(indices, {at::kInt, at::kLong}, "the indices");
    if (indices.dim() == 0 || indices.size(-1) == 0 || indices.size(-1) > x.dim())
        fail(FaultKind::InvalidArgument, "x is {}, the indices {}", describe(x), describe(indices));
}

void update(LegacyArguments &call) {
    const at::Tensor x = call.in[0].clone();
    put(call.out[0], at::index_put(x, places(x, call.in[1]), call.in[2]));
}

// indices [..., depth], updates [..., rest], the shape of the output: sums of what is written to one place.
void check_spread(LegacyArguments &call) {
    allowed(call.in[0], {at::kInt, at::kLong}, "the indices");
    const std::vector<int64_t> shape = ints(call.in[2]);
    sizes(call.out[0], shape, "the output");
    const int64_t depth = call.in[0].dim() == 0 ? 0 : call.in[0].size(-1);
    if (depth < 1 || depth > call.out[0].dim())
        fail(FaultKind::InvalidArgument, "the indices are {} for {}", describe(call.in[0]), describe(call.out[0]));
    const int64_t rest = c10::multiply_integers(call.out[0].sizes().slice(static_cast<size_t>(depth)));
    holds(call.in[1], call.in[0].numel() / depth * rest, "the updates");
}

void spread(LegacyArguments &call) {
    const at::Tensor &out = call.out[0];
    const int64_t depth = call.in[0].size(-1);
    const at::Tensor places = call.in[0].to(at::kLong).reshape({-1, depth});
    const at::IntArrayRef front = out.sizes().slice(0, static_cast<size_t>(depth));
    at::Tensor flat = at::zeros({places.size(0)}, at::kLong);
    for (int64_t i = 0; i < depth; ++i) {
        const at::Tensor column = places.select(1, i);
        if (column.lt(0).logical_or(column.ge(front[static_cast<size_t>(i)])).any().item<bool>())
            fail(FaultKind::OutOfBounds, "an index lies outside of {}", describe(out));
        flat = flat * front[static_cast<size_t>(i)] + column;
    }
    const at::Tensor rows = widened(call.in[1]).reshape({places.size(0), -1});
    put(call.out[0], at::zeros({c10::multiply_integers(front), rows.size(1)}, rows.options()).index_add(0, flat, rows));
}

// A segment without an element has the lowest number for the maximum, the highest for the minimum.
void extreme_of_segments(LegacyArguments &call, const char *reduce, bool highest) {
    const at::Tensor &out = call.out[0];
    const at::Tensor ids = call.in[1].to(at::kLong).flatten();
    const at::Tensor rows = call.in[0].reshape({ids.numel(), -1});
    if (ids.ge(out.size(0)).any().item<bool>()) fail(FaultKind::OutOfBounds, "a segment is not one of {}", out.size(0));
    const at::Scalar none = AT_DISPATCH_V2(
        out.scalar_type(), "segments", AT_WRAP([&] {
            return at::Scalar(highest ? std::numeric_limits<scalar_t>::max() : std::numeric_limits<scalar_t>::lowest());
        }),
        AT_EXPAND(AT_ALL_TYPES), at::kHalf, at::kBFloat16);
    const at::Tensor kept = ids.ge(0).nonzero().flatten();  // negative ones are left out
    put(call.out[0], at::full({out.size(0), rows.size(1)}, none, out.options())
                         .index_reduce(0, ids.index_select(0, kept), rows.index_select(0, kept), reduce));
}

// 1 where nothing is.
void product_of_segments(LegacyArguments &call) {
    const at::Tensor ids = call.in[1].to(at::kLong).flatten(), x = widened(call.in[0]).reshape({ids.numel(), -1});
    const int64_t count = one(call.in[2], "num_segments");
    if (ids.ge(count).any().item<bool>()) fail(FaultKind::OutOfBounds, "a segment is not one of {}", count);
    const at::Tensor kept = ids.ge(0).nonzero().flatten();  // negative ones are left out
    put(call.out[0], at::ones({count, x.size(1)}, x.options())
                         .index_reduce(0, ids.index_select(0, kept), x.index_select(0, kept), "prod"));
}

// x, an axis, places along it, a value for all of them. The axis may lie in the device's memory, so the kernel looks at
// it.
void check_fill(LegacyArguments &call) {
    holds(call.in[1], 1, "dim");
    allowed(call.in[2], at::kInt, "the indices");
    allowed(call.in[3], call.in[0].scalar_type(), "the value");
    holds(call.in[3], 1, "the value");
    alike(call.out[0], call.in[0], "the output");
}

at::Tensor filled(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    const int64_t axis = within(one(call.in[1], "dim"), x, "dim");
    return x.index_fill(axis, call.in[2].to(at::kLong).flatten(), call.in[3].reshape({}));
}

// x, how much of each row counts: that is turned round along seq_dim.
void check_reversed(LegacyArguments &call) {
    const int64_t along = axis_of(call.in[0], call.attributes, "seq_dim");
    const auto batch = attribute<int64_t>(call.attributes, "batch_dim", 0);
    if (batch < 0 || batch >= call.in[0].dim() || batch == along)
        fail(FaultKind::InvalidArgument, "attributes batch_dim {} and seq_dim {} are of {}", batch, along,
             describe(call.in[0]));
    holds(call.in[1], call.in[0].size(batch), "the lengths");
    alike(call.out[0], call.in[0], "the output");
}

void reversed(LegacyArguments &call) {
    const auto batch = attribute<int64_t>(call.attributes, "batch_dim", 0);
    const at::Tensor x = call.in[0].movedim({batch, axis_of(call.in[0], call.attributes, "seq_dim")}, {0, 1});
    const at::Tensor lengths = call.in[1].to(at::kLong).reshape({-1, 1}), place = at::arange(x.size(1)).unsqueeze(0);
    at::Tensor from = at::where(place < lengths, lengths - 1 - place, place);
    while (from.dim() < x.dim()) from = from.unsqueeze(-1);
    call.out[0].copy_(
        x.gather(1, from.expand_as(x)).movedim({0, 1}, {batch, axis_of(call.in[0], call.attributes, "seq_dim")}));
}

// x, how many diagonals below and above the main one stay; negative: all.
void check_banded(LegacyArguments &call) {
    alike(call.out[0], call.in[0], "the output");
    if (call.in[0].dim() < 2) fail(FaultKind::InvalidArgument, "x is {}, expected matrices", describe(call.in[0]));
    for (const size_t i : {1, 2}) one(call.in[i], "a number of diagonals");
}

at::Tensor banded(const at::Tensor &x, int64_t below, int64_t above) {
    at::Tensor kept = above < 0 ? x : at::triu(x.transpose(-1, -2), -above).transpose(-1, -2);
    return below < 0 ? kept : at::triu(kept, -below);
}

void check_rows(LegacyArguments &call) {
    const int64_t axis = axis_of(call.in[0], call.attributes, "axis");
    allowed(call.in[1], {at::kInt, at::kLong}, "the indices");
    alike(call.out[0], call.in[0], "the output");
    if (call.in.size() > 3 && call.in[3].defined())
        fail(FaultKind::Unsupported, "The virtual NPU does not have alpha of InplaceIndexAdd.");
    std::vector<int64_t> expected = call.in[0].sizes().vec();
    expected[static_cast<size_t>(axis < 0 ? axis + call.in[0].dim() : axis)] = call.in[1].numel();
    sizes(call.in[2], expected, "the updates");
}

void rows(LegacyArguments &call) {
    const int64_t axis = axis_of(call.in[0], call.attributes, "axis");
    call.out[0].copy_(at::index_add(call.in[0], axis, call.in[1].to(at::kLong).flatten(), call.in[2]));
}

// Data, places along the axis, values for them.
void check_scatter(LegacyArguments &call) {
    const int64_t axis = call.attributes.values.contains("axis") ? axis_of(call.in[0], call.attributes, "axis") : 0;
    const auto reduction = attribute<std::string>(call.attributes, "reduction", "none");
    if (reduction != "none" && reduction != "add" && reduction != "mul")
        fail(FaultKind::InvalidArgument, "attribute reduction is \"{}\", allowed are none, add and mul", reduction);
    allowed(call.in[1], {at::kInt, at::kLong}, "the indices");
    sizes(call.in[2], call.in[1].sizes(), "the updates");
    alike(call.out[0], call.in[0], "the output");
    if (call.in[1].dim() != call.in[0].dim())
        fail(FaultKind::InvalidArgument, "the indices are {} for {}, axis {}", describe(call.in[1]),
             describe(call.in[0]), axis);
}

void scatter(LegacyArguments &call) {
    const auto axis = attribute<int64_t>(call.attributes, "axis", 0);
    const auto reduction = attribute<std::string>(call.attributes, "reduction", "none");
    at::Tensor places = call.in[1].to(at::kLong);
    places = at::where(places.lt(0), places + call.in[0].size(axis), places);
    call.out[0].copy_(call.in[0]);
    if (reduction == "none")
        call.out[0].scatter_(axis, places, call.in[2]);
    else
        call.out[0].scatter_reduce_(axis, places, call.in[2], reduction == "add" ? "sum" : "prod");
}

// x, values, then one vector of indices for each of the first dimensions.
c10::List<std::optional<at::Tensor>> vectors(LegacyArguments &call) {
    allowed(call.in[1], call.in[0].scalar_type(), "the values");
    alike(call.out[0], call.in[0], "the output");
    if (call.in.size() < 3 || static_cast<int64_t>(call.in.size()) - 2 > call.in[0].dim())
        fail(FaultKind::InvalidArgument, "there are {} vectors of indices for {}", call.in.size() - 2,
             describe(call.in[0]));
    c10::List<std::optional<at::Tensor>> list;
    for (size_t i = 2; i < call.in.size(); ++i) {
        allowed(call.in[i], {at::kInt, at::kLong}, "indices");
        list.push_back(call.in[i].to(at::kLong));
    }
    return list;
}

}  // namespace
}  // namespace vnpu::opapi

// in: var, indices along the axis, updates.
LEGACY(InplaceIndexAdd, check_rows(arguments), rows(arguments))
LEGACY(ScatterElements, check_scatter(arguments), scatter(arguments))
LEGACY(OneHot, check_one_hot(arguments), one_hot(arguments))
LEGACY(TopK, check_largest(arguments), largest(arguments))
LEGACY(Sort, allowed(in[0], kAll, "x"); axis_of(in[0], attributes, "axis");
       alike(out[0], in[0], "the output"), sorted(arguments))
LEGACY(UnsortedSegmentSum, check_segments(arguments), segments(arguments))
LEGACY(GatherNd, check_positions(in[0], in[1]), put(out[0], at::index(in[0], places(in[0], in[1]))))
LEGACY(TensorScatterUpdate, check_positions(in[0], in[1]); alike(out[0], in[0], "the output"), update(arguments))
LEGACY(ScatterNd, check_spread(arguments), spread(arguments))
LEGACY(UnsortedSegmentMax, check_segments(arguments), extreme_of_segments(arguments, "amax", false))
LEGACY(UnsortedSegmentMin, check_segments(arguments), extreme_of_segments(arguments, "amin", true))
LEGACY(ReverseSequence, check_reversed(arguments), reversed(arguments))
LEGACY(MatrixBandPart, check_banded(arguments),
       out[0].copy_(banded(in[0], one(in[1], "num_lower"), one(in[2], "num_upper"))))
LEGACY(CustIndexPut, vectors(arguments),
       out[0].copy_(at::index_put(in[0], vectors(arguments), in[1],
                                  attribute<int64_t>(attributes, "accumulate", 0) != 0)))
LEGACY(UnsortedSegmentProd, check_segments(arguments), product_of_segments(arguments))
LEGACY(CustIndexFill, check_fill(arguments), out[0].copy_(filled(arguments)))
