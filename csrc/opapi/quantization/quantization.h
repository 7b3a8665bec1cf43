// Integers that stand for reals: value / scale, rounded to even and saturated.
#pragma once

#include <limits>

#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi::quantization {

struct Bounds {
    double low, high;
};

// Of an integer dtype that a quantised tensor has.
inline Bounds range(at::ScalarType dtype) {
    if (dtype == at::kByte) return {0, 255};
    if (dtype == at::kInt) return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    return {-128, 127};
}

// Rounded half to even and saturated. In double where the range's ends are no floats: int32's.
inline void saturate(at::Tensor &out, const at::Tensor &value) {
    const Bounds allowed = range(out.scalar_type());
    const bool holds = out.element_size() < 4 && value.is_floating_point();
    out.copy_(at::round(holds ? value : value.to(at::kDouble)).nan_to_num_(0).clamp_(allowed.low, allowed.high));
}

// A scale and, for asymmetric ranges, an offset for each slice over `dims`, from its extremes; `value` becomes value /
// scale + offset. A slice of zeros has scale 0 and gives zeros.
struct Dynamic {
    at::Tensor scale, offset;  // dims kept; offset undefined when symmetric
};
inline Dynamic dynamic(at::Tensor &value, at::IntArrayRef dims, Bounds allowed, bool symmetric) {
    Dynamic result;
    if (symmetric) {
        result.scale = at::amax(value.abs(), dims, true) / allowed.high;
        value = value / result.scale;
    } else {
        const at::Tensor highest = at::amax(value, dims, true);
        result.scale = (highest - at::amin(value, dims, true)) / (allowed.high - allowed.low);
        result.offset = allowed.high - highest / result.scale;
        value = value / result.scale + result.offset;
    }
    return result;
}

// Rows [ends[g - 1], ends[g]) of `rows` times factors[g]; those behind the last group stay.
inline at::Tensor by_group(const at::Tensor &rows, const at::Tensor &factors, const at::Tensor &ends) {
    const at::Tensor position = at::arange(rows.size(0), at::TensorOptions().dtype(at::kLong));
    const at::Tensor group = at::searchsorted(ends.to(at::kLong).contiguous(), position, false, true);
    const at::Tensor padded = at::cat({widened(factors), at::ones({1, factors.size(1)})});
    return rows * padded.index_select(0, group);
}

// int4: eight to an int32, along the dimension whose elements lie side by side, the first in the lowest bits.
inline bool packed(const at::Tensor &tensor) { return tensor.scalar_type() == at::kInt; }
inline int64_t packed_dimension(const at::Tensor &tensor) {
    return tensor.dim() > 1 && tensor.stride(-1) != 1 && tensor.stride(-2) == 1 ? -2 : -1;
}
// The sizes of what is packed, and those of any other tensor.
inline at::DimVector unpacked_sizes(const at::Tensor &tensor) {
    at::DimVector sizes(tensor.sizes().begin(), tensor.sizes().end());
    if (packed(tensor) && !sizes.empty()) sizes[sizes.size() + static_cast<size_t>(packed_dimension(tensor))] *= 8;
    return sizes;
}
// As int8.
inline at::Tensor unpacked_int4(const at::Tensor &tensor) {
    if (!packed(tensor)) return tensor;
    const int64_t along = packed_dimension(tensor);
    const at::Tensor shifts = at::arange(28, -4, -4, at::TensorOptions().dtype(at::kInt));
    const at::Tensor words = (along == -1 ? tensor : tensor.mT()).unsqueeze(-1);
    const at::Tensor values = words.bitwise_left_shift(shifts).bitwise_right_shift(28).to(at::kChar).flatten(-2);
    return along == -1 ? values : values.mT();
}

// Rounded half to even, saturated and packed.
inline void pack_int4(at::Tensor &out, const at::Tensor &value) {
    const at::Tensor bits = at::round(value).nan_to_num_(0).clamp_(-8, 7).to(at::kInt).bitwise_and_(15);
    const at::Tensor places = at::arange(0, 32, 4, at::TensorOptions().dtype(at::kInt));
    out.copy_(bits.unflatten(-1, {-1, 8}).bitwise_left_shift(places).sum(-1));
}

// The sizes of `x` with eight values of 4 bits to each int32.
inline at::DimVector stored_sizes(const at::Tensor &x, const at::Tensor &out) {
    at::DimVector sizes(x.sizes());
    if (packed(out)) sizes.back() /= 8;
    return sizes;
}

// `out` has a place for each value of `x`, which has at least one dimension.
inline void check_holds_quantized(const Operand &x, const Operand &out) {
    if (packed(out) && x.size(-1) % 8 != 0)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, its last size must be a multiple of 8", x.parameter(),
             describe(x));
    shape(out, stored_sizes(x, out));
}

// What a value may be that is stored in `out`: int32 holds eight of 4 bits.
inline Bounds stored_range(const at::Tensor &out) { return packed(out) ? Bounds{-8, 7} : range(out.scalar_type()); }

inline void store(at::Tensor &out, const at::Tensor &value) {
    if (packed(out))
        pack_int4(out, value);
    else
        saturate(out, value);
}

inline void quantized(const Operand &out) { dtype(out, {at::kChar}); }

}  // namespace vnpu::opapi::quantization
