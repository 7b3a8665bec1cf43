// Arithmetic of the old API, element by element. torch_npu takes it where an operand is in a private format, which the
// results then keep (legacy.cpp unpacks and packs them).
#include <ATen/ExpandUtils.h>

#include "device/fault.h"
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"

namespace vnpu::opapi {
namespace {

// The first `inputs` broadcast to the output.
void broadcast(LegacyArguments &arguments, size_t inputs) {
    const at::Tensor &out = arguments.out[0];
    for (size_t i = 0; i < inputs; ++i)
        if (!arguments.in[i].defined() || !at::is_expandable_to(arguments.in[i].sizes(), out.sizes()))
            fail(FaultKind::InvalidArgument, "input {} is {}, which does not broadcast to the output {}", i,
                 describe(arguments.in[i]), describe(out));
}

// Sums and the like: the axes are an input of integers, none means all.
void reduces(LegacyArguments &arguments) {
    const at::Tensor &in = arguments.in[0];
    int64_t kept = in.numel();
    for (const int64_t axis : ints(arguments.in[1])) {
        if (axis < -in.dim() || axis >= in.dim())
            fail(FaultKind::InvalidArgument, "axis {} lies outside of {}", axis, describe(in));
        kept = in.size(axis) == 0 ? 0 : kept / in.size(axis);
    }
    if (arguments.out[0].numel() != (arguments.in[1].numel() == 0 ? 1 : kept))
        fail(FaultKind::InvalidArgument, "the output is {}, which has not the {} elements of the result",
             describe(arguments.out[0]), kept);
}

template <class Function>
void reduce(LegacyArguments &arguments, Function function) {
    const at::Tensor result = function(arguments.in[0], ints(arguments.in[1]));
    arguments.out[0].copy_(result.reshape(arguments.out[0].sizes()));
}

// In fp32 where it is less; ATen multiplies along one dimension at a time.
at::Tensor product(const at::Tensor &given, at::IntArrayRef axes) {
    at::Tensor x = widened(given);
    std::vector<bool> gone(static_cast<size_t>(x.dim()), axes.empty());
    for (const int64_t axis : axes) gone[static_cast<size_t>(axis < 0 ? axis + x.dim() : axis)] = true;
    for (int64_t i = x.dim() - 1; i >= 0; --i)
        if (gone[static_cast<size_t>(i)]) x = x.prod(i);
    return x;
}

}  // namespace
}  // namespace vnpu::opapi

#define UNARY(NAME, FUNCTION) LEGACY(NAME, broadcast(arguments, 1), out[0].copy_(FUNCTION(in[0])))
#define BINARY(NAME, ...) LEGACY(NAME, broadcast(arguments, 2), out[0].copy_(__VA_ARGS__))

UNARY(Abs, at::abs)
UNARY(Ceil, at::ceil)
UNARY(Cos, at::cos)
UNARY(Erf, at::erf)
UNARY(Exp, at::exp)
UNARY(Floor, at::floor)
UNARY(HardSwish, at::hardswish)
UNARY(Log1p, at::log1p)
UNARY(LogicalNot, at::logical_not)
UNARY(Mish, at::mish)
UNARY(Neg, at::neg)
UNARY(OnesLike, at::ones_like)
UNARY(Reciprocal, at::reciprocal)
UNARY(Relu, at::relu)
UNARY(Rsqrt, at::rsqrt)
UNARY(Sigmoid, at::sigmoid)
UNARY(Sign, at::sign)
UNARY(Sin, at::sin)
UNARY(Sqrt, at::sqrt)
UNARY(Square, at::square)
UNARY(Tan, at::tan)
UNARY(Tanh, at::tanh)
UNARY(Trunc, at::trunc)

BINARY(Add, at::add(in[0], in[1]))
BINARY(Sub, at::sub(in[0], in[1]))
BINARY(Mul, at::mul(in[0], in[1]))
BINARY(RealDiv, at::div(in[0], in[1]))
BINARY(FloorDiv, at::div(in[0], in[1], "floor"))
BINARY(FloorMod, at::remainder(in[0], in[1]))
BINARY(Mod, at::fmod(in[0], in[1]))
BINARY(Pow, at::pow(in[0], in[1]))
BINARY(Maximum, at::maximum(in[0], in[1]))
BINARY(Minimum, at::minimum(in[0], in[1]))
BINARY(Atan2, at::atan2(in[0], in[1]))
BINARY(LogicalAnd, at::logical_and(in[0], in[1]))
BINARY(LogicalOr, at::logical_or(in[0], in[1]))
// The gradient of the result comes first for ReLU, second for the functions that are differentiated by their result.
BINARY(ReluGrad, at::threshold_backward(in[0], in[1], 0))
BINARY(SigmoidGrad, at::sigmoid_backward(in[1], in[0]))
BINARY(TanhGrad, at::tanh_backward(in[1], in[0]))
// One answer for all elements; tensors of different shapes are not asked about.
LEGACY(TensorEqual,
       if (in[0].sizes() != in[1].sizes())
           fail(vnpu::FaultKind::InvalidArgument, "the inputs are {} and {}", describe(in[0]), describe(in[1])),
       out[0].fill_(at::equal(in[0], in[1])))
LEGACY(AxpyV2, broadcast(arguments, 3), out[0].copy_(at::add(in[0], in[1] * in[2])))

#define REDUCE(NAME, ...)            \
    LEGACY(NAME, reduces(arguments), \
           reduce(arguments, [](const at::Tensor &x, at::IntArrayRef axes) { return __VA_ARGS__; }))
REDUCE(ReduceSum, at::sum(x, axes))
REDUCE(ReduceMean, at::mean(x, axes))
REDUCE(ReduceProd, product(x, axes))
REDUCE(ReduceMax, at::amax(x, axes))
REDUCE(ReduceMin, at::amin(x, axes))
LEGACY(SoftmaxV2, broadcast(arguments, 1),
       out[0].copy_(at::softmax(in[0], attribute<std::vector<int64_t>>(attributes, "axes", {-1}).at(0))))
