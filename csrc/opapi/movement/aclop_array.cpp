// The legacy operators that torch_npu 2.13 still takes with current CANN: copies, slices, fills, a few functions that
// it has no aclnn call for.
#include <ATen/ExpandUtils.h>

#include <cmath>

#include "device/fault.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

void check_same_count(const at::Tensor &out, const at::Tensor &in) {
    if (out.numel() != in.numel())
        fail(FaultKind::InvalidArgument, "the output is {}, the input {}", describe(out), describe(in));
}

void check_shaped(const at::Tensor &out, at::IntArrayRef sizes) {
    int64_t elements = 1;
    for (const int64_t size : sizes) elements *= size;
    if (out.numel() != elements)
        fail(FaultKind::InvalidArgument, "the output is {}, which has not the {} elements of the result", describe(out),
             elements);
}

void check_compare(const at::Tensor &a, const at::Tensor &b, const at::Tensor &out) {
    if (!at::is_expandable_to(a.sizes(), out.sizes()) || !at::is_expandable_to(b.sizes(), out.sizes()))
        fail(FaultKind::InvalidArgument, "{} and {} do not broadcast to the output {}", describe(a), describe(b),
             describe(out));
}

void check_permute(const at::Tensor &in, const at::Tensor &order, const at::Tensor &out) {
    const std::vector<int64_t> axes = ints(order);
    if (static_cast<int64_t>(axes.size()) != in.dim())
        fail(FaultKind::InvalidArgument, "perm has {} axes, the input is {}", axes.size(), describe(in));
    std::vector<bool> seen(axes.size());
    for (const int64_t axis : axes) {
        if (axis < 0 || axis >= in.dim() || seen[static_cast<size_t>(axis)])
            fail(FaultKind::InvalidArgument, "perm is no permutation of {} axes", in.dim());
        seen[static_cast<size_t>(axis)] = true;
    }
    check_same_count(out, in);
}

// Slice: per dimension a start and a length, -1 for the rest.
at::Tensor sliced(at::Tensor in, const at::Tensor &offsets, const at::Tensor &lengths) {
    const std::vector<int64_t> starts = ints(offsets), sizes = ints(lengths);
    if (starts.size() != sizes.size() || static_cast<int64_t>(starts.size()) != in.dim())
        fail(FaultKind::InvalidArgument, "there are {} offsets and {} sizes for {}", starts.size(), sizes.size(),
             describe(in));
    for (size_t i = 0; i < starts.size(); ++i) {
        const auto dim = static_cast<int64_t>(i);
        const int64_t length = sizes[i] < 0 ? in.size(dim) - starts[i] : sizes[i];
        if (starts[i] < 0 || length < 0 || starts[i] + length > in.size(dim))
            fail(FaultKind::InvalidArgument, "[{}, +{}) lies outside dim {} of {}", starts[i], length, i, describe(in));
        in = in.narrow(dim, starts[i], length);
    }
    return in;
}

// TensorFlow's strided slice: bit i of a mask says that dimension i starts at its beginning, runs to its end, or
// keeps one index and vanishes.
at::Tensor strided(at::Tensor in, const LegacyTensors &inputs, const aclopAttr &attributes) {
    const auto mask = [&](const char *name) { return attribute<int64_t>(attributes, name, 0); };
    if (mask("ellipsis_mask") != 0 || mask("new_axis_mask") != 0)
        fail(FaultKind::Unsupported, "The virtual NPU does not have ellipsis_mask and new_axis_mask of StridedSlice.");
    std::vector<at::Tensor> all(inputs.begin(), inputs.end());
    if (all.size() < 3) fail(FaultKind::InvalidArgument, "StridedSlice has {} inputs, expected 4", all.size());
    const std::vector<int64_t> begin = ints(all[1]), end = ints(all[2]);
    const std::vector<int64_t> steps =
        all.size() > 3 && all[3].defined() ? ints(all[3]) : std::vector<int64_t>(begin.size(), 1);
    if (begin.size() != end.size() || begin.size() != steps.size() || static_cast<int64_t>(begin.size()) > in.dim())
        fail(FaultKind::InvalidArgument, "there are {} begins, {} ends, {} strides for {}", begin.size(), end.size(),
             steps.size(), describe(in));
    int64_t dim = 0;
    for (size_t i = 0; i < begin.size(); ++i) {
        const int64_t bit = int64_t{1} << i;
        if (steps[i] < 1) fail(FaultKind::InvalidArgument, "a stride is {}, allowed are 1 and more", steps[i]);
        if ((mask("shrink_axis_mask") & bit) != 0) {
            if (begin[i] < -in.size(dim) || begin[i] >= in.size(dim))
                fail(FaultKind::InvalidArgument, "index {} lies outside dim {} of {}", begin[i], dim, describe(in));
            in = in.select(dim, begin[i]);
            continue;
        }
        in = in.slice(dim, (mask("begin_mask") & bit) != 0 ? 0 : begin[i],
                      (mask("end_mask") & bit) != 0 ? in.size(dim) : end[i], steps[i]);
        ++dim;
    }
    return in;
}

