// Pooling that says where each maximum is, its inverse, and pooling in three dimensions. An index counts the elements
// of a plane (or volume) in row order; CANN keeps it in int32 where ATen has int64.
#include <ATen/native/Pool.h>
#include <c10/util/accumulate.h>

#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"
#include "opapi/spatial/pool_limits.h"

namespace vnpu::opapi {
namespace {

constexpr size_t kPlane = 2, kVolume = 3;

// One number for every dimension, or one for each; a stride that is not given equals the kernel.
std::vector<int64_t> each(const char *name, const Ints &list, size_t spatial, int64_t least) {
    if (list.size() != 1 && list.size() != spatial)
        fail(FaultKind::InvalidArgument, "parameter {} has {} values, expected 1 or {}", name, list.size(), spatial);
    for (const int64_t value : list)
        if (value < least)
            fail(FaultKind::InvalidArgument, "parameter {} has the value {}, allowed is >= {}", name, value, least);
    return list.size() == spatial ? std::vector<int64_t>(list) : std::vector<int64_t>(spatial, list[0]);
}

struct Window {
    std::vector<int64_t> kernel, stride, padding, dilation;
};

Window window(size_t spatial, const Ints &kernel, const Ints &stride, const Ints &padding, const Ints &dilation) {
    Window made{each("kernelSize", kernel, spatial, 1), {}, each("padding", padding, spatial, 0), {}};
    made.stride = stride.empty() ? made.kernel : each("stride", stride, spatial, 1);
    made.dilation = dilation.empty() ? std::vector<int64_t>(spatial, 1) : each("dilation", dilation, spatial, 1);
    for (size_t i = 0; i < spatial; ++i)
        if (made.padding[i] * 2 > made.kernel[i])
            fail(FaultKind::InvalidArgument,
                 "parameter padding has the value {}, allowed is at most half of kernelSize, {}", made.padding[i],
                 made.kernel[i]);
    return made;
}

// [batch,] channels, spatial ...
void check_image(const Operand &self, size_t spatial) {
    rank(self, {static_cast<int64_t>(spatial) + 1, static_cast<int64_t>(spatial) + 2});
    network(self);
}

void check_pooled(const Operand &self, const Operand &out, const Window &w, bool ceil) {
    const auto spatial = static_cast<int64_t>(w.kernel.size());
    check_image(self, w.kernel.size());
    network(out);
    at::DimVector sizes(self.sizes().begin(), self.sizes().end() - spatial);
    for (int64_t i = 0; i < spatial; ++i) {
        const auto k = static_cast<size_t>(i);
        sizes.push_back(at::native::pooling_output_shape<int64_t>(self.size(i - spatial), w.kernel[k], w.padding[k],
                                                                  w.stride[k], w.dilation[k], ceil));
        if (sizes.back() < 1)
            fail(FaultKind::InvalidArgument, "parameter kernelSize has the value {}, larger than {} with its padding",
                 w.kernel[k], describe(self));
    }
    shape(out, sizes);
}

void check_adaptive(const Operand &self, const Ints &output_size, const Operand &out, size_t spatial) {
    check_image(self, spatial);
    network(out);
    if (output_size.size() != spatial)
        fail(FaultKind::InvalidArgument, "parameter outputSize has {} values, expected {}", output_size.size(),
             spatial);
    at::DimVector sizes(self.sizes().begin(), self.sizes().end() - static_cast<std::ptrdiff_t>(spatial));
    sizes.insert(sizes.end(), output_size.begin(), output_size.end());
    shape(out, sizes);
}

void check_adaptive_backward(const Operand &grad, const Operand &self, const Operand &grad_input, size_t spatial) {
    check_image(self, spatial);
    rank(grad, {self.dim()});
    network(grad, grad_input);
    same_shape(grad_input, self);
}

// (ops-nn: aclnn_avgpool3d.cpp, which does not count the padding)
void check_within(const Operand &self, const Window &w) {
    for (size_t i = 0; i < kVolume; ++i)
        on_chip(w.kernel[i] <= self.size(static_cast<int64_t>(i) - 3),
                "parameter kernelSize has the value {}, allowed is at most the size of {} without padding", w.kernel[i],
                describe(self));
}

// (ops-nn: aclnn_adaptive_avg_pool3d.cpp)
void check_not_empty(const Operand &self) {
    on_chip(self.numel() != 0, "parameter {} is {}, allowed are tensors with elements", self.parameter(),
            describe(self));
}

// Only the first dimension may be empty (ops-nn: aclnn_adaptive_max_pool2d.cpp, aclnn_adaptive_max_pool3d.cpp).
void check_has_maxima(const Operand &self) {
    for (int64_t i = 1; i < self.dim(); ++i)
        if (self.size(i) == 0)
            fail(
                FaultKind::InvalidArgument,
                "expected input to have non-empty spatial dimensions: parameter {} is {} with dimension {} being empty",
                self.parameter(), describe(self), i);
}

void check_indexed(const Operand &indices, const Operand &values) {
    dtype(indices, {at::kInt, at::kLong});
    same_shape(indices, values);
}

void give_both(at::Tensor &out, at::Tensor &indices, const std::tuple<at::Tensor, at::Tensor> &results) {
    out.copy_(std::get<0>(results));
    indices.copy_(std::get<1>(results));
}

// ATen's kernels read the indices of a contiguous plane.
at::Tensor long_indices(const at::Tensor &indices) { return indices.to(at::kLong).contiguous(); }

std::optional<int64_t> divisor(int64_t override) { return override == 0 ? std::nullopt : std::optional(override); }

// Values go where `indices` say in a plane or volume of zeros.
void check_unpool(const Operand &self, const Operand &indices, const Ints &output_size, const Operand &out,
                  size_t spatial) {
    check_image(self, spatial);
    check_indexed(indices, self);
    same_dtype(out, self);
    check_adaptive(self, output_size, out, spatial);
}

void unpool(at::Tensor &out, const at::Tensor &self, const at::Tensor &indices, size_t spatial) {
    const auto tail = static_cast<int64_t>(spatial);
    const auto flat = [&](const at::Tensor &t) {
        return t.contiguous().flatten(t.dim() - tail);  // a copy where `out` has gaps
    };
    at::Tensor planes = at::zeros(out.sizes(), out.options()).flatten(out.dim() - tail);
    planes.scatter_(-1, flat(indices).to(at::kLong), flat(self));
    out.copy_(planes.view(out.sizes()));
}

// The gradient of what is more than a mean over all (ops-nn: aclnn_adaptive_avg_pool3d_backward.cpp): no float64 on
// 910B, none at all on 910A.
void check_spread(const Operand &grad) {
    if (grad.size(-1) * grad.size(-2) * grad.size(-3) == 1) return;
    const auto chip = static_cast<Generation>(generation());
    on_chip(chip != Generation::k910A,
            "adaptive_avg_pool3d_backward only support D=1 && H=1 && W=1 on 910A: parameter {} is {}", grad.parameter(),
            describe(grad));
    if (chip == Generation::k910B) network(grad);
}

}  // namespace
}  // namespace vnpu::opapi

