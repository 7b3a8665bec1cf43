// Sums over all ranks of products of int8 matrices, and of floating-point ones with int8 weights.
#include "opapi/aclnn/format.h"
#include "opapi/distributed/product.h"
#include "opapi/quantization/quantization.h"

namespace vnpu::opapi {
namespace {

using namespace quantization;

constexpr DTypes kPacked{at::kLong, at::kUInt64};  // a scale as the fixed pipe takes it

struct Scales {
    const Operand &columns, &rows, &there, &back;
};

// One for all columns, or one for each.
bool for_columns(const Operand &scale, int64_t columns) {
    return (scale.dim() == 1 && (scale.size(0) == 1 || scale.size(0) == columns)) ||
           (scale.dim() == 2 && scale.size(0) == 1 && scale.size(1) == columns);
}

// (ops-transformer: matmul_all_reduce_util.cpp, aclnn_quant_matmul_all_reduce_v3.cpp and _v4.cpp)
void check_scales(const Scales &scales, const Operand &x1, const Operand &x2, const Operand &output) {
    dtype(scales.columns, kPacked | DTypes{at::kBFloat16, at::kFloat});
    if (!for_columns(scales.columns, x2.size(1)))
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected [1], [{}] or [1, {}]",
             scales.columns.parameter(), describe(scales.columns), x2.size(1), x2.size(1));
    if (output.scalar_type() == at::kBFloat16 || scales.columns.scalar_type() == at::kBFloat16)
        on_chip(output.scalar_type() == scales.columns.scalar_type(), "parameters {} and output are {} and {}",
                scales.columns.parameter(), describe(scales.columns), describe(output));
    if (scales.rows.defined()) {
        dtype(scales.rows, {at::kFloat});
        shape(scales.rows, {x1.numel() / std::max<int64_t>(x1.size(-1), 1)});
        if (output.scalar_type() == at::kHalf)
            on_chip(scales.columns.scalar_type() == at::kFloat, "parameter {} is {}, expected float32 beside {}",
                    scales.columns.parameter(), describe(scales.columns), scales.rows.parameter());
    }
    tiled(scales.there.defined() == scales.back.defined(), "parameters {} and {} come together",
          scales.there.parameter(), scales.back.parameter());
    for (const Operand *scale : {&scales.there, &scales.back}) {
        if (!scale->defined()) continue;
        same_dtype(*scale, output);
        tiled(scale->numel() == x2.size(1) && scale->dim() <= 2,
              "parameter {} is {}, expected one for each of {} columns", scale->parameter(), describe(*scale),
              x2.size(1));
    }
}

void check_quantized(const Operand &x1, const Operand &x2, const Operand &bias, const Operand &x3, const Scales &scales,
                     const std::string &group, const std::string &reduction, int64_t turns, int64_t mode,
                     const Operand &output) {
    dtype(x1, {at::kChar});
    dtype(x2, {at::kChar});
    dtype(output, {at::kHalf, at::kBFloat16});
    if (bias.defined()) dtype(bias, {at::kInt});
    if (x3.defined()) same_dtype(x3, output);
    check_sum(x1, x2, bias, x3, group, reduction, turns, mode, output);
    tiled(x1.size(-1) > 0, "parameter x1 is {}, there is nothing to sum over", describe(x1));
    check_scales(scales, x1, x2, output);
}

// What is only in chips that come after 910B.
void check_later(int64_t group, int64_t mode) {
    on_chip(group == 0, "parameter groupSize is {}, allowed is 0", group);
    on_chip(mode == 0, "parameter commQuantMode is {}, allowed is 0", mode);
}

at::Tensor factor(const at::Tensor &scale) {
    if (!kPacked.has(scale.scalar_type())) return widened(scale).flatten();
    return scale.contiguous().view(at::kLong).bitwise_and(0xFFFFFFFFLL).to(at::kInt).view(at::kFloat).flatten();
}

// Sums of int8 products are exact in double.
at::Tensor product(const at::Tensor &x1, const at::Tensor &x2, const at::Tensor &bias, const Scales &scales) {
    at::Tensor value = at::matmul(x1.to(at::kDouble), x2.to(at::kDouble));
    if (bias.defined()) value = value + bias;
    value = value * factor(scales.columns);
    if (!scales.rows.defined()) return value;
    at::DimVector sizes(x1.sizes().begin(), x1.sizes().end());
    sizes.back() = 1;
    return value * scales.rows.reshape(sizes);
}

// The parts travel as int8, in both directions: the sum of what the ranks have sent is brought to the second scale.
void reduce_as_int8(const Group &ranks, const Scales &scales, at::Tensor &output) {
    const at::Tensor there = widened(scales.there).flatten(), back = widened(scales.back).flatten();
    at::Tensor sent = at::empty(output.sizes(), at::kChar), sum = at::empty(output.sizes(), at::kChar);
    saturate(sent, widened(output) / there);
    const at::Tensor all = ranks.all_gather(sent.unsqueeze(0));
    saturate(sum, all.to(at::kFloat).sum(0) * (there / back));
    output.copy_(sum.to(at::kFloat) * back);
}

void quantized(const char *operation, const std::string &group, const at::Tensor &x1, const at::Tensor &x2,
               const at::Tensor &bias, const at::Tensor &x3, const Scales &scales, at::Tensor &output) {
    const Group ranks(operation, group);
    const at::Tensor made = product(x1, x2, bias, scales);
    if (!scales.there.defined()) return all_reduce(ranks, made, x3, output);
    own_part(made, x3, output);
    reduce_as_int8(ranks, scales, output);
}

// --- int8 weights

// (ops-transformer: aclnn_weight_quant_matmul_all_reduce.cpp)
void check_weights(const Operand &x1, const Operand &x2, const Operand &scale, const Operand &offset, int64_t group,
                   const Operand &output) {
    dtype(x2, {at::kChar});
    same_dtype(output, x1);
    same_dtype(scale, x1);
    const int64_t inner = x1.size(-1), columns = x2.size(1);
    on_chip(group == 0 || (group % 32 == 0 && group >= 32 && group < inner),
            "parameter antiquantGroupSize is {}, allowed are 0 and multiples of 32 up to {}", group, inner - 1);
    const int64_t groups = group > 0 ? (inner + group - 1) / group : 1;
    if (group > 0 ? scale.sizes() != at::IntArrayRef({groups, columns}) : !for_columns(scale, columns))
        fail(FaultKind::InvalidArgument, "parameter antiquantScale is {}, expected {}", describe(scale),
             group > 0 ? fmt::format("[{}, {}]", groups, columns)
                       : fmt::format("[1], [{}] or [1, {}]", columns, columns));
    if (offset.defined()) {
        same_shape(offset, scale);
        same_dtype(offset, scale);
    }
}

at::Tensor spread(const at::Tensor &parameter, const at::Tensor &weight, int64_t group) {
    if (group == 0) return widened(parameter).flatten();
    return widened(parameter).repeat_interleave(group, 0).slice(0, 0, weight.size(0));
}

at::Tensor weighted(const at::Tensor &x1, const at::Tensor &x2, const at::Tensor &bias, const at::Tensor &scale,
                    const at::Tensor &offset, int64_t group) {
    at::Tensor real = x2.to(at::kFloat);
    if (offset.defined()) real = real + spread(offset, x2, group);
    at::Tensor made = at::matmul(widened(x1), real * spread(scale, x2, group));
    return bias.defined() ? made.add_(widened(bias)) : made;
}

const Operand kNone(nullptr, "none");

}  // namespace
}  // namespace vnpu::opapi

