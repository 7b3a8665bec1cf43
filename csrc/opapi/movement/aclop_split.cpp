// Operators of the old API that MindSpore calls by their type and that take tensors apart.
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

// axis, x: parts of one size, as many as there are outputs.
void check_split(LegacyArguments &call) {
    const at::Tensor &x = call.in[1];
    const int64_t axis = within(one(call.in[0], "split_dim"), x),
                  count = attribute<int64_t>(call.attributes, "num_split", 0);
    if (count < 1 || x.size(axis) % count != 0 || call.out.size() != static_cast<size_t>(count))
        fail(FaultKind::InvalidArgument, "attribute num_split is {} for dimension {} of {} and {} outputs", count, axis,
             describe(x), call.out.size());
    for (const at::Tensor &out : call.out) holds(out, x.numel() / count, "an output");
}

void split(LegacyArguments &call) {
    const at::Tensor &x = call.in[1];
    const std::vector<at::Tensor> parts =
        at::tensor_split(x, static_cast<int64_t>(call.out.size()), within(one(call.in[0], "split_dim"), x));
    for (size_t i = 0; i < parts.size(); ++i) put(call.out[i], parts[i]);
}

int64_t unpacked(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    const int64_t axis = within(attribute<int64_t>(call.attributes, "axis", 0), x);
    if (attribute<int64_t>(call.attributes, "num", x.size(axis)) != x.size(axis) ||
        call.out.size() != static_cast<size_t>(x.size(axis)))
        fail(FaultKind::InvalidArgument, "there are {} outputs for dimension {} of {}", call.out.size(), axis,
             describe(x));
    for (const at::Tensor &out : call.out) holds(out, x.numel() / x.size(axis), "an output");
    return axis;
}

void unpack(LegacyArguments &call) {
    const int64_t axis = unpacked(call);
    for (size_t i = 0; i < call.out.size(); ++i) put(call.out[i], call.in[0].select(axis, static_cast<int64_t>(i)));
}

// The values in the order in which they come first, and for each element its value's place.
void check_values(LegacyArguments &call) {
    allowed(call.in[0], kAll, "x");
    allowed(call.out[1], {at::kInt, at::kLong}, "the places");
    holds(call.out[0], call.in[0].numel(), "the values");
    holds(call.out[1], call.in[0].numel(), "the places");
}

void values(LegacyArguments &call) {
    const at::Tensor x = call.in[0].flatten();
    const auto [sorted, where, counts] = at::_unique2(x, true, true, false);
    const at::Tensor first = at::full({sorted.numel()}, x.numel(), at::kLong)
                                 .scatter_reduce(0, where, at::arange(x.numel(), at::kLong), "amin");
    const at::Tensor order = first.argsort();
    call.out[0].view({-1}).narrow(0, 0, sorted.numel()).copy_(sorted.index_select(0, order));
    (*call.found)[0] = {sorted.numel()};
    put(call.out[1], order.argsort().index_select(0, where));
}

// x, what fills the rest.
void check_padded(LegacyArguments &call) {
    check_values(call);
    sizes(call.in[0], {-1}, "x");
    allowed(call.in[1], call.in[0].scalar_type(), "pad");
    holds(call.in[1], 1, "pad");
}

void values_and_padding(LegacyArguments &call) {
    call.out[0].copy_(call.in[1].reshape({1}).expand(call.out[0].sizes()));
    values(call);
    call.found->clear();
}

// The last dimension, of one element, gets zeros behind it.
void check_widen(LegacyArguments &call) {
    std::vector<int64_t> expected = call.in[0].sizes().vec();
    if (expected.empty() || expected.back() != 1)
        fail(FaultKind::InvalidArgument, "x is {}, expected a last dimension of 1", describe(call.in[0]));
    expected.back() = attribute<int64_t>(call.attributes, "pad_dim_size", 8);
    if (expected.back() < 1) fail(FaultKind::InvalidArgument, "attribute pad_dim_size is {}", expected.back());
    allowed(call.out[0], call.in[0].scalar_type(), "the output");
    sizes(call.out[0], expected, "the output");
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(Split, check_split(arguments), split(arguments))
LEGACY(Unpack, unpacked(arguments), unpack(arguments))
LEGACY(Unique, check_values(arguments), values(arguments))
LEGACY(UniqueWithPad, check_padded(arguments), values_and_padding(arguments))
LEGACY(CustPadding, check_widen(arguments), out[0].zero_().narrow(-1, 0, 1).copy_(in[0]))
