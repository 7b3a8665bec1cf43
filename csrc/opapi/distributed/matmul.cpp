// Matrix products fused with a collective, of floating-point operands (product.h).
#include "opapi/aclnn/format.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/precision.h"
#include "opapi/distributed/product.h"

namespace vnpu::opapi {
namespace {

at::Tensor product(const at::Tensor &x1, const at::Tensor &x2, const at::Tensor &bias) {
    at::Tensor made = at::matmul(widened(x1), widened(x2));
    return bias.defined() ? made.add_(widened(bias)) : made;
}

// --- every rank's rows

void check_rows(const Operand &x1, const Operand &x2, const Operand &bias, int64_t mode) {
    rank(x1, {2});
    rank(x2, {2});
    check_stops_on_failure(mode);
    check_same_inner(x1, x2);
    check_bias(bias, x2);
    if (x1.size(1) == 0)
        fail(FaultKind::InvalidArgument, "parameter x1 is {}, there is nothing to sum over", describe(x1));
    if (x1.size(0) == 0) return;
    on_chip(!transposed(x1), "parameter x1 is {} and transposed", describe(x1));
    check_long_inner(x1);
}

// `gathered` is empty where it is not asked for.
void check_all_gather(const Operand &x1, const Operand &x2, const Operand &bias, const std::string &group,
                      int64_t index, int64_t turns, int64_t mode, const Operand &output, const Operand &gathered) {
    required(x1, x2, output, gathered);
    check_rows(x1, x2, bias, mode);
    if (x1.size(0) == 0) return;
    tiled(index == 0, "parameter gatherIndex is {}, allowed is 0 (x1)", index);
    check_one_turn(turns);
    const int64_t rows = x1.size(0) * ranks_of(group, {2, 4, 8}, {2, 4, 8, 16, 32});
    shape(output, {rows, x2.size(1)});
    if (gathered.numel() != 0) {
        same_dtype(gathered, x1);
        shape(gathered, {rows, x1.size(1)});
    }
}

void all_gather(const Group &ranks, const at::Tensor &x1, const at::Tensor &x2, const at::Tensor &bias,
                at::Tensor &output, at::Tensor &gathered) {
    const at::Tensor all = ranks.all_gather(x1);
    if (gathered.numel() != 0) gathered.copy_(all);
    output.copy_(product(all, x2, bias));
}

void check_reduce_scatter(const Operand &x1, const Operand &x2, const Operand &bias, const std::string &group,
                          const std::string &reduction, int64_t turns, int64_t mode, const Operand &output) {
    required(x1, x2, output);
    check_rows(x1, x2, bias, mode);
    if (x1.size(0) == 0 || x2.size(1) == 0) return;
    check_scattered_rows(x1, x2, group, reduction, turns, {2, 4, 8, 16, 32}, output);
}

}  // namespace
}  // namespace vnpu::opapi

RANKS_OP(aclnnMatmulAllReduce, optional(bias); check_not_a3("aclnnMatmulAllReduce");
         check_sum(x1, x2, bias, Operand(nullptr, "x3"), group, reduceOp, commTurn, streamMode, output),
         all_reduce(Group("aclnnMatmulAllReduce", group), product(x1, x2, bias), {}, output))
RANKS_OP(aclnnMatmulAllReduceV2, optional(bias, x3); check_not_a3("aclnnMatmulAllReduceV2");
         check_sum(x1, x2, bias, x3, group, reduceOp, commTurn, streamMode, output),
         all_reduce(Group("aclnnMatmulAllReduceV2", group), product(x1, x2, bias), x3, output))
RANKS_OP(aclnnMatmulAllReduceV3, optional(bias, x3); check_not_a3("aclnnMatmulAllReduceV3");
         check_by_processor(commMode);
         check_sum(x1, x2, bias, x3, group, reduceOp, commTurn, streamMode, output),
         all_reduce(Group("aclnnMatmulAllReduceV3", group), product(x1, x2, bias), x3, output))
RANKS_OP(aclnnAllGatherMatmul, optional(bias);
         check_all_gather(x1, x2, bias, group, gatherIndex, commTurn, streamMode, output, gatherOut),
         if (x1.size(0) != 0) all_gather(Group("aclnnAllGatherMatmul", group), x1, x2, bias, output, gatherOut))
RANKS_OP(aclnnMatmulReduceScatter, optional(bias);
         check_reduce_scatter(x1, x2, bias, group, reduceOp, commTurn, streamMode, output),
         if (output.numel() != 0) Group("aclnnMatmulReduceScatter", group)
             .reduce_scatter(output, product(x1, x2, bias).to(output.scalar_type())))
