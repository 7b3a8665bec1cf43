// Padding: with a constant, by reflection, by replication.
#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

#define PAD(NAME, SIDES, MODE) \
    OP(NAME, check_pad(out, self, padding, SIDES, Mode::MODE), pad(out, self, padding, SIDES, Mode::MODE))
#define PAD_BACKWARD(NAME, FUNCTION, SIDES, MODE)                                     \
    OP(NAME, check_pad_back(gradInput, gradOutput, self, padding, SIDES, Mode::MODE); \
       check_reaches_back(gradOutput, padding, SIDES),                                \
       rounded(gradInput, [&](at::Tensor &to) { FUNCTION(to, widened(gradOutput), widened(self), padding); }))

namespace vnpu::opapi {
namespace {

enum class Mode { Constant, Reflect, Replicate };

// self's shape with `padding` (pairs, the last dimension's first) around it.
at::DimVector padded(const at::Tensor &self, const Ints &padding, Mode mode) {
    at::DimVector sizes(self.sizes().begin(), self.sizes().end());
    for (size_t i = 0; 2 * i + 1 < padding.size(); ++i) {
        const size_t at = sizes.size() - 1 - i;
        const int64_t before = padding[2 * i], after = padding[2 * i + 1], size = sizes[at];
        if (mode == Mode::Reflect && (before >= size || after >= size))
            fail(FaultKind::InvalidArgument,
                 "parameter padding holds [{}, {}], allowed is less than {}, the size of dim {}", before, after, size,
                 at);
        sizes[at] += before + after;
        if (sizes[at] < 0 || (mode != Mode::Constant && sizes[at] == 0))
            fail(FaultKind::InvalidArgument,
                 "parameter padding holds [{}, {}], which leaves nothing of dim {} of size {}", before, after, at,
                 size);
    }
    return sizes;
}

void check_pad(const Operand &out, const Operand &self, const Ints &padding, int64_t sides, Mode mode) {
    dtype(self, kAll);
    same_dtype(out, self);
    rank(self, {sides + 1, sides + 2});
    if (static_cast<int64_t>(padding.size()) != 2 * sides)
        fail(FaultKind::InvalidArgument, "parameter padding has {} values, expected {}", padding.size(), 2 * sides);
    for (int64_t i = self.dim() - sides - 1; i < self.dim(); ++i)
        if (self.size(i) == 0)
            fail(FaultKind::InvalidArgument, "parameter self is {}: only its batch may be empty", describe(self));
    shape(out, padded(self, padding, mode));
}

// How far the kernel of a plane's gradient reaches in bfloat16 (ops-math: aclnn_pad2d_backward.cpp).
void check_reaches_back(const Operand &grad, const Ints &padding, int64_t sides) {
    if (sides != 2 || padding.size() != 4 || grad.scalar_type() != at::kBFloat16) return;
    const bool rows = padding[2] != 0 || padding[3] != 0;
    for (const int64_t side : padding)
        on_chip(side >= 0 && (side <= 7 || !rows),
                "bf16 only supports h dim no pad or padding values less than 7 or equal 7: parameter padding has the "
                "value {}",
                side);
}

void check_pad_back(const Operand &grad_in, const Operand &grad_out, const Operand &self, const Ints &padding,
                    int64_t sides, Mode mode) {
    dtype(self, kFloats | kComplex);
    same_dtype(grad_in, self);
    same_shape(grad_in, self);
    check_pad(grad_out, self, padding, sides, mode);
}

void pad_into(at::Tensor &out, const at::Tensor &self, at::IntArrayRef padding, int64_t sides, Mode mode) {
    const bool reflect = mode == Mode::Reflect;
    switch (sides) {
        case 1:
            reflect ? at::reflection_pad1d_out(out, self, padding) : at::replication_pad1d_out(out, self, padding);
            break;
        case 2:
            reflect ? at::reflection_pad2d_out(out, self, padding) : at::replication_pad2d_out(out, self, padding);
            break;
        default:
            reflect ? at::reflection_pad3d_out(out, self, padding) : at::replication_pad3d_out(out, self, padding);
    }
}

// ATen pads floating-point values only; integers pass through float64 and int64 through bits of it.
void pad(at::Tensor &out, const at::Tensor &self, at::IntArrayRef padding, int64_t sides, Mode mode) {
    if (self.is_floating_point() || self.is_complex()) return pad_into(out, self, padding, sides, mode);
    if (self.scalar_type() == at::kLong) {
        at::Tensor bits = out.view(at::kDouble);  // ATen would restride it after an operand in channels-last order
        return pad_into(bits, self.contiguous().view(at::kDouble), padding, sides, mode);
    }
    at::Tensor exact = at::empty(out.sizes(), at::kDouble);
    pad_into(exact, self.to(at::kDouble), padding, sides, mode);
    out.copy_(exact);
}

void check_surround(const Operand &out, const Operand &self, const Ints &padding, const ScalarArgument &value) {
    require(value);
    dtype(self, kAll | DTypes{at::kUInt16, at::kUInt32, at::kUInt64});
    same_dtype(out, self);
    if (padding.size() % 2 != 0 || padding.size() / 2 > static_cast<size_t>(self.dim()))
        fail(FaultKind::InvalidArgument, "parameter pad has {} values, expected pairs for at most {} dimensions",
             padding.size(), self.dim());
    shape(out, padded(self, padding, Mode::Constant));
}

// Fills the whole and copies the inside: no temporary. Negative padding crops.
void surround(at::Tensor &out, at::Tensor inside, const Ints &padding, const at::Scalar &value) {
    out.fill_(value);
    at::Tensor place = out;
    for (size_t i = 0; 2 * i < padding.size(); ++i) {
        const int64_t dim = out.dim() - 1 - static_cast<int64_t>(i), before = padding[2 * i],
                      after = padding[2 * i + 1];
        const int64_t crop_before = std::max<int64_t>(-before, 0), crop_after = std::max<int64_t>(-after, 0);
        const int64_t kept = inside.size(dim) - crop_before - crop_after;
        if (kept <= 0) return;
        inside = inside.narrow(dim, crop_before, kept);
        place = place.narrow(dim, std::max<int64_t>(before, 0), kept);
    }
    place.copy_(inside);
}

}  // namespace
}  // namespace vnpu::opapi

// The parameter pad, as CANN calls it, hides the function of that name: hence the others.
OP(aclnnConstantPadNd, check_surround(out, self, pad, value), surround(out, self, pad, value.as(out.scalar_type())))
PAD(aclnnReflectionPad1d, 1, Reflect)
PAD(aclnnReflectionPad2d, 2, Reflect)
PAD(aclnnReflectionPad3d, 3, Reflect)
PAD(aclnnReplicationPad1d, 1, Replicate)
PAD(aclnnReplicationPad2d, 2, Replicate)
PAD(aclnnReplicationPad3d, 3, Replicate)
PAD_BACKWARD(aclnnReflectionPad1dBackward, at::reflection_pad1d_backward_out, 1, Reflect)
PAD_BACKWARD(aclnnReflectionPad2dBackward, at::reflection_pad2d_backward_out, 2, Reflect)
PAD_BACKWARD(aclnnReflectionPad3dBackward, at::reflection_pad3d_backward_out, 3, Reflect)
PAD_BACKWARD(aclnnReplicationPad1dBackward, at::replication_pad1d_backward_out, 1, Replicate)
PAD_BACKWARD(aclnnReplicationPad2dBackward, at::replication_pad2d_backward_out, 2, Replicate)
PAD_BACKWARD(aclnnReplicationPad3dBackward, at::replication_pad3d_backward_out, 3, Replicate)
