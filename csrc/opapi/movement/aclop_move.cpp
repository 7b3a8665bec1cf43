// Operators of the old API that move, order and pick values.
#include "device/fault.h"
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

// Pad: a pair (before, after) per dimension, first dimension first; ATen has the last first.
std::vector<int64_t> pads(const at::Tensor &x, const at::Tensor &paddings) {
    const std::vector<int64_t> pairs = ints(paddings);
    if (static_cast<int64_t>(pairs.size()) != 2 * x.dim())
        fail(FaultKind::InvalidArgument, "there are {} paddings for {}, expected two per dimension", pairs.size(),
             describe(x));
    std::vector<int64_t> reversed;
    for (size_t i = pairs.size(); i > 0; i -= 2) {
        if (pairs[i - 2] < 0 || pairs[i - 1] < 0)
            fail(FaultKind::InvalidArgument, "a padding is negative: ({}, {})", pairs[i - 2], pairs[i - 1]);
        reversed.insert(reversed.end(), {pairs[i - 2], pairs[i - 1]});
    }
    return reversed;
}

void check_pad(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    const std::vector<int64_t> reversed = pads(x, call.in[1]);
    at::DimVector expected(x.sizes().begin(), x.sizes().end());
    for (size_t i = 0; i < reversed.size(); i += 2)
        expected[expected.size() - 1 - i / 2] += reversed[i] + reversed[i + 1];
    sizes(call.out[0], expected, "the output");
}

// Transpose and reshape in one, in either order.
at::Tensor rearranged(const at::Tensor &x, const aclopAttr &attributes) {
    const auto perm = attribute<std::vector<int64_t>>(attributes, "perm", {});
    const auto shape = attribute<std::vector<int64_t>>(attributes, "shape", {});
    if (attribute<bool>(attributes, "transpose_first", false)) return x.permute(perm).reshape(shape);
    return x.reshape(shape).permute(perm);
}

void check_rearrange(LegacyArguments &call) {
    const auto perm = attribute<std::vector<int64_t>>(call.attributes, "perm", {});
    const auto shape = attribute<std::vector<int64_t>>(call.attributes, "shape", {});
    const bool first = attribute<bool>(call.attributes, "transpose_first", false);
    const size_t rank = first ? static_cast<size_t>(call.in[0].dim()) : shape.size();
    std::vector<bool> seen(rank);
    for (const int64_t axis : perm) {
        if (axis < 0 || axis >= static_cast<int64_t>(rank) || seen[static_cast<size_t>(axis)])
            fail(FaultKind::InvalidArgument, "attribute perm is no permutation of {} axes", rank);
        seen[static_cast<size_t>(axis)] = true;
    }
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    if (perm.size() != rank || count != call.in[0].numel())
        fail(FaultKind::InvalidArgument, "attribute perm has {} axes and shape {} elements for {}", perm.size(), count,
             describe(call.in[0]));
    holds(call.out[0], count, "the output");
}

// out: indices, then values.
void check_extreme(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    allowed(x, kNative | at::kInt | at::kLong, "x");
    allowed(call.out[0], {at::kInt, at::kLong}, "indices");
    const int64_t axis = axis_of(x, call.attributes, "dimension", 0);
    if (x.size(axis) == 0) fail(FaultKind::InvalidArgument, "{} has no elements along dim {}", describe(x), axis);
    for (size_t i = 0; i < 2; ++i) holds(call.out[i], x.numel() / x.size(axis), "an output");
}

void extreme(LegacyArguments &call, bool largest) {
    const int64_t axis = axis_of(call.in[0], call.attributes, "dimension", 0);
    const auto [values, indices] = largest ? at::max(call.in[0], axis) : at::min(call.in[0], axis);
    put(call.out[0], indices);
    put(call.out[1], values);
}

