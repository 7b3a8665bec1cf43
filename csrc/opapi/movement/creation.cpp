// Tensors from numbers: ranges, identities, triangles, one-hot, diagonals.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/fault.h"
#include "opapi/aclnn/number.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/unsigned.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kRange = kFloats | at::kInt | at::kLong;

// Elements of [start, end) or, closed, [start, end]: as torch counts them, in int64 where all three are integers or
// become such in the output (arange(3.1) has 4 elements, but 3 in int64).
int64_t steps_between(const ScalarArgument &start, const ScalarArgument &end, const ScalarArgument &step,
                      at::ScalarType out, bool closed) {
    for (const ScalarArgument *number : {&start, &end, &step}) require(*number);
    const bool integers =
        out == at::kLong || (start.get().isIntegral(true) && end.get().isIntegral(true) && step.get().isIntegral(true));
    const auto value = [&](const ScalarArgument &number) {
        return out == at::kLong ? std::trunc(number.to<double>()) : number.to<double>();
    };
    const double first = value(start), last = value(end), by = value(step);
    if (by == 0) fail(FaultKind::InvalidArgument, "parameter step is 0");
    if (!std::isfinite(first) || !std::isfinite(last))
        fail(FaultKind::InvalidArgument, "parameters start and end are {} and {}: a range is finite", first, last);
    if ((by > 0 && first > last) || (by < 0 && first < last))
        fail(FaultKind::InvalidArgument, "parameter step is {}, which does not lead from start {} to end {}", by, first,
             last);
    if (integers && !closed) {
        const int64_t n = end.to<int64_t>() - start.to<int64_t>(), s = step.to<int64_t>();
        return n / s + (n % s != 0);
    }
    const double count = (last - first) / by;
    return static_cast<int64_t>(closed ? std::floor(count) + 1 : std::ceil(count));
}

void check_range(const Operand &out, const ScalarArgument &start, const ScalarArgument &end, const ScalarArgument &step,
                 bool closed) {
    dtype(out, kRange);
    if (c10::isIntegralType(out.scalar_type(), true) && std::trunc(step.to<double>()) == 0)
        fail(FaultKind::InvalidArgument, "parameter step is {}, which is 0 in out's dtype, {}", step.to<double>(),
             describe(out));
    shape(out, {steps_between(start, end, step, out.scalar_type(), closed)});
}

// Refuses a number that an output of integers cannot hold: ATen's kernels stop at it.
void check_held(const Operand &out, const ScalarArgument &number) {
    if (!at::isIntegralType(out.scalar_type(), false)) return;
    AT_DISPATCH_INTEGRAL_TYPES(out.scalar_type(), "held", [&] {
        const double value = number.to<double>();
        if (!(value >= static_cast<double>(std::numeric_limits<scalar_t>::lowest()) &&
              value <= static_cast<double>(std::numeric_limits<scalar_t>::max())))
            fail(FaultKind::InvalidArgument, "parameter {} is {}, which {} ({}) cannot hold", number.parameter(), value,
                 out.parameter(), describe(out));
    });
}

void check_space(const Operand &out, const ScalarArgument &start, const ScalarArgument &end, int64_t steps,
                 DTypes dtypes) {
    require(start);
    require(end);
    dtype(out, dtypes);
    if (out.scalar_type() != at::kDouble) {
        in_float_range(start.to<double>(), "start");
        in_float_range(end.to<double>(), "end");
    }
    check_held(out, start);
    check_held(out, end);
    if (steps < 0) fail(FaultKind::InvalidArgument, "parameter steps is {}, allowed are 0 and more", steps);
    shape(out, {steps});
}

// ATen steps through linspace in the output's dtype; in half precision the steps would pile up roundings, so those
// are made in float32 first (one temporary).
template <class Make>
void precisely(at::Tensor &out, Make make) {
    if (!at::isReducedFloatingType(out.scalar_type())) {
        make(out);
        return;
    }
    at::Tensor exact = at::empty(out.sizes(), at::kFloat);
    make(exact);
    out.copy_(exact);
}

void check_triangle(const Operand &out, const Operand &self) {
    dtype(self, kAll | kUnsigned);
    same_dtype(out, self);
    same_shape(out, self);
    matrices(self);
}

void check_one_hot(const Operand &self, int64_t classes, const Operand &on, const Operand &off, int64_t axis,
                   const Operand &out) {
    dtype(self, {at::kByte, at::kInt, at::kLong});
    dtype(on, {at::kHalf, at::kFloat, at::kInt, at::kLong});
    same_dtype(off, on);
    same_dtype(out, on);
    for (const Operand *value : {&on, &off})
        if (value->numel() != 1)
            fail(FaultKind::InvalidArgument, "parameter {} has {} elements, allowed is 1", value->parameter(),
                 value->numel());
    if (classes < 0) fail(FaultKind::InvalidArgument, "parameter numClasses is {}, allowed are 0 and more", classes);
    if (axis < -1 || axis > self.dim())
        fail(FaultKind::InvalidArgument, "parameter axis is {}, allowed is [-1, {}]", axis, self.dim());
    at::DimVector sizes(self.sizes().begin(), self.sizes().end());
    sizes.insert(axis < 0 ? sizes.end() : sizes.begin() + axis, classes);
    shape(out, sizes);
}

