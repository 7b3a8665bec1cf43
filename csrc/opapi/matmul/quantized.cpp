// Matrix products of int8 operands, or of int4 packed in int32, and of floating-point ones with int8 weights. Private
// formats are refused but for weights.
#include "aclnn_mindspore.h"
#include "opapi/aclnn/format.h"
#include "opapi/matmul/four_bits.h"

namespace vnpu::opapi {
namespace {

using namespace quantization;

constexpr DTypes kPacked{at::kLong, at::kUInt64};

// A scale as the fixed pipe takes it: the bits of a float in the lower half of 64, its last 13 bits cut off, bit 46
// set; an offset of 9 bits from bit 37 on. `nearest` rounds instead of cutting, halves to even.
void pack(at::Tensor &out, const at::Tensor &scale, const at::Tensor &offset, bool nearest) {
    at::Tensor bits = scale.contiguous().view(at::kInt).to(at::kLong).bitwise_and(0xFFFFFFFFLL);
    if (nearest) bits = bits + 0xFFF + bits.div(0x2000, "floor").remainder(2);
    at::Tensor packed = bits.bitwise_and(0xFFFFE000LL).bitwise_or(int64_t{1} << 46);
    if (offset.defined()) {
        const at::Tensor whole = at::round(offset.to(at::kDouble)).clamp_(-256, 255).to(at::kLong);
        packed = packed.bitwise_and(0x4000FFFFFFFFLL).bitwise_or(whole.bitwise_and(0x1FF) * (int64_t{1} << 37));
    }
    out.view(at::kLong).copy_(packed.expand(out.sizes()));
}

void check_pack(const Operand &scale, const Operand &offset, const Operand &out) {
    dtype(scale, {at::kFloat});
    if (offset.defined()) dtype(offset, {at::kFloat});
    rank(scale, {1, 2});
    dtype(out, kPacked);
    expands(out, scale);
    if (offset.defined()) expands(out, offset);
}

at::Tensor oriented(const at::Tensor &matrix, bool transposed) { return transposed ? matrix.mT() : matrix; }

// [..., M, K] and [..., K, N] after the transpositions.
void check_product(const Operand &x1, const Operand &x2, bool t1, bool t2, const Operand &out) {
    for (const Operand *operand : {&x1, &x2}) {
        dtype(*operand, {at::kChar, at::kInt});
        matrices(*operand);
    }
    if (packed(x1) != packed(x2))
        fail(FaultKind::InvalidArgument,
             "parameters x1 and x2 are {} and {}, allowed are two of int8 or two of int32, "
             "or int8 and int32",
             describe(x1), describe(x2));
    if (packed(x1) && t1)
        fail(FaultKind::InvalidArgument, "parameter transposeX1 is true, which int4 packed in int32 does not allow");
    const at::DimVector left = unpacked_sizes(x1), right = unpacked_sizes(x2);
    const auto size = [](const at::DimVector &sizes, bool last) { return sizes[sizes.size() - (last ? 1 : 2)]; };
    const int64_t rows = size(left, t1), inner = size(left, !t1);
    if (size(right, t2) != inner)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected {} as the dimension that is summed over",
             x2.parameter(), describe(x2), inner);
    if (out.dim() < 2 || out.size(-2) != rows || out.size(-1) != size(right, !t2))
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected [..., {}, {}]", out.parameter(), describe(out),
             rows, size(right, !t2));
}

// One for all, or one for each of `count`.
void check_scale(const Operand &scale, int64_t count, DTypes allowed) {
    if (!scale.defined()) return;
    dtype(scale, allowed);
    if (scale.numel() != 1 && scale.numel() != count)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected 1 or {} values", scale.parameter(),
             describe(scale), count);
}

struct Scales {
    const Operand &x1, &x2, &y, &x1_offset, &x2_offset, &y_offset, &bias;
    int64_t group;
};

bool split(const at::Tensor &x1, const at::Tensor &x2) { return x1.scalar_type() == at::kChar && packed(x2); }