#define WINDOW(SPATIAL) window(SPATIAL, kernelSize, stride, padding, dilation)
#define UNDILATED window(kVolume, kernelSize, stride, padding, {nullptr})

// MAX_POOL(name, dimensions, at function)
#define MAX_POOL(NAME, SPATIAL, FUNCTION)                                                   \
    OP(NAME, check_undilated(dilation); check_pooled(self, out, WINDOW(SPATIAL), ceilMode); \
       check_indexed(indices, out), const Window w = WINDOW(SPATIAL);                       \
       give_both(out, indices, FUNCTION(self.contiguous(), w.kernel, w.stride, w.padding, w.dilation, ceilMode)))
#define MAX_POOL_BACKWARD(NAME, SPATIAL, LIMITS, FUNCTION)                                                          \
    OP(NAME, LIMITS; check_pooled(self, gradOutput, WINDOW(SPATIAL), ceilMode); check_indexed(indices, gradOutput); \
       network(gradInput); same_shape(gradInput, self), const Window w = WINDOW(SPATIAL);                           \
       give(gradInput, FUNCTION(widened(gradOutput).contiguous(), widened(self).contiguous(), w.kernel, w.stride,   \
                                w.padding, w.dilation, ceilMode, long_indices(indices))))
#define ADAPTIVE_MAX_POOL(NAME, SPATIAL, FUNCTION)                                                    \
    OP(NAME, check_gives_something(outputSize); check_adaptive(self, outputSize, outputOut, SPATIAL); \
       check_has_maxima(self); check_indexed(indicesOut, outputOut),                                  \
                               give_both(outputOut, indicesOut, FUNCTION(self.contiguous(), outputSize)))
