// Old operators whose result's size lies in the data: the caller gives room for the largest.
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

// Room of `out` for `values`, in its order of elements, and how much of it was used.
void give(LegacyArguments &call, size_t output, const at::Tensor &values) {
    at::Tensor &out = call.out[output];
    out.view({-1}).narrow(0, 0, values.numel()).copy_(values.reshape({-1}));
    (*call.found)[output] = values.sizes().vec();
}

// A row for each place or, transposed, one for each dimension.
at::Tensor places(LegacyArguments &call) {
    const at::Tensor rows = at::nonzero(call.in[0]);
    return attribute<bool>(call.attributes, "transpose", false) ? rows.t() : rows;
}

void check_places(LegacyArguments &call) {
    attribute<bool>(call.attributes, "transpose", false);
    allowed(call.out[0], {at::kInt, at::kLong}, "the output");
    holds(call.out[0], call.in[0].numel() * call.in[0].dim(), "the output");
}

int64_t axis_of(LegacyArguments &call) {
    const std::vector<int64_t> axis = ints(call.in[1]);
    const int64_t dimensions = call.in[0].dim();
    if (axis.size() != 1 || axis[0] < -dimensions || axis[0] >= dimensions)
        fail(FaultKind::InvalidArgument, "axis has {} numbers, expected one dimension of {}", axis.size(),
             describe(call.in[0]));
    return axis[0] < 0 ? axis[0] + dimensions : axis[0];
}

void check_unique(LegacyArguments &call) {
    const int64_t axis = axis_of(call);
    alike(call.out[0], call.in[0], "the first output");
    for (size_t i = 1; i < call.out.size(); ++i) {
        allowed(call.out[i], {at::kInt, at::kLong}, "an output");
        holds(call.out[i], call.in[0].size(axis), "an output");
    }
}

// The slices along the axis that differ, for each of the input its place among them, and how often each is there. A
// fourth output has the places again: torch_npu gives that to its caller.
void unique(LegacyArguments &call) {
    const auto [values, places, counts] = at::unique_dim(call.in[0], axis_of(call), true, true, true);
    give(call, 0, values);
    give(call, 1, places);
    give(call, 2, counts);
    if (call.out.size() > 3) give(call, 3, places);
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(NonZero, check_places(arguments), give(arguments, 0, places(arguments)))
LEGACY(UniqueWithCountsExt2, check_unique(arguments), unique(arguments))