// ops-nn: aclnn_quant_matmul_v5.cpp, isA8W4Int; its page, K-G
void check_split(const Operand &x1, const Operand &x2, const Scales &scales, bool t1, bool t2, const Operand &out) {
    rank(x1, {2});
    rank(x2, {2});
    require(scales.x1);
    require(scales.x2);
    require(scales.y_offset);
    const int64_t rows = x1.size(0), inner = x1.size(1), columns = unpacked_sizes(x2)[1];
    if (t1 || t2 || packed_dimension(x2) != -1 || x2.size(0) != inner || inner % 256 != 0 || inner >= 29576)
        fail(FaultKind::InvalidArgument,
             "parameters x1 and x2 are {} and {}, transposeX1 {} and transposeX2 {}: weights of 4 bits take [m, k] and "
             "[k, n], not transposed, and as k a multiple of 256 below 29576",
             describe(x1), describe(x2), t1, t2);
    dtype(scales.x1, {at::kFloat});
    if (scales.x1.numel() != rows)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected {} values", scales.x1.parameter(),
             describe(scales.x1), rows);
    dtype(scales.x2, kPacked);
    const bool grouped = scales.x2.dim() != 1;
    if (scales.group != (grouped ? 256 : 0))
        fail(FaultKind::InvalidArgument, "parameter groupSize is {}, expected {} with {} as {}", scales.group,
             grouped ? 256 : 0, describe(scales.x2), scales.x2.parameter());
    if (grouped)
        shape(scales.x2, {inner / 256, columns});
    else
        shape(scales.x2, {columns});
    dtype(scales.y_offset, {at::kFloat});
    shape(scales.y_offset, {columns});
    for (const Operand *operand : {&scales.y, &scales.x1_offset, &scales.x2_offset, &scales.bias})
        if (operand->defined() && operand->numel() > 0)
            fail(FaultKind::InvalidArgument, "parameter {} is {}, which is null beside weights of 4 bits",
                 operand->parameter(), describe(*operand));
    dtype(out, {at::kHalf, at::kBFloat16});
    shape(out, {rows, columns});
}

void check_quant_matmul(const Operand &x1, const Operand &x2, const Scales &scales, bool t1, bool t2,
                        const Operand &out) {
    if (split(x1, x2)) return check_split(x1, x2, scales, t1, t2, out);
    check_product(x1, x2, t1, t2, out);
    dtype(out, {at::kHalf, at::kBFloat16, at::kChar, at::kInt, at::kFloat});
    for (const Operand *operand : {&scales.y, &scales.x1_offset, &scales.y_offset})
        if (operand->defined() && operand->numel() > 0)
            fail(FaultKind::InvalidArgument, "parameter {} is {}, CANN's kernel for int8 takes null",
                 operand->parameter(), describe(*operand));
    if (scales.group != 0)
        fail(FaultKind::InvalidArgument, "parameter groupSize is {}, the virtual NPU offers 0 (no groups)",
             scales.group);
    check_scale(scales.x1, out.size(-2), {at::kFloat});
    check_scale(scales.x2, out.size(-1), kNative | kPacked);
    check_scale(scales.x2_offset, out.size(-1), {at::kFloat});
    if (scales.bias.defined()) {
        dtype(scales.bias, kNative | at::kInt);
        expands(out, scales.bias);
    }
}

// Sums of int8 products are exact in double.
at::Tensor integer_product(const at::Tensor &x1, const at::Tensor &x2) {
    return at::matmul(x1.to(at::kDouble), x2.to(at::kDouble));
}

void quant_matmul(const at::Tensor &x1, const at::Tensor &x2, const Scales &scales, bool t1, bool t2, at::Tensor &out) {
    if (split(x1, x2)) {
        const at::Tensor scale = real_scale(scales.x2);
        const at::Tensor value =
            split_product(x1, unpacked_int4(x2), scale.reshape({-1, scale.size(-1)}), {}, scales.y_offset);
        return void(out.copy_(value * scales.x1.reshape({-1, 1})));
    }
    at::Tensor value = integer_product(oriented(unpacked_int4(x1), t1), oriented(unpacked_int4(x2), t2));
    const bool before = scales.bias.defined() && scales.bias.scalar_type() == at::kInt;
    if (before) value = value + scales.bias;
    if (scales.x2.defined()) value = value * real_scale(scales.x2).flatten();
    if (scales.x1.defined()) value = value * widened(scales.x1).reshape({-1, 1});
    if (scales.bias.defined() && !before) value = value + widened(scales.bias);
    if (scales.x2_offset.defined()) value = value + scales.x2_offset.flatten();
    if (out.scalar_type() == at::kChar)
        saturate(out, value);
    else
        out.copy_(value);
}

// --- int8 weights of a floating-point product

void check_weight(const Operand &x, const Operand &weight, const Operand &scale, const Operand &offset,
                  const Operand &quant_scale, const Operand &quant_offset, const Operand &bias, int64_t group,
                  const Operand &y) {
    rank(x, {2});
    rank(weight, {2});
    dtype(x, {at::kHalf, at::kBFloat16});
    dtype(weight, {at::kChar});
    if (weight.size(0) != x.size(1))
        fail(FaultKind::InvalidArgument, "parameter weight is {}, expected {} rows", describe(weight), x.size(1));
    shape(y, {x.size(0), weight.size(1)});
    if (group < 0 || (group > 0 && group >= x.size(1)))
        fail(FaultKind::InvalidArgument, "parameter antiquantGroupSize is {}, allowed are 0 and less than {}", group,
             x.size(1));
    // ops-nn: aclnn_weight_quant_batch_matmul_v2.cpp
    on_chip(group % 32 == 0, "parameter antiquantGroupSize is {}, allowed are 0 and multiples of 32", group);
    const int64_t groups = group > 0 ? (x.size(1) + group - 1) / group : 1;
    for (const Operand *parameter : {&scale, &offset}) {
        if (!parameter->defined()) continue;
        network(*parameter);
        if (parameter->numel() != 1 && parameter->numel() != groups * weight.size(1))
            fail(FaultKind::InvalidArgument, "parameter {} is {}, expected 1 or {} values", parameter->parameter(),
                 describe(*parameter), groups * weight.size(1));
    }
    if (bias.defined()) {
        network(bias);
        expands(y, bias);
    }
    check_scale(quant_scale, weight.size(1), kNative | kPacked);
    check_scale(quant_offset, weight.size(1), {at::kFloat});
    if (quant_scale.defined())
        dtype(y, {at::kChar});
    else
        same_dtype(y, x);
}

