// Running sums, products and extremes of the old API.
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

void cumulated(LegacyArguments &call) {
    const at::Tensor x = widened(call.in[0]);
    const int64_t axis = one(call.in[1], "axis");
    const bool reverse = attribute<bool>(call.attributes, "reverse", false);
    const at::Tensor forward = reverse ? x.flip(axis) : x;
    at::Tensor sums = forward.cumsum(axis, x.scalar_type());
    if (attribute<bool>(call.attributes, "exclusive", false)) sums = sums - forward;
    call.out[0].copy_(reverse ? sums.flip(axis) : sums);
}

// `scan` of x from one end or the other; without an element's own where that is asked for: then shifted by one, with
// `first` where nothing has come yet.
template <class Scan>
void scanned(LegacyArguments &call, double first, Scan scan) {
    const at::Tensor x = widened(call.in[0]);
    const int64_t axis = one(call.in[1], "axis");
    const bool reverse = attribute<bool>(call.attributes, "reverse", false);
    at::Tensor found = scan(reverse ? x.flip(axis) : x, axis);
    if (attribute<bool>(call.attributes, "exclusive", false) && x.size(axis) > 0)
        found =
            at::cat({at::full_like(found.narrow(axis, 0, 1), first), found.narrow(axis, 0, x.size(axis) - 1)}, axis);
    call.out[0].copy_(reverse ? found.flip(axis) : found);
}

void check_cumulated(LegacyArguments &call) {
    within(one(call.in[1], "axis"), call.in[0]);
    alike(call.out[0], call.in[0], "the output");
}

double lowest(at::ScalarType dtype) {
    if (dtype == at::kHalf) return -65504;
    return dtype == at::kDouble ? std::numeric_limits<double>::lowest() : std::numeric_limits<float>::lowest();
}

int64_t extreme_axis(LegacyArguments &call) {
    const int64_t axis = axis_of(call.in[0], call.attributes, "axis", 0);
    alike(call.out[0], call.in[0], "the output");
    allowed(call.out[1], {at::kInt, at::kLong}, "the places");
    holds(call.out[1], call.in[0].numel(), "the places");
    return axis;
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(Cumsum, check_cumulated(arguments), cumulated(arguments))
LEGACY(Cumprod, check_cumulated(arguments),
       scanned(arguments, 1, [](const at::Tensor &x, int64_t axis) { return x.cumprod(axis); }))
// Of nothing it is the lowest number of the dtype (TensorFlow: cumulative_logsumexp).
LEGACY(CumulativeLogsumexp, allowed(in[0], kFloats, "x");
       check_cumulated(arguments), scanned(arguments, lowest(in[0].scalar_type()),
                                           [](const at::Tensor &x, int64_t axis) { return x.logcumsumexp(axis); }))
LEGACY(Cummin, extreme_axis(arguments), const auto [least, where] = in[0].cummin(extreme_axis(arguments));
       out[0].copy_(least); put(out[1], where))
