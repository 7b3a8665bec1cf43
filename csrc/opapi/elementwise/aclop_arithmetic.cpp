// Arithmetic of the old API, element by element. torch_npu takes it where an operand is in a private format, which the
// results then keep (legacy.cpp unpacks and packs them).
#include <ATen/ExpandUtils.h>

#include <cmath>

#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

// The first `inputs` broadcast to the output.
void check_broadcast(LegacyArguments &arguments, size_t inputs) {
    const at::Tensor &out = arguments.out[0];
    for (size_t i = 0; i < inputs; ++i)
        if (!arguments.in[i].defined() || !at::is_expandable_to(arguments.in[i].sizes(), out.sizes()))
            fail(FaultKind::InvalidArgument, "input {} is {}, which does not broadcast to the output {}", i,
                 describe(arguments.in[i]), describe(out));
}

// x, two that are multiplied or divided, and a factor, whose dtype is its own.
void check_one_dtype(LegacyArguments &call) {
    for (size_t i = 1; i < 3; ++i)
        if (call.in[i].scalar_type() != call.in[0].scalar_type())
            fail(FaultKind::InvalidArgument, "an input is {}, expected the dtype of {}", describe(call.in[i]),
                 describe(call.in[0]));
    allowed(call.in[3], kReals, "value");
}

at::Tensor logarithm(const at::Tensor &x, const aclopAttr &attributes) {
    const double base = attribute<float>(attributes, "base", -1);
    const double scale = attribute<float>(attributes, "scale", 1), shift = attribute<float>(attributes, "shift", 0);
    const at::Tensor natural = (widened(x) * scale + shift).log();
    return base > 0 ? natural / std::log(base) : natural;
}

// Where the channels are.
int64_t channel(const at::Tensor &x, const aclopAttr &attributes) {
    const auto format = attribute<std::string>(attributes, "data_format", "NHWC");
    if (x.dim() < 2) fail(FaultKind::InvalidArgument, "x is {}, expected 2 dimensions and more", describe(x));
    return format == "NHWC" || format == "NDHWC" ? x.dim() - 1 : 1;
}

void check_bias(LegacyArguments &call) {
    allowed(call.in[0], kNative, "x");
    holds(call.in[1], call.in[0].size(channel(call.in[0], call.attributes)), "the bias");
    alike(call.out[0], call.in[0], "the output");
}

void bias(LegacyArguments &call) {
    std::vector<int64_t> form(static_cast<size_t>(call.in[0].dim()), 1);
    form[static_cast<size_t>(channel(call.in[0], call.attributes))] = call.in[1].numel();
    call.out[0].copy_(widened(call.in[0]) + widened(call.in[1]).reshape(form));
}

void bias_gradient(LegacyArguments &call) {
    const int64_t kept = channel(call.in[0], call.attributes);
    std::vector<int64_t> axes;
    for (int64_t i = 0; i < call.in[0].dim(); ++i)
        if (i != kept) axes.push_back(i);
    put(call.out[0], widened(call.in[0]).sum(axes));
}

}  // namespace
}  // namespace vnpu::opapi

#define UNARY(NAME, FUNCTION) LEGACY(NAME, check_broadcast(arguments, 1), out[0].copy_(FUNCTION(in[0])))
#define BINARY(NAME, ...) LEGACY(NAME, check_broadcast(arguments, 2), out[0].copy_(__VA_ARGS__))

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
LEGACY(AxpyV2, check_broadcast(arguments, 3), out[0].copy_(at::add(in[0], in[1] * in[2])))
LEGACY(SqrtGrad, check_like_first(arguments, 2, kNative), out[0].copy_(widened(in[1]) * 0.5 / widened(in[0])))
LEGACY(IsFinite, allowed(in[0], kAll, "x");
       holds(out[0], in[0].numel(), "the output"), out[0].copy_(at::isfinite(in[0])))
LEGACY(Log, check_like_first(arguments, 1), out[0].copy_(logarithm(in[0], attributes)))
LEGACY(Addcmul, check_broadcast(arguments, 4);
       check_one_dtype(arguments), out[0].copy_(widened(in[0]) + widened(in[3]) * widened(in[1]) * widened(in[2])))
LEGACY(Addcdiv, check_broadcast(arguments, 4);
       check_one_dtype(arguments), out[0].copy_(widened(in[0]) + widened(in[3]) * widened(in[1]) / widened(in[2])))
LEGACY(Lerp, check_broadcast(arguments, 3), const at::Tensor start = widened(in[0]);
       out[0].copy_(start + widened(in[2]) * (widened(in[1]) - start)))
LEGACY(ClipByValueV2, check_broadcast(arguments, 3), out[0].copy_(at::minimum(at::maximum(in[0], in[1]), in[2])))
LEGACY(Select, check_broadcast(arguments, 3);
       allowed(in[0], at::kBool, "the condition"), out[0].copy_(at::where(in[0], in[1], in[2])))
LEGACY(MaskedFill, check_broadcast(arguments, 2); allowed(in[1], at::kBool, "the mask");
       holds(in[2], 1, "the value"), out[0].copy_(at::where(in[1], in[2].reshape({}).to(in[0].scalar_type()), in[0])))
LEGACY(BiasAdd, check_bias(arguments), bias(arguments))
LEGACY(BiasAddGrad, allowed(in[0], kNative, "the gradient");
       holds(out[0], in[0].size(channel(in[0], attributes)), "the output"), bias_gradient(arguments))
