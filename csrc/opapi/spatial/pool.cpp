// Pooling in two dimensions, and adaptive pooling.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/native/Pool.h>

#include <cmath>

#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"
#include "opapi/spatial/pool_limits.h"

namespace vnpu::opapi {
namespace {

// A window over height and width. CANN takes one number for both, and none for a stride that equals the kernel.
struct Window {
    std::array<int64_t, 2> kernel, stride, padding, dilation;
};

std::array<int64_t, 2> pair_of(const char *name, const Ints &list, int64_t least) {
    if (list.size() != 1 && list.size() != 2)
        fail(FaultKind::InvalidArgument, "parameter {} has {} values, expected 1 or 2", name, list.size());
    for (const int64_t value : list)
        if (value < least)
            fail(FaultKind::InvalidArgument, "parameter {} has the value {}, allowed is >= {}", name, value, least);
    return {list[0], list.back()};
}

Window window(const char *kernel_name, const Ints &kernel, const Ints &stride, const Ints &padding,
              const Ints &dilation) {
    Window made{};
    made.kernel = pair_of(kernel_name, kernel, 1);
    made.stride = stride.empty() ? made.kernel : pair_of("stride", stride, 1);
    made.padding = pair_of("padding", padding, 0);
    made.dilation = dilation.empty() ? std::array<int64_t, 2>{1, 1} : pair_of("dilation", dilation, 1);
    for (size_t i = 0; i < 2; ++i)
        if (made.padding[i] * 2 > made.kernel[i])
            fail(FaultKind::InvalidArgument,
                 "parameter padding has the value {}, allowed is at most half of kernelSize, {}", made.padding[i],
                 made.kernel[i]);
    return made;
}

// `self` and `out` are input and output of the forward pass.
void check_pooled(const Operand &self, const Operand &out, const Window &w, bool ceil) {
    rank(self, {3, 4});
    network(self, out);
    at::DimVector sizes(self.sizes().begin(), self.sizes().end() - 2);
    for (int64_t i = 0; i < 2; ++i) {
        const auto k = static_cast<size_t>(i);
        const int64_t in = self.size(i - 2);
        if (in + 2 * w.padding[k] < w.dilation[k] * (w.kernel[k] - 1) + 1 && !ceil)
            fail(FaultKind::InvalidArgument, "parameter kernelSize has the value {}, larger than {} with its padding",
                 w.kernel[k], describe(self));
        sizes.push_back(
            at::native::pooling_output_shape<int64_t>(in, w.kernel[k], w.padding[k], w.stride[k], w.dilation[k], ceil));
    }
    shape(out, sizes);
}

// --- max pooling with a mask: the buffer between forward and backward is opaque to the program; CANN documents its
// size
// --- only. Ours holds, at the start of each plane, the position inside the window (row by row) of each output's
// maximum.

using Position = uint16_t;

void check_mask(const Operand &indices, const Operand &out, const Window &w) {
    dtype(indices, {at::kChar});
    const int64_t outputs = out.size(-1) * out.size(-2);
    at::DimVector sizes(out.sizes().begin(), out.sizes().end() - 2);
    sizes.push_back(w.kernel[0] * w.kernel[1]);
    sizes.push_back(((outputs + 15) / 16 + 1) * 32);
    shape(indices, sizes);
    if (w.kernel[0] * w.kernel[1] > std::numeric_limits<Position>::max())
        fail(FaultKind::InvalidArgument, "parameter kernelSize is {} x {}, more than 65535 positions", w.kernel[0],
             w.kernel[1]);
}

struct Plane {
    int64_t height, width, out_height, out_width;
};

Plane plane_of(const at::Tensor &self, const at::Tensor &out) {
    return {self.size(-2), self.size(-1), out.size(-2), out.size(-1)};
}

// The first row or column of the input under output `o`, and which taps of the window lie inside.
struct Taps {
    Taps(int64_t o, int64_t size, size_t axis, const Window &w)
        : start(o * w.stride[axis] - w.padding[axis]),
          step(w.dilation[axis]),
          first(start < 0 ? (-start + step - 1) / step : 0),
          last(std::min(w.kernel[axis], (size - start + step - 1) / step)) {}
    int64_t start, step, first, last;
};

template <class T>
void max_plane(const T *in, T *out, Position *positions, const Plane &p, const Window &w) {
    for (int64_t y = 0; y < p.out_height; ++y) {
        const Taps rows(y, p.height, 0, w);
        for (int64_t x = 0; x < p.out_width; ++x) {
            const Taps columns(x, p.width, 1, w);
            T best = -std::numeric_limits<T>::infinity();
            int64_t where = rows.first * w.kernel[1] + columns.first;  // all are -inf: the first
            for (int64_t i = rows.first; i < rows.last; ++i) {
                const T *row = in + (rows.start + i * rows.step) * p.width + columns.start;
                for (int64_t j = columns.first; j < columns.last; ++j) {
                    const T value = row[j * columns.step];
                    if (value > best || value != value) {  // a NaN wins
                        best = value;
                        where = i * w.kernel[1] + j;
                    }
                }
            }
            *out++ = best;
            *positions++ = static_cast<Position>(where);
        }
    }
}

void max_pool(at::Tensor &out, at::Tensor &indices, const at::Tensor &self, const Window &w) {
    const at::Tensor in = self.contiguous();
    at::Tensor result = out.contiguous(), masks = indices.contiguous();
    const Plane p = plane_of(in, out);
    const int64_t planes = in.numel() == 0 ? 0 : in.numel() / (p.height * p.width),
                  row = masks.size(-1) * masks.size(-2);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, in.scalar_type(), "max_pool", [&] {
        const scalar_t *from = in.const_data_ptr<scalar_t>();
        scalar_t *to = result.mutable_data_ptr<scalar_t>();
        auto *bytes = static_cast<char *>(masks.mutable_data_ptr());
        at::parallel_for(0, planes, 1, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i)
                max_plane(from + i * p.height * p.width, to + i * p.out_height * p.out_width,
                          reinterpret_cast<Position *>(bytes + i * row), p, w);
        });
    });
    if (!result.is_same(out)) out.copy_(result);
    if (!masks.is_same(indices)) indices.copy_(masks);
}

