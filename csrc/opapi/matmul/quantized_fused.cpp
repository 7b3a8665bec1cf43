// Products of int8 matrices, or of int4 packed in int32, with something behind them in the same kernel.
#include <fmt/ranges.h>

#include "opapi/aclnn/format.h"
#include "opapi/quantization/quantization.h"

namespace vnpu::opapi {
namespace {

using namespace quantization;

void check_none_of(std::initializer_list<const Operand *> operands) {
    for (const Operand *each : operands)
        if (each->defined() && each->numel() > 0)
            fail(FaultKind::InvalidArgument, "parameter {} is {}, CANN takes null", each->parameter(), describe(*each));
}

// ops-nn: aclnn_fused_quant_matmul.cpp
void check_gelu(const Operand &x1, const Operand &x2, const Operand &row_scale, const Operand &scale,
                const Operand &bias, const std::string &kind, int64_t group, const Operand &out) {
    for (const Operand *each : {&x1, &x2, &row_scale, &scale, &out}) require(*each);
    for (const Operand *each : {&x1, &x2}) {
        dtype(*each, {at::kChar, at::kInt});
        matrices(*each);
    }
    if (kind != "gelu_tanh" && kind != "gelu_erf")
        fail(FaultKind::InvalidArgument, "parameter fusedOpType is \"{}\", allowed are gelu_tanh and gelu_erf", kind);
    if (group != 0) fail(FaultKind::InvalidArgument, "parameter groupSizeOptional is {}, allowed is 0", group);
    if (packed(x1) != packed(x2))
        fail(FaultKind::InvalidArgument, "parameters x1 and x2 are {} and {}, allowed are two of int8 or two of int32",
             describe(x1), describe(x2));
    const at::DimVector left = unpacked_sizes(x1), right = unpacked_sizes(x2);
    const int64_t inner = left.back(), columns = right.back(), rows = left[left.size() - 2];
    if (right[right.size() - 2] != inner)
        fail(FaultKind::InvalidArgument, "parameter x2 is {}, expected {} rows", describe(x2), inner);
    if (out.dim() < 2 || out.size(-2) != rows || out.size(-1) != columns)
        fail(FaultKind::InvalidArgument, "parameter out is {}, expected [..., {}, {}]", describe(out), rows, columns);
    shape(row_scale, {rows});
    if (scale.dim() != 1 || (scale.size(0) != columns && scale.size(0) != 1))
        fail(FaultKind::InvalidArgument, "parameter x2Scale is {}, expected [{}] or [1]", describe(scale), columns);
    if (scale.scalar_type() == at::kBFloat16 && out.scalar_type() != at::kBFloat16)
        fail(FaultKind::InvalidArgument, "parameter x2Scale is {}, which out, {}, does not allow", describe(scale),
             describe(out));
    if (bias.defined()) expands(out, bias);
}

void gelu_product(const at::Tensor &x1, const at::Tensor &x2, const at::Tensor &row_scale, const at::Tensor &scale,
                  const at::Tensor &bias, const std::string &kind, at::Tensor &out) {
    at::Tensor value = at::matmul(unpacked_int4(x1).to(at::kDouble), unpacked_int4(x2).to(at::kDouble));
    const bool before = bias.defined() && bias.scalar_type() == at::kInt;
    if (before) value = value + bias;
    value = value.to(at::kFloat) * widened(scale) * row_scale.reshape({-1, 1});
    if (bias.defined() && !before) value = value + widened(bias);
    out.copy_(at::gelu(value, kind == "gelu_tanh" ? "tanh" : "none"));
}

// ops-nn: aclnn_quant_matmul_reduce_sum.cpp
void check_sum(const Operand &x1, const Operand &x2, const Operand &row_scale, const Operand &scale, bool transposed,
               int64_t group, const Ints &dims, bool keep, const Operand &out) {
    for (const Operand *each : {&x1, &x2, &row_scale, &scale, &out}) require(*each);
    if (!dims.given) fail(FaultKind::NullArgument, "parameter dims is null");
    rank(x1, {3});
    rank(x2, {3});
    if (transposed || group > 0 || keep || dims.size() != 1 || dims[0] != 0)
        fail(FaultKind::InvalidArgument,
             "CANN offers no transposition, groupSize 0, dims [0] and keepDims false: here they are {}, {}, [{}], {}",
             transposed, group, fmt::join(dims, ", "), keep);
    shape(x2, {x1.size(0), x1.size(2), x2.size(2)});
    shape(scale, {x2.size(2)});
    shape(row_scale, {x1.size(0), x1.size(1)});
    shape(out, {x1.size(1), x2.size(2)});
}

void product_sum(const at::Tensor &x1, const at::Tensor &x2, const at::Tensor &row_scale, const at::Tensor &scale,
                 at::Tensor &out) {
    const at::Tensor products = at::matmul(x1.to(at::kDouble), x2.to(at::kDouble)).to(at::kFloat);
    out.copy_((products * widened(scale) * row_scale.unsqueeze(-1)).sum(0));
}

}  // namespace
}  // namespace vnpu::opapi

#define FUSED_QUANT(NAME, LAID_OUT, WEIGHT)                                                                   \
    OP(NAME, optional(yScaleOptional); LAID_OUT;                                                              \
       check_none_of({&yScaleOptional, &x1OffsetOptional, &x2OffsetOptional, &yOffsetOptional, &x3Optional}); \
       check_gelu(x1, x2, x1Scale, x2Scale, biasOptional, fusedOpType, groupSizeOptional, out),               \
       gelu_product(x1, WEIGHT, x1Scale, x2Scale, biasOptional, fusedOpType, out))

FUSED_QUANT(aclnnFusedQuantMatmul, (void)0, x2)
FUSED_QUANT(aclnnFusedQuantMatmulWeightNz, fractal_nz(x2), unpacked(x2))
OP(aclnnQuantMatmulReduceSumWeightNz, optional(yScale, x1Offset, x2Offset, yOffset, bias); fractal_nz(x2);
   check_none_of({&yScale, &x1Offset, &x2Offset, &yOffset, &bias});
   check_sum(x1, x2, x1Scale, x2Scale, transposeX1 || transposeX2, groupSize, dims, keepDims, out),
   product_sum(x1, unpacked(x2), x1Scale, x2Scale, out))
