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

// Which dimension of `x` that is, from the first or from the end.
inline int64_t within(int64_t axis, const at::Tensor &x) {
    if (axis < -x.dim() || axis >= x.dim()) fail(FaultKind::InvalidArgument, "axis is {} for {}", axis, describe(x));
    return axis < 0 ? axis + x.dim() : axis;
}

// The same of an attribute.
inline int64_t axis_of(const at::Tensor &x, const aclopAttr &attributes, const char *name, int64_t otherwise = -1) {
    const auto axis = attribute<int64_t>(attributes, name, otherwise);
    if (axis < -x.dim() || axis >= x.dim())
        fail(FaultKind::InvalidArgument, "attribute {} is {} for {}", name, axis, describe(x));
    return axis < 0 ? axis + x.dim() : axis;
}

// Both have one shape and one dtype.
inline void alike(const at::Tensor &tensor, const at::Tensor &other, std::string_view what) {
    if (!tensor.defined() || !other.defined() || tensor.sizes() != other.sizes() ||
        tensor.scalar_type() != other.scalar_type())
        fail(FaultKind::InvalidArgument, "{} is {}, expected shape and dtype of {}", what, describe(tensor),
             describe(other));
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