// One for each weight.
at::Tensor spread(const at::Tensor &parameter, const at::Tensor &weight, int64_t group) {
    if (parameter.numel() == 1) return widened(parameter).reshape({});
    const at::Tensor rows = widened(parameter).reshape({-1, weight.size(1)});
    return group > 0 ? rows.repeat_interleave(group, 0).slice(0, 0, weight.size(0)) : rows;
}

void weight_quant_matmul(const at::Tensor &x, const at::Tensor &weight, const at::Tensor &scale,
                         const at::Tensor &offset, const at::Tensor &quant_scale, const at::Tensor &quant_offset,
                         const at::Tensor &bias, int64_t group, at::Tensor &y) {
    // The vector cores compute in half for half, sum and product each rounded, and in float for bfloat16, rounded once
    // for the matrix units (ops-nn: weight_quant_batch_matmul_v2_common.h).
    const auto rounded = [&](const at::Tensor &value) { return value.to(x.scalar_type()).to(at::kFloat); };
    at::Tensor real = weight.to(at::kFloat);
    if (offset.defined()) real = real + spread(offset, weight, group);
    if (x.scalar_type() == at::kHalf) real = rounded(real);
    at::Tensor value = at::matmul(widened(x), rounded(real * spread(scale, weight, group)));
    if (bias.defined()) value = value + widened(bias);
    if (!quant_scale.defined()) return void(y.copy_(value));
    value = value * real_scale(quant_scale).flatten();
    saturate(y, quant_offset.defined() ? value + quant_offset.flatten() : value);
}

const Operand kAbsent(nullptr, "absent");

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnTransQuantParamV2, optional(offset); check_pack(scale, offset, out), pack(out, scale, offset, false))
OP(aclnnTransQuantParamV3, optional(offset); check_pack(scale, offset, out);
   if (roundMode != 0 && roundMode != 1)
       fail(vnpu::FaultKind::InvalidArgument, "parameter roundMode is {}, allowed are 0 and 1", roundMode),
   pack(out, scale, offset, roundMode == 1))
#define SCALES {x1Scale, x2Scale, yScale, x1Offset, x2Offset, yOffset, bias, groupSize}
OP(aclnnQuantMatmulV5, optional(x1Scale, x2Scale, yScale, x1Offset, x2Offset, yOffset, bias);
   check_quant_matmul(x1, x2, SCALES, transposeX1, transposeX2, out),
   quant_matmul(x1, x2, SCALES, transposeX1, transposeX2, out))
// The version before, which MindSpore asks for: its scale and offset are those of x2 there, the rows' scale x1's.
#define OF_V4 {pertokenScaleOptional, scale, kAbsent, kAbsent, offset, kAbsent, bias, 0}
OP(aclnnQuantMatmulV4, optional(offset, pertokenScaleOptional, bias);
   check_quant_matmul(x1, x2, OF_V4, transposeX1, transposeX2, out),
   quant_matmul(x1, x2, OF_V4, transposeX1, transposeX2, out))
OP(aclnnQuantMatmulWeightNz, optional(x1Scale, x2Scale, yScale, x1Offset, x2Offset, yOffset, bias); fractal_nz(x2);
   check_quant_matmul(x1, x2, SCALES, transposeX1, transposeX2, out),
   quant_matmul(x1, unpacked(x2), SCALES, transposeX1, transposeX2, out))
#define WEIGHT_QUANT(NAME)                                                                                       \
    OP(NAME,                                                                                                     \
       check_weight(x, weight, antiquantScale, antiquantOffsetOptional, quantScaleOptional, quantOffsetOptional, \
                    biasOptional, antiquantGroupSize, y),                                                        \
       weight_quant_matmul(x, weight, antiquantScale, antiquantOffsetOptional, quantScaleOptional,               \
                           quantOffsetOptional, biasOptional, antiquantGroupSize, y))

WEIGHT_QUANT(aclnnWeightQuantBatchMatmulV2)
WEIGHT_QUANT(aclnnWeightQuantBatchMatmulV3)
