// Sums, extremes, norms and deviations along axes of the old API. Sums of powers in fp32, rounded once.
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

// Sums and the like: the axes are an input of integers, none means all.
void check_reduce(LegacyArguments &arguments) {
    const at::Tensor &in = arguments.in[0];
    int64_t kept = in.numel();
    for (const int64_t axis : axes_input(in, arguments.in[1])) kept = in.size(axis) == 0 ? 0 : kept / in.size(axis);
    if (arguments.out[0].numel() != (arguments.in[1].numel() == 0 ? 1 : kept))
        fail(FaultKind::InvalidArgument, "the output is {}, which has not the {} elements of the result",
             describe(arguments.out[0]), kept);
}

template <class Function>
void reduce(LegacyArguments &arguments, Function function) {
    const at::Tensor result = function(arguments.in[0], ints(arguments.in[1]));
    arguments.out[0].copy_(result.reshape(arguments.out[0].sizes()));
}

// In fp32 where it is less; ATen multiplies along one dimension at a time.
at::Tensor product(const at::Tensor &given, at::IntArrayRef axes) {
    at::Tensor x = widened(given);
    std::vector<bool> gone(static_cast<size_t>(x.dim()), axes.empty());
    for (const int64_t axis : axes) gone[static_cast<size_t>(axis < 0 ? axis + x.dim() : axis)] = true;
    for (int64_t i = x.dim() - 1; i >= 0; --i)
        if (gone[static_cast<size_t>(i)]) x = x.prod(i);
    return x;
}

at::Tensor norm(const at::Tensor &x, const aclopAttr &attributes) {
    const auto p = attribute<int64_t>(attributes, "p", 2);
    const bool kept = attribute<bool>(attributes, "keepdim", false);
    return at::norm(x, at::Scalar(p), axes_of(x, attributes, "axes"), kept)
        .clamp_min(attribute<float>(attributes, "epsilon", 1e-12F));
}

void deviations(LegacyArguments &call) {
    const at::Tensor x = widened(call.in[0]);
    const bool kept = attribute<bool>(call.attributes, "keepdim", false);
    const auto correction = attribute<bool>(call.attributes, "unbiased", true) ? 1 : 0;
    std::vector<int64_t> over = axes_of(x, call.attributes, "dim");
    if (over.empty())
        for (int64_t i = 0; i < x.dim(); ++i) over.push_back(i);
    const auto [deviation, mean] = at::std_mean(x, at::OptionalIntArrayRef(over), at::Scalar(correction), kept);
    put(call.out[0], deviation);
    if (call.out.size() > 1) put(call.out[1], mean);
}

void check_truths(LegacyArguments &call) {
    allowed(call.in[0], at::kBool, "x");
    axes_input(call.in[0], call.in[1]);
}

}  // namespace
}  // namespace vnpu::opapi

#define REDUCE(NAME, ...)                 \
    LEGACY(NAME, check_reduce(arguments), \
           reduce(arguments, [](const at::Tensor &x, at::IntArrayRef axes) { return __VA_ARGS__; }))
REDUCE(ReduceSum, at::sum(x, axes))
REDUCE(ReduceMean, at::mean(x, axes))
REDUCE(ReduceProd, product(x, axes))
REDUCE(ReduceMax, at::amax(x, axes))
REDUCE(ReduceMin, at::amin(x, axes))
LEGACY(ReduceAll, check_truths(arguments), put(out[0], in[0].logical_not().sum(ints(in[1])).eq(0)))
LEGACY(ReduceAny, check_truths(arguments), put(out[0], in[0].sum(ints(in[1])).ne(0)))
LEGACY(ReduceStd, allowed(in[0], kNative, "x"); axes_of(in[0], attributes, "dim"), deviations(arguments))
LEGACY(LpNorm, allowed(in[0], kNative, "x");
       axes_of(in[0], attributes, "axes"), put(out[0], norm(widened(in[0]), attributes)))
LEGACY(
    SquareSumAll,
    for (size_t i = 0; i < 2; ++i) {
        allowed(in[i], kNative, "an input");
        holds(out[i], 1, "an output");
    },
    for (size_t i = 0; i < 2; ++i) put(out[i], widened(in[i]).square().sum()))
LEGACY(ArgMin, axis_input(in[0], in[1]);
       allowed(out[0], {at::kInt, at::kLong}, "the output"), put(out[0], in[0].argmin(axis_input(in[0], in[1]))))
LEGACY(ArgMaxV2, axis_input(in[0], in[1]);
       allowed(out[0], {at::kInt, at::kLong}, "the output"), put(out[0], in[0].argmax(axis_input(in[0], in[1]))))
