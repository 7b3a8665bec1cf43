// Products of int8 rows with the weights of the expert each group of rows goes to, and what follows them in one kernel:
// SwiGLU quantised anew, or the sum of each token's rows.
#include "opapi/aclnn/format.h"
#include "opapi/matmul/four_bits.h"

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

// --- SwiGLU (ops-transformer: aclnn_grouped_matmul_swiglu_quant.cpp, grouped_matmul_swiglu_quant_a8w4_msd_*.h)

struct Swiglu {
    const Operand &x, &weight, &scale, &assist, &row_scale, &smooth, &groups;
    bool counts;
    Operand &out, &out_scale;
};

// [experts, rows, columns] of weights that may be given as they are stored in FRACTAL_NZ, block by block.
at::DimVector weight_sizes(const at::Tensor &weight) {
    const at::DimVector sizes = unpacked_sizes(weight);
    return sizes.size() == 5 ? at::DimVector{sizes[0], sizes[2] * sizes[3], sizes[1] * sizes[4]} : sizes;
}
at::Tensor weight_rows(const at::Tensor &weight) {
    const at::Tensor values = unpacked_int4(weight);
    return values.dim() == 5 ? values.permute({0, 2, 3, 1, 4}).reshape(weight_sizes(weight)) : values;
}

void check_swiglu(const Swiglu &s) {
    for (const Operand *each : {&s.x, &s.weight, &s.scale, &s.row_scale, &s.groups}) require(*each);
    require(s.out);
    require(s.out_scale);
    const bool four_bits = packed(s.weight);
    dtype(s.weight, {at::kChar, at::kInt});
    dtype(s.x, four_bits ? DTypes{at::kChar, at::kInt} : DTypes{at::kChar});
    rank(s.x, {2});
    rank(s.weight, {3, 5});
    if (s.weight.dim() == 5 && (s.weight.size(3) != 16 || s.weight.size(4) != (four_bits ? 8 : 32)))
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected blocks of [16, {}] in its last dimensions",
             s.weight.parameter(), describe(s.weight), four_bits ? 8 : 32);
    const at::DimVector sizes = weight_sizes(s.weight), x = unpacked_sizes(s.x);
    const int64_t experts = sizes[0], inner = x[1], columns = sizes[2], rows = s.x.size(0);
    if (sizes[1] != inner || columns % 2 != 0)
        fail(FaultKind::InvalidArgument,
             "parameter {} is {}, expected {} rows as {} has, and an even number of columns", s.weight.parameter(),
             describe(s.weight), inner, describe(s.x));
    dtype(s.scale, four_bits ? DTypes{at::kLong, at::kUInt64} : kNative);
    if (four_bits && s.scale.dim() == 3) {
        shape(s.scale, {experts, s.scale.size(1), columns});
        if (s.scale.size(1) < 1 || inner % s.scale.size(1) != 0)
            fail(FaultKind::InvalidArgument, "parameter {} is {}, its groups do not divide {} rows",
                 s.scale.parameter(), describe(s.scale), inner);
    } else {
        shape(s.scale, {experts, columns});
    }
    if (four_bits && !packed(s.x)) {
        if (!s.assist.defined())
            fail(FaultKind::NullArgument, "parameter {} is null, which int8 rows with weights of 4 bits do not allow",
                 s.assist.parameter());
        dtype(s.assist, {at::kFloat});
        shape(s.assist, {experts, columns});
    } else if (s.assist.defined() && s.assist.numel() > 0) {
        fail(FaultKind::InvalidArgument, "parameter {} is {}, the virtual NPU offers null beside these dtypes",
             s.assist.parameter(), describe(s.assist));
    }
    if (s.smooth.defined()) {
        if (!packed(s.x))
            fail(FaultKind::InvalidArgument, "parameter {} is {}, the virtual NPU offers null beside x in int8",
                 s.smooth.parameter(), describe(s.smooth));
        dtype(s.smooth, {at::kFloat});
        shape(s.smooth, {experts, columns / 2});
    }
    shape(s.row_scale, {rows});
    shape(s.groups, {s.groups.numel()});
    if (s.groups.numel() > experts)
        fail(FaultKind::InvalidArgument, "parameter groupList is {}, expected at most {} groups", describe(s.groups),
             experts);
    dtype(s.groups, {at::kLong});
    dtype(s.out, {at::kChar});
    dtype(s.out_scale, {at::kFloat});
    shape(s.out, {rows, columns / 2});
    shape(s.out_scale, {rows});
}

