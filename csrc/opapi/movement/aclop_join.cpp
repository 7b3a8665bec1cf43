// Tensors of the old API put together along an axis, repeated, and ranges of numbers.
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

std::vector<at::Tensor> joined(LegacyArguments &call, const char *name) {
    const auto count = attribute<int64_t>(call.attributes, "N", static_cast<int64_t>(call.in.size()));
    if (count < 1 || count > static_cast<int64_t>(call.in.size()))
        fail(FaultKind::InvalidArgument, "attribute N is {}, there are {} inputs", count, call.in.size());
    std::vector<at::Tensor> tensors(call.in.begin(), call.in.begin() + count);
    const bool stacked = std::string_view(name) == "axis";
    const auto axis = attribute<int64_t>(call.attributes, name, 0);
    const int64_t rank = tensors[0].dim() + (stacked ? 1 : 0);
    if (axis < -rank || axis >= rank)
        fail(FaultKind::InvalidArgument, "attribute {} is {} for {}", name, axis, describe(tensors[0]));
    int64_t total = 0;
    for (const at::Tensor &tensor : tensors) {
        allowed(tensor, tensors[0].scalar_type(), "an input");
        total += tensor.numel();
    }
    holds(call.out[0], total, "the output");
    return tensors;
}

void check_concat(LegacyArguments &call) {
    const int64_t axis = axis_input(call.in[1], call.in[0]);
    std::vector<int64_t> made = call.in[1].sizes().vec();
    made[static_cast<size_t>(axis)] = 0;
    for (size_t i = 1; i < call.in.size(); ++i) {
        std::vector<int64_t> expected = call.in[1].sizes().vec();
        expected[static_cast<size_t>(axis)] = -1;
        sizes(call.in[i], expected, "an input");
        allowed(call.in[i], call.out[0].scalar_type(), "an input");
        made[static_cast<size_t>(axis)] += call.in[i].size(axis);
    }
    sizes(call.out[0], made, "the output");
}

void check_range(LegacyArguments &call) {
    for (size_t i = 0; i < 3; ++i) holds(call.in[i], 1, "an end or the step");
    sizes(call.out[0], {-1}, "the output");
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(ConcatD, joined(arguments, "concat_dim"),
       put(out[0], at::cat(joined(arguments, "concat_dim"), attribute<int64_t>(attributes, "concat_dim", 0))))
// The dimension is the first input.
LEGACY(Concat, check_concat(arguments), out[0].copy_(at::cat(at::TensorList(in).slice(1), axis_input(in[1], in[0]))))
LEGACY(ParallelConcat, joined(arguments, "concat_dim"), put(out[0], at::cat(joined(arguments, "concat_dim"), 0)))
LEGACY(Pack, joined(arguments, "axis"),
       put(out[0], at::stack(joined(arguments, "axis"), attribute<int64_t>(attributes, "axis", 0))))
LEGACY(Tile, holds(out[0], in[0].repeat(ints(in[1])).numel(), "the output"), put(out[0], in[0].repeat(ints(in[1]))))
LEGACY(Range, check_range(arguments),
       out[0].copy_(at::arange(in[0].reshape({}).item(), in[1].reshape({}).item(), in[2].reshape({}).item(),
                               out[0].options())
                        .slice(0, 0, out[0].numel())))
