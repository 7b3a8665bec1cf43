// Products of int8 rows with the weights of the expert each group of rows goes to, and what follows them in one kernel:
// SwiGLU quantised anew, or the sum of each token's rows.
#include "opapi/aclnn/format.h"
#include "opapi/quantization/quantization.h"

namespace vnpu::opapi {
namespace {

using namespace quantization;

std::vector<int64_t> bounds(const at::Tensor &groups, bool counts, int64_t rows) {
    const at::Tensor ends = (counts ? groups.cumsum(0) : groups).to(at::kLong).contiguous();
    std::vector<int64_t> found{0};
    for (int64_t g = 0; g < ends.numel(); ++g) {
        const int64_t end = ends.const_data_ptr<int64_t>()[g];
        TORCH_CHECK(end >= found.back() && end <= rows, "group ", g, " ends at ", end, ", outside of ", found.back(),
                    " to ", rows);
        found.push_back(end);
    }
    return found;
}

// Sums of int8 products are exact in double; scaled in float32.
at::Tensor scaled_product(const at::Tensor &x, const at::Tensor &weight, const at::Tensor &scale,
                          const at::Tensor &row_scale) {
    at::Tensor value = at::matmul(x.to(at::kDouble), weight.to(at::kDouble)).to(at::kFloat) * widened(scale);
    return row_scale.defined() ? value * widened(row_scale).reshape({-1, 1}) : value;
}

// --- SwiGLU (ops-transformer: aclnn_grouped_matmul_swiglu_quant.cpp)

void check_swiglu(const Operand &x, const Operand &weight, const Operand &scale, const Operand &row_scale,
                  const Operand &groups, const Operand &out, const Operand &out_scale) {
    for (const Operand *each : {&x, &weight, &scale, &row_scale, &groups, &out, &out_scale}) require(*each);
    if (weight.scalar_type() != at::kChar)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, the virtual NPU offers int8", weight.parameter(),
             describe(weight));
    dtype(x, {at::kChar});
    rank(x, {2});
    rank(weight, {3});
    const int64_t experts = weight.size(0), columns = weight.size(2);
    if (columns % 2 != 0)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, its last size must be even", weight.parameter(),
             describe(weight));
    shape(weight, {experts, x.size(1), columns});
    shape(scale, {experts, columns});
    shape(row_scale, {x.size(0)});
    shape(groups, {groups.numel()});
    if (groups.numel() > experts)
        fail(FaultKind::InvalidArgument, "parameter groupList is {}, expected at most {} groups", describe(groups),
             experts);
    dtype(groups, {at::kLong});
    dtype(out, {at::kChar});
    dtype(out_scale, {at::kFloat});
    shape(out, {x.size(0), columns / 2});
    shape(out_scale, {x.size(0)});
}

// Rows behind the last group are not written.
void swiglu(const at::Tensor &x, const at::Tensor &weight, const at::Tensor &scale, const at::Tensor &row_scale,
            const at::Tensor &groups, bool counts, at::Tensor &out, at::Tensor &out_scale) {
    const std::vector<int64_t> ends = bounds(groups, counts, x.size(0));
    for (int64_t g = 0; g < groups.numel(); ++g) {
        const int64_t begin = ends[static_cast<size_t>(g)], length = ends[static_cast<size_t>(g) + 1] - begin;
        if (length == 0) continue;
        const std::vector<at::Tensor> half =
            scaled_product(x.narrow(0, begin, length), weight[g], scale[g], row_scale.narrow(0, begin, length))
                .chunk(2, 1);
        at::Tensor value = at::silu(half[0]) * half[1];
        out_scale.narrow(0, begin, length).copy_(dynamic(value, {-1}, range(at::kChar), true).scale.view(-1));
        at::Tensor rows = out.narrow(0, begin, length);
        saturate(rows, value);
    }
}

const Operand &only(const Operands &list) {
    if (list.size() != 1)
        fail(FaultKind::InvalidArgument, "parameter {} has {} tensors, expected one", list.parameter(), list.size());
    return list.front();
}

void unused(std::initializer_list<const Operand *> operands) {
    for (const Operand *each : operands)
        if (each->defined() && each->numel() > 0)
            fail(FaultKind::InvalidArgument, "parameter {} is {}, the virtual NPU offers null", each->parameter(),
                 describe(*each));
}

void given(std::initializer_list<const Operand *> operands) {
    for (const Operand *each : operands)
        if (!each->defined())
            fail(FaultKind::NullArgument, "parameter {} is null, which weights in rows do not allow",
                 each->parameter());
}

void first_modes(int64_t dequant, int64_t quant, int64_t list_type) {
    if (dequant != 0 || quant != 0)
        fail(FaultKind::InvalidArgument,
             "dequantMode is {} and quantMode {}, the virtual NPU offers 0 and 0 (a scale "
             "for each column and row)",
             dequant, quant);
    if (list_type != 0 && list_type != 1)
        fail(FaultKind::InvalidArgument, "parameter groupListType is {}, allowed are 0 (ends) and 1 (counts)",
             list_type);
}