#define ADAPTIVE_MAX_POOL_BACKWARD(NAME, SPATIAL, FUNCTION)                 \
    OP(NAME, check_adaptive_backward(gradOutput, self, gradInput, SPATIAL); \
       check_indexed(indices, gradOutput),                                  \
       if (self.numel() != 0 && gradOutput.numel() != 0) give(              \
           gradInput, FUNCTION(widened(gradOutput).contiguous(), widened(self).contiguous(), long_indices(indices))))

MAX_POOL(aclnnMaxPool2dWithIndices, kPlane, at::max_pool2d_with_indices)
MAX_POOL_BACKWARD(aclnnMaxPool2dWithIndicesBackward, kPlane, check_undilated(dilation),
                  at::max_pool2d_with_indices_backward)
MAX_POOL(aclnnMaxPool3dWithArgmax, kVolume, at::max_pool3d_with_indices)
MAX_POOL_BACKWARD(aclnnMaxPool3dWithArgmaxBackward, kVolume, (void)0, at::max_pool3d_with_indices_backward)
ADAPTIVE_MAX_POOL(aclnnAdaptiveMaxPool2d, kPlane, at::adaptive_max_pool2d)
ADAPTIVE_MAX_POOL_BACKWARD(aclnnAdaptiveMaxPool2dBackward, kPlane, at::adaptive_max_pool2d_backward)
ADAPTIVE_MAX_POOL(aclnnAdaptiveMaxPool3d, kVolume, at::adaptive_max_pool3d)
ADAPTIVE_MAX_POOL_BACKWARD(aclnnAdaptiveMaxPool3dBackward, kVolume, at::adaptive_max_pool3d_backward)
OP(aclnnMaxUnpool2d, check_unpool(self, indices, outputSize, out, kPlane), unpool(out, self, indices, kPlane))
OP(aclnnMaxUnpool3d, check_unpool(self, indices, outputSize, outRef, kVolume), unpool(outRef, self, indices, kVolume))

OP(aclnnAvgPool3d, check_pooled(self, out, UNDILATED, ceilMode);
   check_within(self, UNDILATED), const Window w = UNDILATED;
   give(out, at::avg_pool3d(widened(self), w.kernel, w.stride, w.padding, ceilMode, countIncludePad,
                            divisor(divisorOverride))))
OP(aclnnAvgPool3dBackward, check_pooled(self, gradOutput, UNDILATED, ceilMode); network(output);
   same_shape(output, self), const Window w = UNDILATED;
   give(output, at::avg_pool3d_backward(widened(gradOutput), widened(self), w.kernel, w.stride, w.padding, ceilMode,
                                        countIncludePad, divisor(divisorOverride))))
OP(aclnnAdaptiveAvgPool3d, check_gives_something(outputSize); check_not_empty(self);
   check_adaptive(self, outputSize, out, kVolume),
   give(out, at::_adaptive_avg_pool3d(widened(self), at::IntArrayRef(outputSize))))
OP(aclnnAdaptiveAvgPool3dBackward, check_not_empty(self); rank(self, {4, 5}); rank(gradOutput, {self.dim()});
   floating(self); same_dtype(gradOutput, self); same_dtype(out, self); check_spread(gradOutput);
   same_shape(out, self), give(out, at::_adaptive_avg_pool3d_backward(widened(gradOutput), widened(self))))