// Rows behind the last group are not written. `smooth` is a factor of what is quantised, as DequantSwigluQuant has it:
// the second version's sources are not public.
void swiglu(const Swiglu &s, const at::Tensor &stacked) {
    const at::Tensor weight = weight_rows(stacked), x = unpacked_int4(s.x), scale = real_scale(s.scale);
    const bool split = packed(s.weight) && !packed(s.x);
    const std::vector<int64_t> ends = bounds(s.groups, s.counts, x.size(0));
    for (int64_t g = 0; g < s.groups.numel(); ++g) {
        const int64_t begin = ends[static_cast<size_t>(g)], length = ends[static_cast<size_t>(g) + 1] - begin;
        if (length == 0) continue;
        const at::Tensor part = x.narrow(0, begin, length), factors = s.row_scale.narrow(0, begin, length);
        at::Tensor product;
        if (split || scale.dim() == 3) {
            const at::Tensor groups = scale.dim() == 3 ? scale[g] : scale[g].unsqueeze(0);
            product =
                split_product(split ? part : part + 8, weight[g], groups, {}, split ? s.assist[g] : at::Tensor()) *
                widened(factors).reshape({-1, 1});
        } else {
            product = scaled_product(part, weight[g], scale[g], factors);
        }
        const std::vector<at::Tensor> half = product.chunk(2, 1);
        at::Tensor value = at::silu(half[0]) * half[1];
        if (s.smooth.defined()) value = value * s.smooth[g];
        s.out_scale.narrow(0, begin, length).copy_(dynamic(value, {-1}, range(at::kChar), true).scale.view(-1));
        at::Tensor rows = s.out.narrow(0, begin, length);
        saturate(rows, value);
    }
}

const Operand &only(const Operands &list) {
    if (list.size() != 1)
        fail(FaultKind::InvalidArgument, "parameter {} has {} tensors, expected one", list.parameter(), list.size());
    return list.front();
}

void check_unused(std::initializer_list<const Operand *> operands) {
    for (const Operand *each : operands)
        if (each->defined() && each->numel() > 0)
            fail(FaultKind::InvalidArgument, "parameter {} is {}, the virtual NPU offers null", each->parameter(),
                 describe(*each));
}

void check_given(std::initializer_list<const Operand *> operands) {
    for (const Operand *each : operands)
        if (!each->defined())
            fail(FaultKind::NullArgument, "parameter {} is null, which weights in rows do not allow",
                 each->parameter());
}

const Operand &only_or(const Operands &list, const Operand &none) { return list.size() == 0 ? none : only(list); }

void check_modes(int64_t dequant, int64_t quant, int64_t list_type, const Operand &scale) {
    if (dequant != (scale.dim() == 3) || quant != 0)
        fail(FaultKind::InvalidArgument,
             "dequantMode is {} and quantMode {}, and parameter {} is {}: the virtual NPU offers 0 (a scale for each "
             "column) or, with three dimensions, 1 (for each group of rows, too), and 0 (a scale for each row)",
             dequant, quant, scale.parameter(), describe(scale));
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
            value =
                split_product(x, weights[g], real_scale(r.scale)[g], r.offset.defined() ? r.offset[g] : at::Tensor(),
                              r.bias.defined() ? r.bias[g] : at::Tensor());
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

// The first version has what is added in the place of its bias.
#define SWIGLU {x, weight, weightScale, bias, xScale, none, groupList, false, output, outputScale}
OP(aclnnGroupedMatmulSwigluQuantWeightNZ, optional(bias, offset, outputOffset); fractal_nz(weight);
   check_unused({&offset}); Operand none(nullptr, "smoothScale");
   check_swiglu(SWIGLU), Operand none(nullptr, "smoothScale"); swiglu(SWIGLU, unpacked(weight)))
#define SWIGLU_V2                                                                \
    {x,      only(weight), only(weightScale), only_or(weightAssistMatrix, none), \
     xScale, smoothScale,  groupList,         groupListType == 1,                \
     output, outputScale}
#define SWIGLU_LISTS(NAME, LAID_OUT)                                                                                 \
    OP(NAME, optional(weightAssistMatrix, bias, smoothScale); LAID_OUT; Operand none(nullptr, "weightAssistMatrix"); \
       check_modes(dequantMode, quantMode, groupListType, only(weightScale)); check_unused({&bias});                 \
       check_swiglu(SWIGLU_V2), Operand none(nullptr, "weightAssistMatrix");                                         \
       swiglu(SWIGLU_V2, unpacked(weight.front())))

SWIGLU_LISTS(aclnnGroupedMatmulSwigluQuantV2, (void)0)
SWIGLU_LISTS(aclnnGroupedMatmulSwigluQuantWeightNzV2, fractal_nz(weight))

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
   check_unused({&antiquantScaleOptional, &antiquantOffsetOptional});
   check_routed(ROUTED_NZ_V2), routed(ROUTED_NZ_V2, unpacked(x2)))
// These are for weights of 4 bits in rows, and want every operand but two.
#define ROUTED_ROWS(NAME)                                                                                            \
    OP(NAME, check_unused({&antiquantScaleOptional, &antiquantOffsetOptional}); require(x2);                         \
       check_given({&scaleOptional, &biasOptional, &pertokenScaleOptional, &groupListOptional, &sharedInputOptional, \
                    &logitOptional, &rowIndexOptional});                                                             \
       vnpu::opapi::dtype(x2, {at::kInt}); check_routed(ROUTED_V2), routed(ROUTED_V2, x2))

ROUTED_ROWS(aclnnGroupedMatmulFinalizeRoutingV2)
ROUTED_ROWS(aclnnGroupedMatmulFinalizeRoutingV3)
