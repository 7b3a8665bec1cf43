// Maxima back in their places, and maxima of windows at places that were drawn, as MindSpore's kernels have them (its
// max_unpool2d.cc, max_unpool3d.cc, fractional_max_pool3d_with_fixed_ksize.cc and their gradients).
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

bool channels_last(LegacyArguments &call) {
    const auto format = attribute<std::string>(call.attributes, "data_format", "NCHW");
    if (format != "NCHW" && format != "NHWC" && format != "NCDHW" && format != "NDHWC")
        fail(FaultKind::InvalidArgument, "attribute data_format is \"{}\"", format);
    return format.back() == 'C';
}

// [N, C, places], whatever the format.
at::Tensor planes(const at::Tensor &x, bool last) { return (last ? x.movedim(-1, 1) : x).flatten(2); }

// The small tensors have one shape, the large one their N and C; the indices are places in it.
void check_unpool(LegacyArguments &call, const at::Tensor &small, const at::Tensor &where, const at::Tensor &large,
                  int64_t dims) {
    const bool last = channels_last(call);
    allowed(small, kReals, "x");
    allowed(where, {at::kInt, at::kLong}, "argmax");
    allowed(large, small.scalar_type(), "the larger tensor");
    sizes(where, small.sizes(), "argmax");
    if (small.dim() != dims || large.dim() != dims || small.size(0) != large.size(0) ||
        small.size(last ? -1 : 1) != large.size(last ? -1 : 1))
        fail(FaultKind::InvalidArgument, "x is {}, the larger tensor {}, expected {} dimensions, N and C alike",
             describe(small), describe(large), dims);
}

at::Tensor places(const at::Tensor &where, int64_t count) {
    const at::Tensor made = where.to(at::kLong);
    if (made.numel() > 0 && (made.min().item<int64_t>() < 0 || made.max().item<int64_t>() >= count))
        fail(FaultKind::OutOfBounds, "argmax has a place that is not one of {}", count);
    return made;
}

// Of two maxima at one place the last one stays.
void unpool(LegacyArguments &call) {
    const bool last = channels_last(call);
    const at::Tensor &out = call.out[0];
    const at::Tensor x = planes(call.in[0], last), shaped = last ? out.movedim(-1, 1) : out;
    const at::Tensor to = at::zeros(shaped.sizes(), out.options());
    const at::Tensor flat = to.flatten(2);
    flat.scatter_(2, places(planes(call.in[1], last), flat.size(2)), x);
    out.copy_(last ? to.movedim(1, -1) : to);
}

// x, the gradient, argmax.
void unpool_grad(LegacyArguments &call) {
    const bool last = channels_last(call);
    const at::Tensor slope = planes(call.in[1], last);
    const at::Tensor made = slope.gather(2, places(planes(call.in[2], last), slope.size(2)));
    const at::Tensor out = last ? call.out[0].movedim(-1, 1) : call.out[0];
    out.copy_(made.reshape(out.sizes()));
}

using Ints = std::vector<int64_t>;

// [N, C, ...], also without N.
at::Tensor channels_first(LegacyArguments &call, const at::Tensor &x) {
    return channels_last(call) ? x.movedim(-1, x.dim() == 5 ? 1 : 0) : x;
}

Ints three(LegacyArguments &call, const char *name) {
    Ints given = attribute<Ints>(call.attributes, name, {});
    if (given.size() != 3)
        fail(FaultKind::InvalidArgument, "attribute {} has {} values, expected 3", name, given.size());
    return given;
}

