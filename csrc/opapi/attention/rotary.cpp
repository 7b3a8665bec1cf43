// Rotary position embedding: x * cos + rotated(x) * sin, computed in fp32 and rounded once.
#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

enum RotaryMode { kHalf = 0, kInterleave = 1, kQuarter = 2, kInterleaveHalf = 3 };

// (-second, first) of pairs, which lie half the last dimension apart (half), side by side (interleave), or half apart
// in either half (quarter). The transposed rotation is its negative.
at::Tensor rotated(const at::Tensor &x, int64_t mode) {
    if (mode == kInterleave) {
        const at::Tensor pairs = x.unflatten(-1, {-1, 2});
        return at::stack({pairs.select(-1, 1).neg(), pairs.select(-1, 0)}, -1).flatten(-2);
    }
    if (mode == kQuarter) {
        const std::vector<at::Tensor> part = x.chunk(4, -1);
        return at::cat({part[1].neg(), part[0], part[3].neg(), part[2]}, -1);
    }
    const std::vector<at::Tensor> half = x.chunk(2, -1);
    return at::cat({half[1].neg(), half[0]}, -1);
}

// Interleave-half first sorts even elements before odd ones; the other modes leave x as it is.
at::Tensor sorted_pairs(const at::Tensor &x, int64_t mode) {
    return mode == kInterleaveHalf ? x.unflatten(-1, {-1, 2}).transpose(-1, -2).flatten(-2) : x;
}

at::Tensor unsorted_pairs(const at::Tensor &x, int64_t mode) {
    return mode == kInterleaveHalf ? x.unflatten(-1, {2, -1}).transpose(-1, -2).flatten(-2) : x;
}

void check_rotary(const Operand &x, const Operand &cos, const Operand &sin, int64_t mode, const Operand &out) {
    network(x);
    rank(x, {3, 4});  // 3: torch_npu passes [tokens, heads, width]
    for (const Operand *factor : {&cos, &sin}) {
        same_dtype(*factor, x);
        expands(x, *factor);
        if (factor->dim() != x.dim() || factor->size(-1) != x.size(-1))
            fail(FaultKind::InvalidArgument, "parameter {} is {}, expected the rank and the last size of {}, {}",
                 factor->parameter(), describe(*factor), x.parameter(), describe(x));
    }
    same_shape(sin, cos);
    same_shape(out, x);
    same_dtype(out, x);
    if (mode < kHalf || mode > kInterleaveHalf)
        fail(FaultKind::InvalidArgument, "parameter mode is {}, allowed are 0 to 3", mode);
    // (ops-transformer: rope_rotate_half_tiling.cpp, CheckShapeSupport)
    if (x.size(-1) % (mode == kQuarter ? 4 : 2) != 0)
        fail(
            FaultKind::TilingRefused,
            "input last dim (head_dim) must be an even number: parameter {} is {}, its last size must be a multiple of "
            "{} in mode {}",
            x.parameter(), describe(x), mode == kQuarter ? 4 : 2, mode);
}

// (ops-transformer: rope_rotate_half_tiling.cpp, D_LENGTH_LIMIT, and rope_half_grad_tiling.cpp, D_THRESHOLD)
void check_rotates_half(const Operand &x, int64_t mode) {
    tiled(mode != kHalf || x.size(-1) <= 896 || x.numel() == 0,
          "parameter {} is {}: its last size is {}, allowed is at most 896 in mode 0", x.parameter(), describe(x),
          x.size(-1));
}

// (ops-transformer: apply_rotary_pos_emb_tiling.cpp, CheckParams)
void check_rotates_both(const Operand &query, const Operand &key, const Operand &cos, int64_t layout) {
    tiled(layout == 1, "layout is not one: parameter layout is {}", layout);
    for (const Operand *operand : {&query, &key, &cos})
        tiled(operand->dim() == 4 && operand->numel() > 0, "parameter {} is {}: allowed are four dimensions, not empty",
              operand->parameter(), describe(*operand));
    for (const int64_t dim : {0, 1})
        tiled(query.size(dim) == key.size(dim) && query.size(dim) == cos.size(dim),
              "all input dim{} must equal: parameters {}, {} and {} are {}, {} and {}", dim, query.parameter(),
              key.parameter(), cos.parameter(), describe(query), describe(key), describe(cos));
    tiled(query.size(3) == 128, "last dims is not 128: parameter {} is {}", query.parameter(), describe(query));
    tiled(cos.size(2) == 1, "cos dim2 is not one: parameter {} is {}", cos.parameter(), describe(cos));
}

