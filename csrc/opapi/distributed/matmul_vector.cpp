// Matrix products fused with a collective that the vector cores carry out, of floating-point operands and of int8: what
// 910B and A3 have of the second versions, whatever commMode says (ops-transformer: aclnn_all_gather_matmul_v2.cpp,
// aclnn_matmul_reduce_scatter_v2.cpp, and the pages of both).
#include "opapi/distributed/product.h"

namespace vnpu::opapi {
namespace {

struct Scales {
    const Operand &rows, &columns;
};

void check_operands(const Operand &x1, const Operand &x2, const Operand &bias, const Scales &scales,
                    const Operand &quantized, int64_t block, int64_t group, int64_t stream, const Operand &output,
                    const Operand &largest) {
    dtype(x1, {at::kHalf, at::kBFloat16, at::kChar});
    dtype(output, {at::kHalf, at::kBFloat16});
    same_dtype(x2, x1);
    rank(x1, {2});
    rank(x2, {2});
    check_stops_on_failure(stream);
    check_same_inner(x1, x2);
    on_chip(block == 0 && group == 0, "parameters blockSize and groupSize are {} and {}, allowed is 0", block, group);
    for (const Operand *tensor : {&bias, &quantized})
        on_chip(!tensor->defined(), "parameter {} is given, allowed is null", tensor->parameter());
    on_chip(!largest.defined() || largest.numel() == 0, "parameter {} is {}, allowed is null or empty",
            largest.parameter(), largest.defined() ? describe(largest) : "");
    on_chip(!transposed(x1), "parameter x1 is {} and transposed", describe(x1));
    tiled(x1.numel() > 0 && x2.numel() > 0, "parameters x1 and x2 are {} and {}, of which none may be empty",
          describe(x1), describe(x2));
    if (x1.scalar_type() != at::kChar) {
        same_dtype(output, x1);
        for (const Operand *scale : {&scales.rows, &scales.columns})
            on_chip(!scale->defined(), "parameter {} is given, but x1 is {}", scale->parameter(), describe(x1));
        return;
    }
    dtype(scales.columns, {at::kFloat, at::kLong});
    on_chip(scales.columns.scalar_type() == at::kFloat || output.scalar_type() == at::kHalf,
            "parameter x2Scale is {}, which output, {}, does not allow", describe(scales.columns), describe(output));
    tiled(scales.columns.numel() == x2.size(1), "parameter x2Scale is {}, expected one for each of {} columns",
          describe(scales.columns), x2.size(1));
    if (scales.rows.defined()) {
        dtype(scales.rows, {at::kFloat});
        tiled(scales.rows.numel() == x1.size(0), "parameter x1Scale is {}, expected one for each of {} rows",
              describe(scales.rows), x1.size(0));
    }
}

at::Tensor factor(const at::Tensor &scale) {
    if (scale.scalar_type() == at::kFloat) return scale.flatten();
    return scale.contiguous().bitwise_and(0xFFFFFFFFLL).to(at::kInt).view(at::kFloat).flatten();
}

// `rows` are the scales of these rows of x1. Sums of int8 products are exact in double.
at::Tensor product(const at::Tensor &x1, const at::Tensor &x2, const at::Tensor &rows, const at::Tensor &columns) {
    if (x1.scalar_type() != at::kChar) return at::mm(widened(x1), widened(x2));
    at::Tensor value = at::mm(x1.to(at::kDouble), x2.to(at::kDouble)) * factor(columns);
    return rows.defined() ? value * rows.reshape({-1, 1}) : value;
}

void check_gathered(const Operand &x1, const Operand &x2, const std::string &group, int64_t index, int64_t turns,
                    const Operand &output, const Operand &gathered) {
    require(gathered);
    on_chip(x2.is_contiguous() || transposed(x2), "parameter x2 is {} and neither contiguous nor transposed",
            describe(x2));
    tiled(index == 0, "parameter gatherIndex is {}, allowed is 0 (x1)", index);
    check_one_turn(turns);
    const int64_t rows = x1.size(0) * ranks_of(group, {2, 4, 8}, {2, 4, 8});
    shape(output, {rows, x2.size(1)});
    if (gathered.numel() == 0) return;
    same_dtype(gathered, x1);
    shape(gathered, {rows, x1.size(1)});
}

void gather(const Group &ranks, const at::Tensor &x1, const at::Tensor &x2, const Scales &scales, at::Tensor &output,
            at::Tensor &gathered) {
    const at::Tensor all = ranks.all_gather(x1);
    if (gathered.numel() != 0) gathered.copy_(all);
    const at::Tensor rows = scales.rows.defined() ? ranks.all_gather(scales.rows.reshape({-1})) : at::Tensor();
    output.copy_(product(all, x2, rows, scales.columns));
}

void check_scattered(const Operand &x1, const Operand &x2, const std::string &group, const std::string &reduction,
                     int64_t turns, const Operand &output) {
    check_long_inner(x1);
    check_scattered_rows(x1, x2, group, reduction, turns, {2, 4, 8}, output);
}

}  // namespace
}  // namespace vnpu::opapi

#define SCALES {x1Scale, x2Scale}

RANKS_OP(aclnnAllGatherMatmulV2, optional(bias, x1Scale, x2Scale, quantScale, amaxOut);
         check_operands(x1, x2, bias, SCALES, quantScale, blockSize, groupSize, streamMode, output, amaxOut);
         check_gathered(x1, x2, group, gatherIndex, commTurn, output, gatherOut),
         gather(Group("aclnnAllGatherMatmulV2", group), x1, x2, SCALES, output, gatherOut))
RANKS_OP(aclnnMatmulReduceScatterV2, optional(bias, x1Scale, x2Scale, quantScale, amaxOutOptional);
         check_operands(x1, x2, bias, SCALES, quantScale, blockSize, groupSize, streamMode, output, amaxOutOptional);
         check_scattered(x1, x2, group, reduceOp, commTurn, output),
         Group("aclnnMatmulReduceScatterV2", group)
             .reduce_scatter(output, product(x1, x2, x1Scale, x2Scale).to(output.scalar_type())))
