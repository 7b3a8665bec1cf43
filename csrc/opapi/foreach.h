// What the foreach operators check and how they run, for both forms of their scalar: in host memory (foreach.cpp) and
// in a tensor of the device (foreach_device_scalar.cpp).
#pragma once

#include <algorithm>

#include "device/fault.h"
#include "opapi/op.h"

namespace vnpu::opapi::foreach {

inline constexpr DTypes kWithInt = kNative | at::kInt;
inline constexpr DTypes kSmallInts{at::kShort, at::kChar, at::kByte};
inline constexpr DTypes kCopied = kReals | at::kBool | at::kUInt16 | at::kUInt32;

// One dtype of `allowed` throughout the list, as CANN asks.
inline void uniform(const Operands &list, DTypes allowed) {
    for (const Operand &tensor : list) dtype(tensor, allowed);
    same_dtypes(list);
}

inline void same_shapes(const Operands &out, const Operands &in) {
    same_length(in, out);
    for (size_t i = 0; i < out.size(); ++i) same_shape(in[i], out[i]);
}

// Every list has `out`'s shapes and its one dtype.
template <class... Lists>
void alike(DTypes allowed, const Operands &out, const Lists &...lists) {
    uniform(out, allowed);
    (same_shapes(out, lists), ...);
    (uniform(lists, allowed), ...);
    const auto matches = [&](const Operands &list) {
        if (!out.empty()) same_dtype(list.front(), out.front());
    };
    (matches(lists), ...);
}

inline void as_many(const std::vector<at::Scalar> &scalars, const Operands &list) {
    if (scalars.size() != list.size())
        fail(FaultKind::InvalidArgument, "parameter scalars has {} values, expected {}, as many as {}", scalars.size(),
             list.size(), list.parameter());
}

// function(out[i], lists[i]...) for every i. ATen's out variants take the output first.
template <class Function, class... Lists>
void each(Function function, Operands &out, const Lists &...lists) {
    for (size_t i = 0; i < out.size(); ++i) function(out[i], lists[i]...);
}

// A scalar as a 0-dim tensor: ATen's binary out variants take tensors, and a 0-dim one does not change the dtype.
inline at::Tensor wrapped(const at::Scalar &scalar) {
    at::Tensor tensor =
        at::scalar_tensor(scalar, at::TensorOptions().dtype(scalar.isFloatingPoint() ? at::kDouble : at::kLong));
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return tensor;
}

inline std::vector<at::Tensor> wrapped(const std::vector<at::Scalar> &scalars) {
    std::vector<at::Tensor> tensors;
    for (const at::Scalar &scalar : scalars) tensors.push_back(wrapped(scalar));
    return tensors;
}

// CANN's roundMode; 7 is torch_npu's way to ask for the fraction. An unlisted one rounds to even.
enum RoundMode { kFloor = 2, kCeil = 3, kHalfAway = 4, kTruncate = 5, kNearestOdd = 6, kFraction = 7 };

inline void round_off(at::Tensor &out, const at::Tensor &x, int64_t mode) {
    if (at::isIntegralType(x.scalar_type(), false)) {
        mode == kFraction ? out.zero_() : out.copy_(x);
    } else if (mode == kHalfAway) {
        out.copy_(at::copysign(at::floor(at::abs(x) + 0.5), x));
    } else {
        const auto function = mode == kFloor      ? at::floor_out
                              : mode == kCeil     ? at::ceil_out
                              : mode == kTruncate ? at::trunc_out
                              : mode == kFraction ? at::frac_out
                                                  : static_cast<decltype(&at::floor_out)>(at::round_out);
        function(out, x);
    }
}

}  // namespace vnpu::opapi::foreach