void rotary(const at::Tensor &x, const at::Tensor &cos, const at::Tensor &sin, int64_t mode, at::Tensor &out) {
    if (x.numel() == 0) return;
    const at::Tensor sorted = sorted_pairs(widened(x), mode);
    out.copy_((sorted * widened(cos)).addcmul_(rotated(sorted, mode), widened(sin)));
}

int64_t named(const std::string &mode) {
    if (mode == "half") return kHalf;
    if (mode == "interleave") return kInterleave;
    if (mode == "quarter") return kQuarter;
    fail(FaultKind::InvalidArgument, "parameter rotaryMode is \"{}\", allowed are half, interleave and quarter", mode);
}

void check_no_rotation(const Operand &rotate) {
    if (rotate.defined())
        fail(FaultKind::InvalidArgument, "parameter rotate is {}: the virtual NPU has no rotation by a matrix",
             describe(rotate));
}

void rotary_backward(const at::Tensor &grad, const at::Tensor &cos, const at::Tensor &sin, const at::Tensor &x,
                     int64_t mode, at::Tensor &x_grad, at::Tensor &cos_grad, at::Tensor &sin_grad) {
    const at::Tensor wide = widened(grad);
    if (grad.numel() > 0)
        x_grad.copy_(unsorted_pairs((wide * widened(cos)).sub_(rotated(wide * widened(sin), mode)), mode));
    if (!x.defined()) {  // torch_npu passes x only where cos or sin want a gradient
        cos_grad.zero_();
        sin_grad.zero_();
        return;
    }
    const at::Tensor sorted = sorted_pairs(widened(x), mode);
    cos_grad.copy_((wide * sorted).sum_to_size(cos.sizes()));
    sin_grad.copy_((wide * rotated(sorted, mode)).sum_to_size(sin.sizes()));
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnRotaryPositionEmbedding, check_rotary(x, cos, sin, mode, out);
   check_rotates_half(x, mode), rotary(x, cos, sin, mode, out))
OP(aclnnRotaryPositionEmbeddingV2, optional(rotate); check_no_rotation(rotate); check_rotary(x, cos, sin, mode, out);
   check_rotates_half(x, mode), rotary(x, cos, sin, mode, out))
OP(aclnnRotaryPositionEmbeddingGrad, check_rotary(dy, cos, sin, mode, dxOut); check_rotates_half(dy, mode);
   same_shape(dcosOut, cos); same_shape(dsinOut, sin);
   if (xOptional.defined()) same_shape(xOptional, dy),
   rotary_backward(dy, cos, sin, xOptional, mode, dxOut, dcosOut, dsinOut))

// Query and key at once, in place; half mode, cos and sin broadcast over the heads.
OP(aclnnApplyRotaryPosEmb, check_rotary(queryRef, cos, sin, kHalf, queryRef);
   check_rotary(keyRef, cos, sin, kHalf, keyRef);
   check_rotates_both(queryRef, keyRef, cos, layout), rotary(queryRef, cos, sin, kHalf, queryRef);
   rotary(keyRef, cos, sin, kHalf, keyRef))
OP(aclnnApplyRotaryPosEmbV2, check_rotary(queryRef, cos, sin, named(rotaryMode), queryRef);
   check_rotary(keyRef, cos, sin, named(rotaryMode), keyRef);
   check_rotates_both(queryRef, keyRef, cos, layout), rotary(queryRef, cos, sin, named(rotaryMode), queryRef);
   rotary(keyRef, cos, sin, named(rotaryMode), keyRef))