// What ArgMaxWithValue took its maxima from: updates go to where the indices say, along one dimension.
void check_spread(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    allowed(call.in[1], at::kInt, "indices");
    const int64_t axis = axis_of(x, call.attributes, "dimension", 0);
    const int64_t expected = x.size(axis) == 0 ? 0 : x.numel() / x.size(axis);
    holds(call.in[1], expected, "indices");
    holds(call.in[2], expected, "updates");
    alike(call.out[0], x, "the output");
}

void spread(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    const int64_t axis = axis_of(x, call.attributes, "dimension", 0);
    at::DimVector one(x.sizes().begin(), x.sizes().end());
    one[static_cast<size_t>(axis)] = 1;
    call.out[0].copy_(
        x.scatter(axis, call.in[1].to(at::kLong).reshape(one), call.in[2].to(x.scalar_type()).reshape(one)));
}

// Blocks of 16 channels of both, added; channels that the tensors do not have are zeros (ops-math: stride_add).
struct Blocks {
    int64_t first, second, count;
};

Blocks blocks(LegacyArguments &call) {
    const auto number = [&](const char *name) { return attribute<int64_t>(call.attributes, name, 0); };
    const Blocks made{number("x1_c1_offset"), number("x2_c1_offset"), number("c1_len")};
    const at::Tensor &a = call.in[0], &b = call.in[1], &y = call.out[0];
    allowed(a, kNative, "x1");
    if (a.dim() < 4 || b.dim() != a.dim() || y.dim() != a.dim() || a.scalar_type() != b.scalar_type())
        fail(FaultKind::InvalidArgument, "the operands are {}, {} and {}, expected one dtype and 4 or 5 dimensions",
             describe(a), describe(b), describe(y));
    const auto has = [](const at::Tensor &x) { return (x.size(1) + 15) / 16; };
    if (made.first < 0 || made.second < 0 || made.count < 1 || made.first + made.count > has(a) ||
        made.second + made.count > has(b) || y.size(1) != 16 * made.count)
        fail(FaultKind::InvalidArgument, "{} blocks from {} of {} and from {} of {} are not {}", made.count, made.first,
             describe(a), made.second, describe(b), describe(y));
    return made;
}

at::Tensor channels(const at::Tensor &x, int64_t first, int64_t count) {
    std::vector<int64_t> padding(static_cast<size_t>(2 * (x.dim() - 1)), 0);
    padding.back() = (16 - x.size(1) % 16) % 16;
    return at::constant_pad_nd(widened(x), padding).narrow(1, 16 * first, 16 * count);
}

// [first, last) of every row's ranges gets the value of that range.
void check_fill(LegacyArguments &call) {
    allowed(call.in[0], kNative | at::kInt | at::kChar, "x");
    for (size_t i = 1; i < 3; ++i) {
        allowed(call.in[i], at::kInt, "a bound");
        if (call.in[i].dim() != 2 || call.in[i].sizes() != call.in[1].sizes())
            fail(FaultKind::InvalidArgument, "start is {} and end {}, expected one shape of 2 dimensions",
                 describe(call.in[1]), describe(call.in[2]));
    }
    holds(call.in[3], call.in[1].size(0), "value");
    const int64_t axis = axis_of(call.in[0], call.attributes, "axis", -1);
    if (axis > 0 && axis == call.in[0].dim() - 1 && call.in[1].size(1) != call.in[0].size(0))
        fail(FaultKind::InvalidArgument, "start is {}, expected a column for each row of {}", describe(call.in[1]),
             describe(call.in[0]));
    alike(call.out[0], call.in[0], "the output");
}

// Along the last dimension, column j of the bounds is of row j; along another every column is of all.
void fill(LegacyArguments &call) {
    at::Tensor &y = call.out[0].copy_(call.in[0]);
    const int64_t axis = axis_of(y, call.attributes, "axis", -1);
    const at::Tensor start = call.in[1].contiguous(), end = call.in[2].contiguous(), value = call.in[3].flatten();
    const bool by_row = axis > 0 && axis == y.dim() - 1;
    for (int64_t i = 0; i < start.size(0); ++i)
        for (int64_t j = 0; j < start.size(1); ++j) {
            const int64_t first = std::max<int64_t>(start[i][j].item<int64_t>(), 0);
            const int64_t last = std::min(end[i][j].item<int64_t>(), y.size(axis));
            if (first >= last) continue;
            at::Tensor rows = by_row ? y.select(0, j) : y;
            rows.narrow(by_row ? axis - 1 : axis, first, last - first).fill_(value[i]);
        }
}