// --- sums over a token's rows (ops-transformer: aclnn_grouped_matmul_finalize_routing.cpp)

struct Routed {
    Operand &x, &weight, &scale, &bias, &offset, &row_scale, &groups, &shared, &logit, &row;
    int64_t type;
    double shared_weight;
    int64_t shared_offset;
    bool transposed_x, transposed_weight;
    int64_t list_type;
    Operand &out;
};

bool four_bits(const Routed &r) { return r.weight.scalar_type() == at::kInt; }

void check_routed(const Routed &r) {
    for (const Operand *each : {&r.x, &r.weight, &r.scale, &r.groups, &r.row, &r.out}) require(*each);
    if (r.shared.defined() != r.logit.defined() || (four_bits(r) && !r.row_scale.defined()))
        fail(FaultKind::NullArgument, "{} and {} have to be given both or neither, and {} beside weights of 4 bits",
             r.shared.parameter(), r.logit.parameter(), r.row_scale.parameter());
    dtype(r.x, {at::kChar});
    dtype(r.weight, {at::kChar, at::kInt});
    rank(r.x, {2});
    rank(r.weight, {3});
    rank(r.out, {2});
    if (r.type != 0 || r.transposed_x || r.transposed_weight || r.list_type != 1)
        fail(FaultKind::InvalidArgument,
             "dtype is {}, transposeX1 {}, transposeX2 {} and groupListType {}: CANN offers 0, false, false and 1 "
             "(counts)",
             r.type, r.transposed_x, r.transposed_weight, r.list_type);
    const at::DimVector weight = unpacked_sizes(r.weight);
    const int64_t experts = weight[0], inner = r.x.size(1), columns = weight[2], rows = r.x.size(0);
    if (weight[1] != inner)
        fail(FaultKind::InvalidArgument, "parameter x2 is {}, expected {} rows as x1, {}", describe(r.weight), inner,
             describe(r.x));
    if (four_bits(r)) {
        dtype(r.scale, {at::kLong});
        rank(r.scale, {3});
        shape(r.scale, {experts, r.scale.size(1), columns});
        if (r.scale.size(1) < 1 || inner % r.scale.size(1) != 0)
            fail(FaultKind::InvalidArgument, "parameter scale is {}, its groups do not divide {} rows",
                 describe(r.scale), inner);
        if (r.offset.defined()) same_shape(r.offset, r.scale);
        if (r.bias.defined()) {
            dtype(r.bias, {at::kFloat});
            shape(r.bias, {experts, columns});
        }
        if (inner % 64 != 0 || columns % 64 != 0 || inner < 128)
            fail(FaultKind::InvalidArgument, "parameter x2 is {}, allowed are multiples of 64, and 128 rows at least",
                 describe(r.weight));
    } else {
        dtype(r.scale, {at::kFloat, at::kBFloat16, at::kLong});
        if (r.scale.dim() == 3)
            shape(r.scale, {experts, 1, columns});
        else
            shape(r.scale, {experts, columns});
        if (r.bias.defined()) {
            dtype(r.bias, {at::kBFloat16});
            shape(r.bias, {experts, columns});
        }
        if (inner % 16 != 0 || columns % 32 != 0 || columns < 256)
            fail(FaultKind::InvalidArgument,
                 "parameter x2 is {}, allowed are a multiple of 16 rows and one of 32 columns, "
                 "at least 256",
                 describe(r.weight));
    }
    for (const Operand *each : {&r.row_scale, &r.logit, &r.row})
        if (each->defined()) shape(*each, {rows});
    shape(r.groups, {experts});
    if (r.out.size(1) != columns || r.out.size(0) > rows)
        fail(FaultKind::InvalidArgument, "parameter out is {}, expected [at most {}, {}]", describe(r.out), rows,
             columns);
    if (r.shared_offset < 0)
        fail(FaultKind::InvalidArgument, "parameter sharedInputOffset is {}, allowed is >= 0", r.shared_offset);
    if (r.shared.defined() &&
        (r.shared.dim() != 2 || r.shared.size(1) != columns || r.shared.size(0) + r.shared_offset > r.out.size(0)))
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected [at most {}, {}] behind row {}",
             r.shared.parameter(), describe(r.shared), r.out.size(0), columns, r.shared_offset);
}

// A scale of 64 bits holds a float32 in its lower half.
at::Tensor real_scale(const at::Tensor &scale) {
    if (scale.scalar_type() != at::kLong) return widened(scale);
    return scale.contiguous().bitwise_and(0xFFFFFFFFLL).to(at::kInt).view(at::kFloat);
}

// Weights of 4 bits: the kernel multiplies the halves of each int8, of which it takes 8, so that bias, which the caller
// makes of the weights, has to bring that back. A scale for each group of rows of the weight.
at::Tensor split_product(const Routed &r, const at::Tensor &x, const at::Tensor &weight, int64_t expert) {
    const at::Tensor scale = real_scale(r.scale)[expert];
    const int64_t count = scale.size(0), each = x.size(1) / count;
    at::Tensor value = at::zeros({x.size(0), weight.size(1)});
    for (int64_t j = 0; j < count; ++j) {
        const at::Tensor part = x.narrow(1, j * each, each).to(at::kDouble);
        value += at::matmul(part - 8, weight.narrow(0, j * each, each).to(at::kDouble)).to(at::kFloat) * scale[j];
        if (r.offset.defined()) value += part.sum(1, true).to(at::kFloat) * r.offset[expert][j];
    }
    return r.bias.defined() ? value + r.bias[expert] : value;
}