// A norm in two steps, for orders that torch_npu trusts aclnn with from CANN 9.0 on. An infinite p is INT_MAX.
struct Order {
    enum class Kind { Power, Largest, Smallest } kind;
    double p;
};

Order order(const aclopAttr &attributes) {
    const auto p = attribute<float>(attributes, "p", 2);
    constexpr float kInfinite = 2147483647;  // a float32: 2^31
    if (std::isinf(p) || std::abs(p) >= kInfinite) return {p > 0 ? Order::Kind::Largest : Order::Kind::Smallest, p};
    return {Order::Kind::Power, p};
}

at::Tensor powers(const at::Tensor &in, const aclopAttr &attributes) {
    const auto axes = attribute<std::vector<int64_t>>(attributes, "axes", {});
    const auto keep = attribute<bool>(attributes, "keepdim", false);
    const auto [kind, p] = order(attributes);
    if (kind == Order::Kind::Largest) return in.abs().amax(axes, keep);
    if (kind == Order::Kind::Smallest) return in.abs().amin(axes, keep);
    return p == 0 ? in.ne(0).sum(axes, keep) : in.abs().pow(p).sum(axes, keep);
}

at::Tensor root(const at::Tensor &in, const aclopAttr &attributes) {
    const auto [kind, p] = order(attributes);
    return kind != Order::Kind::Power || p == 0 ? in : in.pow(1 / p);
}

// Both steps in one. No axes are all of them.
at::Tensor lp_norm(const at::Tensor &in, const aclopAttr &attributes) {
    const at::Tensor wide = in.to(at::kFloat);
    return root(powers(wide, attributes), attributes);
}

void check_one_hot(const at::Tensor &in, const at::Tensor &on, const at::Tensor &off, const at::Tensor &out) {
    if (on.numel() != 1 || off.numel() != 1)
        fail(FaultKind::InvalidArgument, "on_value and off_value have one element");
    if (out.dim() != in.dim() + 1)
        fail(FaultKind::InvalidArgument, "the output is {}, the classes {}", describe(out), describe(in));
}

// Size: how many elements the input has.
void check_count(const at::Tensor &out) {
    if (out.numel() != 1 || (out.scalar_type() != at::kInt && out.scalar_type() != at::kLong))
        fail(FaultKind::InvalidArgument, "the output is {}, expected one int32 or int64", describe(out));
}

