// Quantisation with a factor for each group of rows, for each block of a row, or for what a product makes of a row.
#include <fmt/ranges.h>

#include "opapi/aclnn/limits.h"
#include "opapi/quantization/quantization.h"

namespace vnpu::opapi {
namespace {

using namespace quantization;

// ops-nn: aclnn_group_quant.cpp
void check_group_quant(const Operand &x, const Operand &scale, const Operand &groups, const Operand &offset,
                       const Operand &y) {
    for (const Operand *each : {&x, &scale, &groups, &y}) require(*each);
    rank(x, {2});
    rank(scale, {2});
    rank(groups, {1});
    shape(scale, {groups.size(0), x.size(1)});
    if (groups.size(0) == 0) fail(FaultKind::InvalidArgument, "parameter scale is {}, expected rows", describe(scale));
    if (offset.defined() && offset.numel() > 1)
        fail(FaultKind::InvalidArgument, "parameter offsetOptional is {}, expected one value", describe(offset));
    check_holds_quantized(x, y);
}

void group_quant(const at::Tensor &x, const at::Tensor &scale, const at::Tensor &groups, const at::Tensor &offset,
                 at::Tensor &y) {
    at::Tensor value = by_group(widened(x), scale, groups);
    if (offset.defined()) value = value + widened(offset).reshape({});
    store(y, value);
}

// A row is a matrix between two others (ops-nn: aclnn_flat_quant.cpp); what is between the products has x's dtype.
void check_flat(const Operand &x, const Operand &left, const Operand &right, double clip, double most,
                const Operand &out, const Operand &scale) {
    for (const Operand *each : {&x, &left, &right, &out, &scale}) require(*each);
    rank(x, {3});
    if (x.numel() == 0 || x.size(0) > 262144 || x.size(1) > 256 || x.size(2) > 256)
        fail(FaultKind::InvalidArgument, "parameter x is {}, allowed are elements in up to [262144, 256, 256]",
             describe(x));
    shape(left, {x.size(1), x.size(1)});
    shape(right, {x.size(2), x.size(2)});
    shape(scale, {x.size(0)});
    check_holds_quantized(x, out);
    if (!(clip > 0 && clip <= 1))
        fail(FaultKind::InvalidArgument, "parameter clipRatio is {}, allowed is above 0 and at most 1", clip);
    if (most != 0 && (most < 6 || most > 12))
        fail(FaultKind::InvalidArgument, "parameter dstTypeMax is {}, allowed are 0 and 6 to 12", most);
}

void flat_quant(const at::Tensor &x, const at::Tensor &left, const at::Tensor &right, double clip, at::Tensor &out,
                at::Tensor &scale) {
    const at::Tensor inner = at::matmul(widened(x), widened(right)).to(x.scalar_type());
    const at::Tensor value = at::matmul(widened(left), widened(inner));
    const at::Tensor factor = value.abs().amax({1, 2}, true) / (7 / clip);
    scale.copy_(factor.view(-1));
    store(out, value / factor);
}

// ops-nn: aclnn_rotate_quant.cpp
void check_rotate(const Operand &x, const Operand &rotation, const Operand &alpha, int64_t axis,
                  const std::string &mode, int64_t algorithm, double most, bool transposed, const Operand &y,
                  const Operand &scale) {
    for (const Operand *each : {&x, &rotation, &y, &scale}) require(*each);
    rank(x, {2});
    rank(rotation, {2});
    shape(rotation, {rotation.size(1), rotation.size(1)});
    const int64_t columns = x.size(1), side = rotation.size(1);
    if (side == 0 || columns % side != 0 || columns % 8 != 0)
        fail(FaultKind::InvalidArgument, "parameter x is {}, its rows must be multiples of 8 and of rotation, {}",
             describe(x), describe(rotation));
    shape(scale, {x.size(0)});
    check_holds_quantized(x, y);
    if (alpha.defined())
        fail(FaultKind::InvalidArgument, "parameter alpha is {}, allowed is null on this chip", describe(alpha));
    if (!mode.empty() && mode != "rint" && mode != "floor" && mode != "round")
        fail(FaultKind::InvalidArgument, "parameter roundMode is \"{}\", allowed are rint, floor and round", mode);
    if (algorithm != 0 || most != 0)
        fail(FaultKind::InvalidArgument, "scaleAlg is {} and dstTypeMax {}, allowed are 0 and 0", algorithm, most);
    if ((axis != -1 && axis != 1) || transposed)
        fail(FaultKind::InvalidArgument, "axis is {} and trans {}, allowed are -1 and false", axis, transposed);
    tiled(columns >= 128 && columns <= 16000 && side >= 16 && side <= 1024,
          "x is {} and rotation {}, allowed are rows of 128 to 16000 and a side of 16 to 1024", describe(x),
          describe(rotation));
}

void rotate_quant(const at::Tensor &x, const at::Tensor &rotation, at::Tensor &y, at::Tensor &scale) {
    const at::Tensor pieces = widened(x).reshape({-1, rotation.size(0)});
    at::Tensor value = at::matmul(pieces, widened(rotation)).to(x.scalar_type()).to(at::kFloat).view(x.sizes());
    if (value.numel() == 0) return;
    const Bounds reach = y.scalar_type() == at::kInt ? Bounds{-8, 7} : range(at::kChar);
    scale.copy_(dynamic(value, {-1}, reach, true).scale.view(-1));
    store(y, value);
}

// ops-nn: dynamic_block_quant_i8_tiling.cpp, for this generation of chips
void check_blocks(const Operand &x, double least, const std::string &mode, at::ScalarType type, int64_t high,
                  int64_t wide, double most, const Operand &y, const Operand &scale) {
    for (const Operand *each : {&x, &y, &scale}) require(*each);
    tiled(least >= 0, "parameter minScale is {}, allowed is >= 0", least);
    tiled(mode.empty() || mode == "rint", "parameter roundModeOptional is \"{}\", allowed is rint", mode);
    tiled(type == at::kChar, "parameter dstType is {}, allowed is INT8", c10::toString(type));
    tiled(most == 0, "parameter dstTypeMax is {}, allowed is 0", most);
    tiled(high == 1 && wide == 128, "rowBlockSize is {} and colBlockSize {}, allowed are 1 and 128", high, wide);
    tiled(x.dim() == 2 || x.dim() == 3, "parameter x is {}, expected 2 or 3 dimensions", describe(x));
    tiled(y.sizes() == x.sizes(), "parameter yOut is {}, expected the shape of x, {}", describe(y), describe(x));
    at::DimVector sizes(x.sizes());
    sizes.back() = (sizes.back() + wide - 1) / wide;
    tiled(scale.sizes() == at::IntArrayRef(sizes), "parameter scaleOut is {}, expected [{}]", describe(scale),
          fmt::join(sizes, ", "));
}

// A block is 128 values of a row, or what is left of it.
void block_quant(const at::Tensor &x, double least, at::Tensor &y, at::Tensor &scale) {
    if (x.numel() == 0) return;
    const int64_t columns = x.size(-1), blocks = scale.size(-1);
    const at::Tensor padded = at::constant_pad_nd(widened(x), {0, blocks * 128 - columns});
    at::Tensor value = padded.unflatten(-1, {blocks, 128});
    at::Tensor factor = value.abs().amax({-1}, true) / 127;
    if (least > 0) factor = factor.clamp_max(1 / least);
    scale.copy_(factor.squeeze(-1));
    saturate(y, (value / factor).flatten(-2).narrow(-1, 0, columns));
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnGroupQuant, check_group_quant(x, scale, groupIndex, offsetOptional, y),
   group_quant(x, scale, groupIndex, offsetOptional, y))
OP(aclnnFlatQuant, check_flat(x, kroneckerP1, kroneckerP2, clipRatio, 0, out, quantScale),
   flat_quant(x, kroneckerP1, kroneckerP2, clipRatio, out, quantScale))
OP(aclnnFlatQuantV2, check_flat(x, kroneckerP1, kroneckerP2, clipRatio, dstTypeMax, out, quantScale),
   flat_quant(x, kroneckerP1, kroneckerP2, clipRatio, out, quantScale))
OP(aclnnRotateQuant, optional(alpha);
   check_rotate(x, rotation, alpha, axis, roundMode, scaleAlg, dstTypeMax, trans, yOut, scaleOut),
   rotate_quant(x, rotation, yOut, scaleOut))
OP(aclnnDynamicBlockQuant,
   check_blocks(x, minScale, roundModeOptional, dstType, rowBlockSize, colBlockSize, 0, yOut, scaleOut),
   block_quant(x, minScale, yOut, scaleOut))
OP(aclnnDynamicBlockQuantV2,
   check_blocks(x, minScale, roundModeOptional, dstType, rowBlockSize, colBlockSize, dstTypeMax, yOut, scaleOut),
   block_quant(x, minScale, yOut, scaleOut))