// A class outside [0, numClasses) marks nothing, so this compares (a bool temporary) and does not scatter.
void mark(at::Tensor &out, const at::Tensor &classes, const at::Tensor &on, const at::Tensor &off, int64_t axis) {
    if (axis < 0) axis = classes.dim();
    at::DimVector shape(static_cast<size_t>(out.dim()), 1);
    shape[static_cast<size_t>(axis)] = out.size(axis);
    const at::Tensor marked = classes.unsqueeze(axis).eq(at::arange(out.size(axis)).view(shape));
    at::where_out(out, marked, on.reshape({}), off.reshape({}));
}

void check_diagonal(const Operand &self) {
    dtype(self, kFloats | kIntsAndBool | at::kComplexFloat);
    if (self.dim() < 2)
        fail(FaultKind::InvalidArgument, "parameter selfRef has {} dimensions, allowed are 2 and more", self.dim());
    for (int64_t i = 1; self.dim() > 2 && i < self.dim(); ++i)
        if (self.size(i) != self.size(0))
            fail(FaultKind::InvalidArgument, "parameter selfRef has {} dimensions of different sizes", self.dim());
}

// The triangle above (with) or below a diagonal. A row of it is a copy and a fill of bytes: torch_npu makes a mask of
// 2048 x 2048 for every causal attention, for which ATen, element by element, takes ten times as long.
void take_triangle(at::Tensor &out, const at::Tensor &self, int64_t diagonal, bool upper) {
    if (!out.is_contiguous() || !self.is_contiguous() || out.scalar_type() != self.scalar_type()) {
        at::Tensor to = moved(out);
        upper ? at::triu_out(to, moved(self), diagonal) : at::tril_out(to, moved(self), diagonal);
        return;
    }
    if (self.numel() == 0) return;
    const int64_t rows = self.size(-2), columns = self.size(-1), bytes = static_cast<int64_t>(self.element_size());
    const int64_t row_bytes = columns * bytes, first = std::clamp(diagonal, -rows, columns) + (upper ? 0 : 1);
    const char *from = static_cast<const char *>(self.const_data_ptr());
    char *to = static_cast<char *>(out.mutable_data_ptr());
    constexpr int64_t kAtOnce = 1 << 15;
    at::parallel_for(0, self.numel() / columns, std::max<int64_t>(kAtOnce / columns, 1), [&](int64_t row, int64_t end) {
        for (; row < end; ++row) {
            const int64_t cut = std::clamp<int64_t>(row % rows + first, 0, columns) * bytes, at = row * row_bytes;
            const int64_t taken = at + (upper ? cut : 0), count = upper ? row_bytes - cut : cut;
            if (to != from) std::memcpy(to + taken, from + taken, static_cast<size_t>(count));
            std::memset(to + at + (upper ? 0 : cut), 0, static_cast<size_t>(row_bytes - count));
        }
    });
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnArange, check_range(out, start, end, step, false), at::arange_out(out, start, end, step))
OP(aclnnRange, check_range(out, start, end, step, true), at::range_out(out, start, end, step))
OP(aclnnLinspace, check_space(out, start, end, steps, kReals),
   precisely(out, [&](at::Tensor &to) { at::linspace_out(to, start.get(), end.get(), steps); }))
OP(aclnnLogSpace, check_space(result, start, end, steps, kNative),
   precisely(result, [&](at::Tensor &to) { at::logspace_out(to, start.get(), end.get(), steps, base); }))
OP(aclnnEye, dtype(out, kNative | kIntsAndBool); shape(out, {n, m}), at::eye_out(out, n, m))
OP(aclnnOneHot, check_one_hot(self, numClasses, onValue, offValue, axis, out), mark(out, self, onValue, offValue, axis))
OP(aclnnTril, check_triangle(out, self), take_triangle(out, self, diagonal, false))
OP(aclnnTriu, check_triangle(out, self), take_triangle(out, self, diagonal, true))
OP(aclnnInplaceTril, check_triangle(selfRef, selfRef), take_triangle(selfRef, selfRef, diagonal, false))
OP(aclnnInplaceTriu, check_triangle(selfRef, selfRef), take_triangle(selfRef, selfRef, diagonal, true))
OP(aclnnInplaceFillDiagonal, check_diagonal(selfRef), selfRef.fill_diagonal_(fillValue.as(selfRef.scalar_type()), wrap))