void max_pool_backward(at::Tensor &grad_input, const at::Tensor &grad_output, const at::Tensor &indices,
                       const Window &w) {
    const at::Tensor grad = widened(grad_output).contiguous(), masks = indices.contiguous();
    const Plane p = plane_of(grad_input, grad_output);
    const int64_t outputs = p.out_height * p.out_width, planes = outputs == 0 ? 0 : grad.numel() / outputs;
    const int64_t row = masks.size(-1) * masks.size(-2);
    rounded(grad_input, [&](at::Tensor &target) {  // windows overlap: their gradients add up in fp32
        at::Tensor sum = target.contiguous();
        sum.zero_();
        const float *from = grad.const_data_ptr<float>();
        float *to = sum.mutable_data_ptr<float>();
        const auto *bytes = static_cast<const char *>(masks.const_data_ptr());
        at::parallel_for(0, planes, 1, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const auto *positions = reinterpret_cast<const Position *>(bytes + i * row);
                for (int64_t o = 0; o < outputs; ++o) {
                    const int64_t y =
                        o / p.out_width * w.stride[0] - w.padding[0] + positions[o] / w.kernel[1] * w.dilation[0];
                    const int64_t x =
                        o % p.out_width * w.stride[1] - w.padding[1] + positions[o] % w.kernel[1] * w.dilation[1];
                    if (y < 0 || y >= p.height || x < 0 || x >= p.width)
                        fail(FaultKind::InvalidArgument,
                             "parameter indices was not made by aclnnMaxPool2dWithMask: "
                             "it holds a position outside of the input");
                    to[i * p.height * p.width + y * p.width + x] += from[i * outputs + o];
                }
            }
        });
        if (!sum.is_same(target)) target.copy_(sum);
    });
}