// A view of a storage, which is what the operand has. Fault InvalidArgument where it leaves the storage.
at::Tensor viewed(const at::Tensor &storage, const at::Tensor &shape, const at::Tensor &steps,
                  const at::Tensor &begin) {
    const std::vector<int64_t> view = ints(shape), strides = ints(steps), offset = ints(begin);
    if (view.size() != strides.size() || offset.size() != 1)
        fail(FaultKind::InvalidArgument, "there are {} sizes, {} strides and {} offsets", view.size(), strides.size(),
             offset.size());
    int64_t last = offset[0];
    bool empty = false;
    for (size_t i = 0; i < view.size(); ++i) {
        if (view[i] < 0 || strides[i] < 0)
            fail(FaultKind::InvalidArgument, "size {} has stride {}, expected no negative number", view[i], strides[i]);
        last += (view[i] - 1) * strides[i];
        empty = empty || view[i] == 0;
    }
    if (offset[0] < 0 || (!empty && last >= storage.numel()))
        fail(FaultKind::InvalidArgument, "elements {} to {} are read of {}", offset[0], last, describe(storage));
    return storage.flatten().as_strided(view, strides, offset[0]);
}

void check_copy(LegacyArguments &call) {
    const at::Tensor to = viewed(call.in[0], call.in[1], call.in[2], call.in[3]);
    const at::Tensor from = viewed(call.in[4], call.in[5], call.in[6], call.in[7]);
    if (to.sizes() != from.sizes() || to.scalar_type() != from.scalar_type())
        fail(FaultKind::InvalidArgument, "{} is copied to {}", describe(from), describe(to));
}

void check_sort(LegacyArguments &call) {
    allowed(call.in[0], {at::kHalf, at::kFloat}, "x");
    alike(call.out[0], call.in[0], "the output");
    const int64_t axis = axis_of(call.in[0], call.attributes, "axis", -1);
    if (axis != call.in[0].dim() - 1)
        fail(FaultKind::InvalidArgument, "attribute axis is {}, allowed is the last of {}", axis, describe(call.in[0]));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(Pad, check_pad(arguments), out[0].copy_(at::constant_pad_nd(in[0], pads(in[0], in[1]))))
LEGACY(ConfusionTransposeD, check_rearrange(arguments), put(out[0], rearranged(in[0], attributes)))
LEGACY(ArgMaxWithValue, check_extreme(arguments), extreme(arguments, true))
LEGACY(ArgMinWithValue, check_extreme(arguments), extreme(arguments, false))
LEGACY(ArgMaxGrad, check_spread(arguments), spread(arguments))
LEGACY(StrideAdd, blocks(arguments), const Blocks made = blocks(arguments);
       out[0].copy_(channels(in[0], made.first, made.count) + channels(in[1], made.second, made.count)))
LEGACY(MaskedFillRange, check_fill(arguments), fill(arguments))
LEGACY(SortV2, check_sort(arguments),
       out[0].copy_(std::get<0>(at::sort(in[0], -1, attribute<bool>(attributes, "descending", false)))))
LEGACY(ReverseV2, alike(out[0], in[0], "the output"), out[0].copy_(at::flip(in[0], ints(in[1]))))
LEGACY(AsStrided, holds(out[0], viewed(in[0], in[1], in[2], in[3]).numel(), "the output"),
       put(out[0], viewed(in[0], in[1], in[2], in[3])))
// The output is the first input.
LEGACY(ViewCopy, check_copy(arguments), viewed(in[0], in[1], in[2], in[3]).copy_(viewed(in[4], in[5], in[6], in[7])))