#define PARTS group, reduceOp, commTurn, streamMode, output

RANKS_OP(aclnnQuantMatmulAllReduce, optional(bias, x3); check_not_a3("aclnnQuantMatmulAllReduce"); fractal_nz(x2);
         check_quantized(x1, x2, bias, x3, {dequantScale, kNone, kNone, kNone}, PARTS),
         quantized("aclnnQuantMatmulAllReduce", group, x1, unpacked(x2), bias, x3, {dequantScale, kNone, kNone, kNone},
                   output))
#define SCALES {dequantScale, pertokenScaleOptional, kNone, kNone}
RANKS_OP(aclnnQuantMatmulAllReduceV2, check_not_a3("aclnnQuantMatmulAllReduceV2"); fractal_nz(x2);
         check_quantized(x1, x2, biasOptional, x3Optional, SCALES, PARTS),
         quantized("aclnnQuantMatmulAllReduceV2", group, x1, unpacked(x2), biasOptional, x3Optional, SCALES, output))
#define SCALES_V3 {dequantScale, pertokenScaleOptional, commQuantScale1Optional, commQuantScale2Optional}
RANKS_OP(aclnnQuantMatmulAllReduceV3, check_not_a3("aclnnQuantMatmulAllReduceV3"); fractal_nz(x2);
         check_quantized(x1, x2, biasOptional, x3Optional, SCALES_V3, PARTS),
         quantized("aclnnQuantMatmulAllReduceV3", group, x1, unpacked(x2), biasOptional, x3Optional, SCALES_V3, output))
#define SCALES_V4 {x2Scale, x1ScaleOptional, commQuantScale1Optional, commQuantScale2Optional}
RANKS_OP(aclnnQuantMatmulAllReduceV4, check_not_a3("aclnnQuantMatmulAllReduceV4"); fractal_nz(x2);
         check_later(groupSize, commQuantMode);
         check_quantized(x1, x2, biasOptional, x3Optional, SCALES_V4, PARTS),
         quantized("aclnnQuantMatmulAllReduceV4", group, x1, unpacked(x2), biasOptional, x3Optional, SCALES_V4, output))
RANKS_OP(aclnnQuantMatmulAllReduceV5, check_not_a3("aclnnQuantMatmulAllReduceV5"); fractal_nz(x2);
         check_by_processor(commMode); check_later(groupSize, commQuantMode);
         check_quantized(x1, x2, biasOptional, x3Optional, SCALES_V4, PARTS),
         quantized("aclnnQuantMatmulAllReduceV5", group, x1, unpacked(x2), biasOptional, x3Optional, SCALES_V4, output))
#define WEIGHTS x1, unpacked(x2), bias, antiquantScale, antiquantOffset, antiquantGroupSize
RANKS_OP(aclnnWeightQuantMatmulAllReduce, optional(bias, antiquantOffset, x3);
         check_not_a3("aclnnWeightQuantMatmulAllReduce"); fractal_nz(x2); check_sum(x1, x2, bias, x3, PARTS);
         check_weights(x1, x2, antiquantScale, antiquantOffset, antiquantGroupSize, output),
         all_reduce(Group("aclnnWeightQuantMatmulAllReduce", group), weighted(WEIGHTS), x3, output))
RANKS_OP(aclnnWeightQuantMatmulAllReduceV2, optional(bias, antiquantOffset, x3);
         check_not_a3("aclnnWeightQuantMatmulAllReduceV2"); fractal_nz(x2); check_by_processor(commMode);
         check_sum(x1, x2, bias, x3, PARTS);
         check_weights(x1, x2, antiquantScale, antiquantOffset, antiquantGroupSize, output),
         all_reduce(Group("aclnnWeightQuantMatmulAllReduceV2", group), weighted(WEIGHTS), x3, output))