// base^start to base^end, as many as the output holds, both ends among them.
at::Tensor powers_of(const at::Tensor &start, const at::Tensor &end, const at::Tensor &out,
                     const aclopAttr &attributes) {
    const auto base = static_cast<double>(attribute<int64_t>(attributes, "base", 10));
    const auto number = [](const at::Tensor &tensor) { return tensor.reshape({}).to(at::kDouble).item<double>(); };
    return at::logspace(number(start), number(end), out.numel(), base, at::kDouble);
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(Identity, check_same_count(out[0], in[0]), put(out[0], in[0]))
LEGACY(TransData, check_same_count(out[0], in[0]), put(out[0], in[0]))
LEGACY(Cast, check_same_count(out[0], in[0]), put(out[0], in[0]))
LEGACY(Fill, check_shaped(out[0], ints(in[0])), out[0].fill_(in[1].reshape({})))
LEGACY(CustLogSpace, allowed(in[0], kFloats, "the start"); alike(in[1], in[0], "the end"); holds(in[0], 1, "the start");
       holds(out[0], attribute<int64_t>(attributes, "steps", 10), "the output"),
       put(out[0], powers_of(in[0], in[1], out[0], attributes)))
LEGACY(Size, check_count(out[0]), out[0].fill_(in[0].numel()))
LEGACY(Shape, allowed(out[0], {at::kInt, at::kLong}, "the output");
       holds(out[0], in[0].dim(), "the output"), put(out[0], at::tensor(in[0].sizes(), at::kLong)))
LEGACY(Complex, allowed(in[0], {at::kFloat, at::kDouble}, "the real part");
       allowed(in[1], in[0].scalar_type(), "the imaginary part"); check_same_count(in[1], in[0]);
       allowed(out[0], in[0].scalar_type() == at::kFloat ? at::kComplexFloat : at::kComplexDouble, "the output");
       check_same_count(out[0], in[0]), put(out[0], at::complex(in[0], in[1].reshape(in[0].sizes()))))
LEGACY(Angle, allowed(in[0], kComplex, "x"); check_same_count(out[0], in[0]), put(out[0], at::angle(in[0])))
LEGACY(CustReal, allowed(in[0], kComplex, "x"); check_same_count(out[0], in[0]), put(out[0], at::real(in[0])))
LEGACY(Imag, allowed(in[0], kComplex, "x"); check_same_count(out[0], in[0]), put(out[0], at::imag(in[0])))
LEGACY(CustImag, allowed(in[0], kComplex, "x"); check_same_count(out[0], in[0]), put(out[0], at::imag(in[0])))
LEGACY(Digamma, check_same_count(out[0], in[0]), put(out[0], at::digamma(in[0].to(at::kFloat))))
LEGACY(IsNan, check_same_count(out[0], in[0]), put(out[0], at::isnan(in[0])))
LEGACY(Conj, check_same_count(out[0], in[0]), put(out[0], at::conj(in[0])))
LEGACY(ZerosLike, check_same_count(out[0], in[0]), out[0].zero_())
LEGACY(Slice, check_shaped(out[0], sliced(in[0], in[1], in[2]).sizes()), put(out[0], sliced(in[0], in[1], in[2])))
// in: the gradient of a slice, what was sliced, begins and sizes.
LEGACY(CustSliceGrad, alike(out[0], in[1], "the output");
       sizes(in[0], sliced(out[0], in[2], in[3]).sizes(), "dy"), out[0].zero_();
       sliced(out[0], in[2], in[3]).copy_(in[0]))
LEGACY(StridedSlice, check_shaped(out[0], strided(in[0], in, attributes).sizes()),
       put(out[0], strided(in[0], in, attributes)))
// in: the shape of what was sliced, begins, ends, strides, the gradient of the slice.
LEGACY(StridedSliceGrad, check_shaped(in[4], strided(out[0], in, attributes).sizes()), out[0].zero_();
       at::Tensor part = strided(out[0], in, attributes); part.copy_(in[4].reshape(part.sizes())))
LEGACY(Transpose, check_permute(in[0], in[1], out[0]), put(out[0], in[0].permute(ints(in[1]))))
LEGACY(BroadcastTo, check_shaped(out[0], ints(in[1])), out[0].copy_(in[0].expand(ints(in[1]))))
LEGACY(Equal, check_compare(in[0], in[1], out[0]), at::eq_out(out[0], in[0], in[1]))
LEGACY(NotEqual, check_compare(in[0], in[1], out[0]), at::ne_out(out[0], in[0], in[1]))
LEGACY(Less, check_compare(in[0], in[1], out[0]), at::lt_out(out[0], in[0], in[1]))
LEGACY(LessEqual, check_compare(in[0], in[1], out[0]), at::le_out(out[0], in[0], in[1]))
LEGACY(Greater, check_compare(in[0], in[1], out[0]), at::gt_out(out[0], in[0], in[1]))
LEGACY(GreaterEqual, check_compare(in[0], in[1], out[0]), at::ge_out(out[0], in[0], in[1]))
LEGACY(OneHotD, check_one_hot(in[0], in[1], in[2], out[0]),
       at::where_out(out[0], in[0].unsqueeze(-1).eq(at::arange(out[0].size(-1))), in[1].reshape({}), in[2].reshape({})))
LEGACY(LpNormReduceV2, order(attributes), put(out[0], powers(in[0], attributes)))
LEGACY(LpNormUpdateV2, check_same_count(out[0], in[0]), put(out[0], root(in[0], attributes)))
LEGACY(LpNormV2, order(attributes), put(out[0], lp_norm(in[0], attributes)))
