// Matrix products fused with a collective. The product of a rank is rounded to the result's dtype before it goes to the
// others, who sum in float32 and round once, as HCCL's reductions here do.
#include "opapi/aclnn/format.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/precision.h"
#include "opapi/distributed/group.h"

namespace vnpu::opapi {
namespace {

// The kernels' limits on the dimension that is summed over (ops-transformer: aclnn_all_gather_matmul.cpp).
constexpr int64_t kLeastInner = 256, kMostInner = 65535;

void sums(const std::string &reduction) {
    on_chip(reduction == "sum", "parameter reduceOp is \"{}\", allowed is sum", reduction);
}

void stops_on_failure(int64_t mode) {
    on_chip(mode == 1, "parameter streamMode is {}, allowed is 1 (ACL_STOP_ON_FAILURE)", mode);
}

void one_turn(int64_t turns) { tiled(turns == 0, "parameter commTurn is {}, allowed is 0", turns); }

void same_inner(const Operand &x1, const Operand &x2) {
    if (x1.size(-1) != x2.size(0))
        fail(FaultKind::InvalidArgument, "parameter x2 is {}, expected {} rows, the last size of x1", describe(x2),
             x1.size(-1));
}

void check_bias(const Operand &bias, const Operand &x2) {
    if (bias.defined()) shape(bias, {x2.size(1)});
}

// --- the sum over all ranks

void check_all_reduce(const Operand &x1, const Operand &x2, const Operand &bias, const Operand &x3,
                      const std::string &group, const std::string &reduction, int64_t turns, int64_t mode,
                      const Operand &output) {
    rank(x1, {2, 3});
    rank(x2, {2});
    sums(reduction);
    stops_on_failure(mode);
    same_inner(x1, x2);
    at::DimVector sizes(x1.sizes().begin(), x1.sizes().end());
    sizes.back() = x2.size(1);
    shape(output, sizes);
    if (x3.defined()) same_shape(x3, output);
    check_bias(bias, x2);
    tiled(output.numel() != 0, "parameter output is {}, which is empty", describe(output));
    one_turn(turns);
    ranks_of(group, {1, 2, 4, 8}, {});
}

at::Tensor product(const at::Tensor &x1, const at::Tensor &x2, const at::Tensor &bias) {
    at::Tensor made = at::matmul(widened(x1), widened(x2));
    return bias.defined() ? made.add_(widened(bias)) : made;
}

void all_reduce(const Group &ranks, const at::Tensor &product, const at::Tensor &x3, at::Tensor &output) {
    output.copy_(product);
    if (x3.defined()) output.copy_(widened(output) + widened(x3));
    ranks.all_reduce(output);
}

// --- every rank's rows

// As CANN tells it from strides alone (ops-transformer: IsTransposeLastTwoDims).
bool transposed(const at::Tensor &matrix) {
    return !matrix.is_contiguous() && matrix.stride(0) == 1 && matrix.stride(1) == matrix.size(0);
}

void check_rows(const Operand &x1, const Operand &x2, const Operand &bias, int64_t mode) {
    rank(x1, {2});
    rank(x2, {2});
    stops_on_failure(mode);
    same_inner(x1, x2);
    check_bias(bias, x2);
    if (x1.size(1) == 0)
        fail(FaultKind::InvalidArgument, "parameter x1 is {}, there is nothing to sum over", describe(x1));
    if (x1.size(0) == 0) return;
    on_chip(!transposed(x1), "parameter x1 is {} and transposed", describe(x1));
    on_chip(x1.size(1) >= kLeastInner && x1.size(1) < kMostInner,
            "parameter x1 is {}, allowed are {} to {} elements in its last dimension", describe(x1), kLeastInner,
            kMostInner - 1);
}

// `gathered` is empty where it is not asked for.
void check_all_gather(const Operand &x1, const Operand &x2, const Operand &bias, const std::string &group,
                      int64_t index, int64_t turns, int64_t mode, const Operand &output, const Operand &gathered) {
    check_rows(x1, x2, bias, mode);
    if (x1.size(0) == 0) return;
    tiled(index == 0, "parameter gatherIndex is {}, allowed is 0 (x1)", index);
    one_turn(turns);
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
    check_rows(x1, x2, bias, mode);
    if (x1.size(0) == 0 || x2.size(1) == 0) return;
    tiled(reduction == "sum", "parameter reduceOp is \"{}\", allowed is sum", reduction);
    one_turn(turns);
    const int64_t ranks = ranks_of(group, {2, 4, 8}, {2, 4, 8, 16, 32});
    if (x1.size(0) % ranks != 0)
        fail(FaultKind::InvalidArgument, "parameter x1 is {}, expected a multiple of {} rows, the ranks of the group",
             describe(x1), ranks);
    shape(output, {x1.size(0) / ranks, x2.size(1)});
}

}  // namespace
}  // namespace vnpu::opapi

RANKS_OP(aclnnMatmulAllReduce, optional(bias); not_a3("aclnnMatmulAllReduce");
         check_all_reduce(x1, x2, bias, Operand(nullptr, "x3"), group, reduceOp, commTurn, streamMode, output),
         all_reduce(Group("aclnnMatmulAllReduce", group), product(x1, x2, bias), {}, output))
RANKS_OP(aclnnMatmulAllReduceV2, optional(bias, x3); not_a3("aclnnMatmulAllReduceV2");
         check_all_reduce(x1, x2, bias, x3, group, reduceOp, commTurn, streamMode, output),
         all_reduce(Group("aclnnMatmulAllReduceV2", group), product(x1, x2, bias), x3, output))
RANKS_OP(aclnnAllGatherMatmul, optional(bias);
         check_all_gather(x1, x2, bias, group, gatherIndex, commTurn, streamMode, output, gatherOut),
         if (x1.size(0) != 0) all_gather(Group("aclnnAllGatherMatmul", group), x1, x2, bias, output, gatherOut))
RANKS_OP(aclnnMatmulReduceScatter, optional(bias);
         check_reduce_scatter(x1, x2, bias, group, reduceOp, commTurn, streamMode, output),
         if (output.numel() != 0) Group("aclnnMatmulReduceScatter", group)
             .reduce_scatter(output, product(x1, x2, bias).to(output.scalar_type())))