void routed(const Routed &r, const at::Tensor &stacked) {
    const at::Tensor weights = unpacked_int4(stacked);
    const std::vector<int64_t> ends = bounds(r.groups, true, r.x.size(0));
    at::Tensor sum = at::zeros(r.out.sizes());
    for (int64_t g = 0; g < r.groups.numel(); ++g) {
        const int64_t begin = ends[static_cast<size_t>(g)], length = ends[static_cast<size_t>(g) + 1] - begin;
        if (length == 0) continue;
        const at::Tensor x = r.x.narrow(0, begin, length);
        const auto rows = [&](const at::Tensor &list) { return widened(list.narrow(0, begin, length)).unsqueeze(1); };
        at::Tensor value;
        if (four_bits(r)) {
            value = split_product(r, x, weights[g], g);
        } else {
            value = scaled_product(x, weights[g], real_scale(r.scale)[g].reshape({-1}), {});
            if (r.bias.defined()) value = value + widened(r.bias)[g];
        }
        for (const Operand *each : {&r.row_scale, &r.logit})
            if (each->defined()) value = value * rows(*each);
        sum.index_add_(0, r.row.narrow(0, begin, length).to(at::kLong), value);
    }
    if (r.shared.defined()) sum.narrow(0, r.shared_offset, r.shared.size(0)).add_(widened(r.shared), r.shared_weight);
    r.out.copy_(sum);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnGroupedMatmulSwigluQuantWeightNZ, optional(bias, offset, outputOffset); fractal_nz(weight);
   unused({&bias, &offset}); check_swiglu(x, weight, weightScale, xScale, groupList, output, outputScale),
                             swiglu(x, unpacked(weight), weightScale, xScale, groupList, false, output, outputScale))
#define SWIGLU_V2(NAME, LAID_OUT)                                                                              \
    OP(NAME, optional(bias, smoothScale); LAID_OUT; first_modes(dequantMode, quantMode, groupListType);        \
       unused({&bias, &smoothScale});                                                                          \
       check_swiglu(x, only(weight), only(weightScale), xScale, groupList, output, outputScale),               \
       swiglu(x, unpacked(weight.front()), weightScale.front(), xScale, groupList, groupListType == 1, output, \
              outputScale))

SWIGLU_V2(aclnnGroupedMatmulSwigluQuantV2, (void)0)
SWIGLU_V2(aclnnGroupedMatmulSwigluQuantWeightNzV2, fractal_nz(weight))

#define TAIL(SHARED, LOGIT, ROW) \
    SHARED, LOGIT, ROW, dtype, sharedInputWeight, sharedInputOffset, transposeX1, transposeX2, groupListType, out
#define PLAIN(NONE) {x1, x2, scale, bias, NONE, pertokenScaleOptional, groupList, TAIL(sharedInput, logit, rowIndex)}
#define OPTIONAL(SCALE, BIAS, GROUPS, ...) \
    {x1, x2, SCALE, BIAS, offsetOptional, pertokenScaleOptional, GROUPS, TAIL(__VA_ARGS__)}
#define ROUTED_V2 \
    OPTIONAL(scaleOptional, biasOptional, groupListOptional, sharedInputOptional, logitOptional, rowIndexOptional)
#define ROUTED_NZ_V2 OPTIONAL(scale, bias, groupList, sharedInput, logit, rowIndex)

OP(aclnnGroupedMatmulFinalizeRoutingWeightNz, optional(bias, sharedInput, logit); fractal_nz(x2);
   Operand none(nullptr, "offset"); check_routed(PLAIN(none)), Operand none(nullptr, "offset");
   routed(PLAIN(none), unpacked(x2)))
OP(aclnnGroupedMatmulFinalizeRoutingWeightNzV2, optional(bias, sharedInput, logit); fractal_nz(x2);
   unused({&antiquantScaleOptional, &antiquantOffsetOptional});
   check_routed(ROUTED_NZ_V2), routed(ROUTED_NZ_V2, unpacked(x2)))
// These are for weights of 4 bits in rows, and want every operand but two.
#define ROUTED_ROWS(NAME)                                                                                      \
    OP(NAME, unused({&antiquantScaleOptional, &antiquantOffsetOptional}); require(x2);                         \
       given({&scaleOptional, &biasOptional, &pertokenScaleOptional, &groupListOptional, &sharedInputOptional, \
              &logitOptional, &rowIndexOptional});                                                             \
       vnpu::opapi::dtype(x2, {at::kInt}); check_routed(ROUTED_V2), routed(ROUTED_V2, x2))

ROUTED_ROWS(aclnnGroupedMatmulFinalizeRoutingV2)
ROUTED_ROWS(aclnnGroupedMatmulFinalizeRoutingV3)
