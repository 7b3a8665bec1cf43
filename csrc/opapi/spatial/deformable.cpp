// A convolution whose window's points move, each by an offset of its own and with a weight of its own.
#include <fmt/ranges.h>

#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

struct Deformed {
    const Ints &kernel, &stride, &padding, &dilation;  // the last three over four dimensions, or sides
    int64_t groups, parts;                             // deformableGroups
};

// ops-nn: aclnn_deformable_conv2d.cpp
void check_deformable(const Operand &x, const Operand &weight, const Operand &offset, const Operand &bias,
                      const Deformed &d, bool modulated, const Operand &out, const Operand &points) {
    for (const Operand *each : {&x, &weight, &offset, &out}) {
        require(*each);
        rank(*each, {4});
    }
    const auto listed = [](const char *name, const Ints &list, size_t length, int64_t least) {
        const bool right = list.size() == length && std::ranges::all_of(list, [&](int64_t v) { return v >= least; });
        if (!right)
            fail(FaultKind::InvalidArgument, "parameter {} is [{}], expected {} values of at least {}", name,
                 fmt::join(list, ", "), length, least);
    };
    listed("kernelSize", d.kernel, 2, 1);
    listed("stride", d.stride, 4, 1);
    listed("padding", d.padding, 4, std::numeric_limits<int64_t>::min());
    listed("dilation", d.dilation, 4, 1);
    if (d.stride[0] != 1 || d.stride[1] != 1 || d.dilation[0] != 1 || d.dilation[1] != 1)
        fail(FaultKind::InvalidArgument, "stride begins with {}, {} and dilation with {}, {}, allowed is 1",
             d.stride[0], d.stride[1], d.dilation[0], d.dilation[1]);
    if (!modulated) fail(FaultKind::InvalidArgument, "parameter modulated is false, allowed is true");
    const int64_t n = x.size(0), channels = x.size(1), kh = d.kernel[0], kw = d.kernel[1];
    if (d.groups < 1 || d.parts < 1 || channels % d.groups != 0 || weight.size(0) % d.groups != 0 ||
        channels % d.parts != 0)
        fail(FaultKind::InvalidArgument, "groups is {} and deformableGroups {}, expected divisors of the {} channels",
             d.groups, d.parts, channels);
    if (kh * kw > 2048 || kh * kw * channels / d.groups > 65535)
        fail(FaultKind::InvalidArgument, "parameter kernelSize is [{}, {}], allowed are 2048 points and 65535 weights",
             kh, kw);
    const int64_t high = (x.size(2) + d.padding[0] + d.padding[1] - (kh - 1) * d.dilation[2] - 1) / d.stride[2] + 1;
    const int64_t wide = (x.size(3) + d.padding[2] + d.padding[3] - (kw - 1) * d.dilation[3] - 1) / d.stride[3] + 1;
    shape(weight, {weight.size(0), channels / d.groups, kh, kw});
    shape(offset, {n, 3 * d.parts * kh * kw, high, wide});
    if (bias.defined()) shape(bias, {weight.size(0)});
    shape(out, {n, weight.size(0), high, wide});
    if (points.defined()) shape(points, {n, channels, high * kh, wide * kw});
}

// The input between four pixels of each moved point, times the point's weight: [n, channels, high * kh, wide * kw].
at::Tensor moved_points(const at::Tensor &x, const at::Tensor &offset, const Deformed &d) {
    const int64_t n = x.size(0), channels = x.size(1), rows = x.size(2), columns = x.size(3);
    const int64_t kh = d.kernel[0], kw = d.kernel[1], high = offset.size(2), wide = offset.size(3), parts = d.parts;
    // [n, 3, parts, high, kh, wide, kw]: across, down, weight
    const at::Tensor moves = offset.reshape({n, 3, parts, kh, kw, high, wide}).permute({0, 1, 2, 5, 3, 6, 4});
    const auto along = [](int64_t count, int64_t step, int64_t ahead) {
        return at::arange(count).to(at::kFloat) * step - ahead;
    };
    const at::Tensor down = along(high, d.stride[2], d.padding[0]).view({-1, 1, 1, 1}) +
                            along(kh, d.dilation[2], 0).view({1, -1, 1, 1}) + moves.select(1, 1);
    const at::Tensor across = along(wide, d.stride[3], d.padding[2]).view({1, 1, -1, 1}) +
                              along(kw, d.dilation[3], 0).view({1, 1, 1, -1}) + moves.select(1, 0);
    const at::Tensor top = down.floor(), left = across.floor();
    const at::Tensor pixels = x.reshape({n, parts, channels / parts, rows * columns});
    at::Tensor sum = at::zeros({n, parts, channels / parts, high * kh * wide * kw});
    for (const int64_t below : {0, 1})
        for (const int64_t right : {0, 1}) {
            const at::Tensor row = top + below, column = left + right;
            const at::Tensor inside = row.ge(0) & row.lt(rows) & column.ge(0) & column.lt(columns);
            const at::Tensor share = (1 - (down - row).abs()) * (1 - (across - column).abs()) * inside;
            const at::Tensor place = row.clamp(0, rows - 1) * columns + column.clamp(0, columns - 1);
            const auto flat = [&](const at::Tensor &of) {
                return of.reshape({n, parts, 1, -1}).expand({n, parts, channels / parts, -1});
            };
            sum += pixels.gather(3, flat(place.to(at::kLong))) * flat(share);
        }
    sum = sum * moves.select(1, 2).reshape({n, parts, 1, -1});
    return sum.view({n, channels, high * kh, wide * kw});
}

// In float32, rounded at the end.
void deformable(const at::Tensor &x, const at::Tensor &weight, const at::Tensor &offset, const at::Tensor &bias,
                const Deformed &d, at::Tensor &out, at::Tensor &points) {
    const at::Tensor moved = moved_points(widened(x), widened(offset), d);
    give(points, moved);
    out.copy_(at::conv2d(moved, widened(weight), bias.defined() ? widened(bias) : bias, at::IntArrayRef(d.kernel),
                         at::IntArrayRef{0, 0}, at::IntArrayRef{1, 1}, d.groups));
}

}  // namespace
}  // namespace vnpu::opapi

#define DEFORMED {kernelSize, stride, padding, dilation, groups, deformableGroups}

OP(aclnnDeformableConv2d,
   check_deformable(x, weight, offset, biasOptional, DEFORMED, modulated, out, deformOutOptional),
   deformable(x, weight, offset, biasOptional, DEFORMED, out, deformOutOptional))