// --- average pooling ------------------------------------------------------------------------------------------

// An image without batch has nothing that may be empty, one with a batch only that (ops-nn: aclnn_avgpool2d.cpp).
void check_only_the_batch_is_empty(const Operand &self) {
    for (int64_t i = self.dim() - 3; i < self.dim(); ++i)
        if (self.size(i) == 0)
            fail(FaultKind::InvalidArgument,
                 "Expected tensor with optional 0 dim batch size for input: parameter {} is {}", self.parameter(),
                 describe(self));
}

std::optional<int64_t> divisor(int64_t override) { return override == 0 ? std::nullopt : std::optional(override); }

void check_adaptive(const Operand &self, const Ints &output_size, const Operand &out,
                    std::initializer_list<int64_t> ranks) {
    rank(self, ranks);
    network(self, out);
    const auto spatial = *ranks.begin() - 1;
    if (static_cast<int64_t>(output_size.size()) != spatial)
        fail(FaultKind::InvalidArgument, "parameter outputSize has {} values, expected {}", output_size.size(),
             spatial);
    at::DimVector sizes(self.sizes().begin(), self.sizes().end() - spatial);
    sizes.insert(sizes.end(), output_size.begin(), output_size.end());
    shape(out, sizes);
}

void check_adaptive_backward(const Operand &grad_output, const Operand &self, const Operand &grad_input,
                             std::initializer_list<int64_t> ranks) {
    rank(self, ranks);
    rank(grad_output, {self.dim()});
    network(grad_output, self, grad_input);
    same_shape(grad_input, self);
}

}  // namespace
}  // namespace vnpu::opapi

#define WINDOW window("kernelSize", kernelSize, stride, padding, dilation)

OP(aclnnMaxPool2dWithMask, check_undilated(dilation); check_pooled(self, out, WINDOW, ceilMode); same_dtype(out, self);
   check_mask(indices, out, WINDOW), max_pool(out, indices, self, WINDOW))
OP(aclnnMaxPool2dWithMaskBackward, check_undilated(dilation); check_pooled(self, gradOutput, WINDOW, ceilMode);
   check_mask(indices, gradOutput, WINDOW); network(gradInput);
   same_shape(gradInput, self), max_pool_backward(gradInput, gradOutput, indices, WINDOW))
OP(aclnnAvgPool2d, check_pooled(self, out, window("kernelSize", kernelSize, strides, paddings, {nullptr}), ceilMode);
   check_only_the_batch_is_empty(self), rounded(out, [&](at::Tensor &target) {
       at::avg_pool2d_out(target, widened(self), kernelSize, strides, paddings, ceilMode, countIncludePad,
                          divisor(divisorOverride));
   }))
OP(aclnnAvgPool2dBackward,
   check_pooled(self, gradOutput, window("kernelSize", kernelSize, stride, padding, {nullptr}), ceilMode);
   same_shape(gradInput, self), if (self.numel() != 0) rounded(gradInput, [&](at::Tensor &target) {
       at::avg_pool2d_backward_out(target, widened(gradOutput), widened(self), kernelSize, stride, padding, ceilMode,
                                   countIncludePad, divisor(divisorOverride));
   }))
OP(aclnnAdaptiveAvgPool2d, check_gives_something(outputSize);
   check_adaptive(self, outputSize, out,
                  {3, 4}),  // the mean of nothing is not written, as CANN starts no kernel for it
   if (self.numel() != 0)
       rounded(out, [&](at::Tensor &target) { at::adaptive_avg_pool2d_out(target, widened(self), outputSize); }))
OP(aclnnAdaptiveAvgPool2dBackward, check_adaptive_backward(gradOutput, self, out, {3, 4}),
   if (self.numel() != 0 && gradOutput.numel() != 0)
       give(out, at::_adaptive_avg_pool2d_backward(widened(gradOutput), widened(self))))
