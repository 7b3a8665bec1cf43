// What the calls of the old operators check of their operands. The descriptors carry no names, so texts say which
// input or output it is by what it is for.
#pragma once

#include <ATen/core/Reduction.h>

#include <string_view>

#include "device/fault.h"
#include "opapi/aclnn/check.h"
#include "opapi/aclop/legacy.h"

namespace vnpu::opapi {

inline void allowed(const at::Tensor &tensor, DTypes dtypes, std::string_view what) {
    if (!tensor.defined()) fail(FaultKind::NullArgument, "{} is missing", what);
    if (!dtypes.has(tensor.scalar_type()))
        fail(FaultKind::InvalidArgument, "{} is {}, which is no dtype that the operator takes", what, describe(tensor));
}

// `tensor` has these sizes; -1 stands for any.
inline void sizes(const at::Tensor &tensor, at::IntArrayRef expected, std::string_view what) {
    bool same = tensor.defined() && tensor.dim() == static_cast<int64_t>(expected.size());
    std::string shape;
    for (size_t i = 0; i < expected.size(); ++i) {
        same = same && (expected[i] < 0 || tensor.size(static_cast<int64_t>(i)) == expected[i]);
        shape += fmt::format("{}{}", i == 0 ? "" : ", ", expected[i] < 0 ? "any" : std::to_string(expected[i]));
    }
    if (!same) fail(FaultKind::InvalidArgument, "{} is {}, expected [{}]", what, describe(tensor), shape);
}

// Descriptors have sizes of 1 that the program's tensors do not have: the elements decide.
inline void holds(const at::Tensor &tensor, int64_t elements, std::string_view what) {
    if (!tensor.defined() || tensor.numel() != elements)
        fail(FaultKind::InvalidArgument, "{} is {}, expected {} elements", what, describe(tensor), elements);
}

// The integer that an operand holds.
inline int64_t one(const at::Tensor &number, std::string_view what) {
    holds(number, 1, what);
    return ints(number).front();
}

// The dimension of `x` that `axis` names, counted from the first or from the end; `what` is the parameter.
inline int64_t within(int64_t axis, const at::Tensor &x, std::string_view what = "axis") {
    if (axis < -x.dim() || axis >= x.dim())
        fail(FaultKind::InvalidArgument, "{} is {} for {}", what, axis, describe(x));
    return axis < 0 ? axis + x.dim() : axis;
}

// The dimension of `x` that an attribute names.
inline int64_t axis_of(const at::Tensor &x, const aclopAttr &attributes, const char *name, int64_t otherwise = -1) {
    return within(attribute<int64_t>(attributes, name, otherwise), x, fmt::format("attribute {}", name));
}

// The dimensions of `x` that an attribute names.
inline std::vector<int64_t> axes_of(const at::Tensor &x, const aclopAttr &attributes, const char *name,
                                    const std::vector<int64_t> &otherwise = {}) {
    auto axes = attribute<std::vector<int64_t>>(attributes, name, otherwise);
    for (int64_t &axis : axes) axis = within(axis, x, fmt::format("attribute {}", name));
    return axes;
}

// The one dimension of `x` that an attribute names, which is a list.
inline int64_t only_axis_of(const at::Tensor &x, const aclopAttr &attributes, const char *name) {
    const auto axes = axes_of(x, attributes, name, {-1});
    if (axes.size() != 1) fail(FaultKind::InvalidArgument, "attribute {} has {} values, expected 1", name, axes.size());
    return axes[0];
}

// The one dimension of `x` that an input names.
inline int64_t axis_input(const at::Tensor &x, const at::Tensor &axis) { return within(one(axis, "the axis"), x); }

// The dimensions of `x` that an input names.
inline std::vector<int64_t> axes_input(const at::Tensor &x, const at::Tensor &axes) {
    std::vector<int64_t> all = ints(axes);
    for (int64_t &axis : all) axis = within(axis, x);
    return all;
}

// Both have one shape and one dtype.
inline void alike(const at::Tensor &tensor, const at::Tensor &other, std::string_view what) {
    if (!tensor.defined() || !other.defined() || tensor.sizes() != other.sizes() ||
        tensor.scalar_type() != other.scalar_type())
        fail(FaultKind::InvalidArgument, "{} is {}, expected shape and dtype of {}", what, describe(tensor),
             describe(other));
}

// Inputs and output have the shape and the dtype of the first input, which is `dtypes`.
inline void check_like_first(LegacyArguments &call, size_t inputs, DTypes dtypes = kAll | kUnsigned,
                             std::string_view what = "an input") {
    allowed(call.in[0], dtypes, what);
    for (size_t i = 1; i < inputs; ++i) alike(call.in[i], call.in[0], "an input");
    alike(call.out[0], call.in[0], "the output");
}

// `out` gets what was computed, in its own dtype; shapes differ by sizes of 1 only.
inline void put(at::Tensor &out, const at::Tensor &result) { out.copy_(result.reshape(out.sizes())); }

// How a loss is reduced.
inline int64_t reduction(const aclopAttr &attributes) {
    const auto name = attribute<std::string>(attributes, "reduction", "mean");
    if (name == "none") return at::Reduction::None;
    if (name == "mean") return at::Reduction::Mean;
    if (name == "sum") return at::Reduction::Sum;
    fail(FaultKind::InvalidArgument, "attribute reduction is \"{}\", allowed are none, mean and sum", name);
}

}  // namespace vnpu::opapi