// x, where the windows of each plane begin: a number from 0 to 1 for each direction.
void check_drawn(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    allowed(x, {at::kHalf, at::kFloat, at::kDouble, at::kInt, at::kLong}, "x");
    allowed(call.in[1], {at::kHalf, at::kFloat, at::kDouble}, "random_samples");
    allowed(call.out[0], x.scalar_type(), "y");
    allowed(call.out[1], {at::kInt, at::kLong}, "argmax");
    if (x.dim() != 4 && x.dim() != 5)
        fail(FaultKind::InvalidArgument, "x is {}, expected 4 or 5 dimensions", describe(x));
    const at::Tensor laid = channels_first(call, x);
    const bool batch = x.dim() == 5;
    const Ints size = three(call, "ksize"), count = three(call, "output_shape");
    Ints expected = laid.sizes().slice(0, batch ? 2 : 1).vec();
    sizes(call.in[1], {batch ? x.size(0) : 1, laid.size(batch ? 1 : 0), 3}, "random_samples");
    for (size_t i = 0; i < 3; ++i) {
        const int64_t side = laid.size(static_cast<int64_t>(i) - 3);
        if (size[i] < 1 || count[i] < 1 || count[i] + size[i] - 1 >= side)
            fail(FaultKind::InvalidArgument, "{} windows of {} do not fit into {}", count[i], size[i], side);
        expected.push_back(count[i]);
    }
    for (const at::Tensor &out : call.out) sizes(channels_first(call, out), expected, "an output");
}

void drawn(LegacyArguments &call) {
    const at::Tensor x = channels_first(call, call.in[0]).to(at::kDouble).contiguous();
    // Where the windows begin is computed in the dtype of the numbers.
    const at::ScalarType kind = call.in[1].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const auto [y, where] =
        at::fractional_max_pool3d(x.to(kind), three(call, "ksize"), three(call, "output_shape"), call.in[1].to(kind));
    const int64_t back = x.dim() == 5 ? 1 : 0;
    const auto laid = [&](const at::Tensor &made) { return channels_last(call) ? made.movedim(back, -1) : made; };
    call.out[0].copy_(laid(y));
    call.out[1].copy_(laid(where));
}

// x, the gradient, argmax.
void check_drawn_grad(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    allowed(x, {at::kHalf, at::kFloat, at::kDouble, at::kInt, at::kLong}, "x");
    allowed(call.in[1], x.scalar_type(), "the gradient");
    allowed(call.in[2], {at::kInt, at::kLong}, "argmax");
    sizes(call.in[2], call.in[1].sizes(), "argmax");
    if ((x.dim() != 4 && x.dim() != 5) || call.in[1].dim() != x.dim())
        fail(FaultKind::InvalidArgument, "x is {}, the gradient {}", describe(x), describe(call.in[1]));
    const at::Tensor laid = channels_first(call, x), slope = channels_first(call, call.in[1]);
    Ints expected(static_cast<size_t>(x.dim()), -1);
    for (int64_t i = 0; i < x.dim() - 3; ++i) expected[static_cast<size_t>(i)] = laid.size(i);
    sizes(slope, expected, "the gradient");
    alike(call.out[0], x, "the output");
}

void drawn_grad(LegacyArguments &call) {
    const at::Tensor slope = widened(channels_first(call, call.in[1]).contiguous()).flatten(-3);
    const at::Tensor out = channels_first(call, call.out[0]);
    const int64_t count = c10::multiply_integers(out.sizes().slice(static_cast<size_t>(out.dim()) - 3));
    const at::Tensor where = places(channels_first(call, call.in[2]).contiguous().flatten(-3), count);
    Ints flat(slope.sizes().begin(), slope.sizes().end() - 1);
    flat.push_back(count);
    out.copy_(at::zeros(flat, slope.options()).scatter_add(-1, where, slope).reshape(out.sizes()));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(CustMaxUnpool2D, check_unpool(arguments, in[0], in[1], out[0], 4), unpool(arguments))
LEGACY(CustMaxUnpool3D, check_unpool(arguments, in[0], in[1], out[0], 5), unpool(arguments))
LEGACY(CustMaxUnpool2DGrad, check_unpool(arguments, in[0], in[2], in[1], 4);
       alike(out[0], in[0], "the output"), unpool_grad(arguments))
LEGACY(CustMaxUnpool3DGrad, check_unpool(arguments, in[0], in[2], in[1], 5);
       alike(out[0], in[0], "the output"), unpool_grad(arguments))
LEGACY(CustFractionalMaxPool3DWithFixedKsize, check_drawn(arguments), drawn(arguments))
LEGACY(CustFractionalMaxPool3DGradWithFixedKsize, check_drawn_grad(arguments), drawn_grad(arguments))
