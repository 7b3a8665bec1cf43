// A matrix product summed over the ranks, a residual added and the sum normalised (ops-transformer:
// mc2/matmul_all_reduce_add_rms_norm). Each step is rounded as the operator of its own would.
#include "aclnn_mindspore.h"
#include "opapi/distributed/product.h"

namespace vnpu::opapi {
namespace {

struct Sum {
    const Operand &x1, &x2, &bias, &residual, &gamma;
    bool empty() const { return x1.numel() == 0 || x2.numel() == 0 || residual.numel() == 0 || gamma.numel() == 0; }
};

void check_sum_norm(const Sum &s, double epsilon, const std::string &group, const std::string &reduction, int64_t turns,
                    int64_t mode, const Operand &y, const Operand &normalized) {
    if (s.x1.dim() < 1 || s.x2.dim() < 1 || s.residual.dim() < 1)
        fail(FaultKind::InvalidArgument, "parameters x1, x2 and residual are {}, {} and {}, of which one is a number",
             describe(s.x1), describe(s.x2), describe(s.residual));
    check_same_inner(s.x1, s.x2);
    if (s.residual.size(-1) != s.x2.size(-1))
        fail(FaultKind::InvalidArgument, "parameter residual is {}, expected {} columns, those of x2",
             describe(s.residual), s.x2.size(-1));
    if (s.empty()) {
        if (s.x1.size(-1) == 0)
            fail(FaultKind::InvalidArgument, "parameter x1 is {}, there is nothing to sum over", describe(s.x1));
        return;
    }
    check_stops_on_failure(mode);
    rank(s.x1, {2, 3});
    rank(s.x2, {2});
    dtype(s.x1, {at::kHalf, at::kBFloat16});
    for (const Operand *each : {&s.x2, &s.residual, &s.gamma, &y, &normalized}) same_dtype(*each, s.x1);
    if (s.bias.defined()) same_dtype(s.bias, s.x1);
    check_bias(s.bias, s.x2);
    tiled(reduction == "sum", "parameter reduceOp is \"{}\", allowed is sum", reduction);
    check_one_turn(turns);
    rank(s.residual, {3});
    const bool rows = s.x1.numel() / s.x1.size(-1) == s.residual.size(0) * s.residual.size(1);
    if (!rows || (s.x1.dim() == 3 && s.x1.size(0) != s.residual.size(0)))
        fail(FaultKind::InvalidArgument, "parameter residual is {}, expected the rows of x1, {}", describe(s.residual),
             describe(s.x1));
    shape(s.gamma, {s.residual.size(2)});
    same_shape(y, s.residual);
    same_shape(normalized, s.residual);
    tiled(epsilon > 0 && epsilon < 1, "parameter epsilon is {}, allowed is what lies between 0 and 1", epsilon);
    ranks_of(group, {1, 2, 4, 8}, {});
}

void sum_and_normalize(const Group &ranks, const Sum &s, double epsilon, at::Tensor &y, at::Tensor &normalized) {
    at::Tensor product = at::matmul(widened(s.x1), widened(s.x2));
    if (s.bias.defined()) product.add_(widened(s.bias));
    at::Tensor sum = product.to(s.residual.scalar_type());
    ranks.all_reduce(sum);
    const at::Tensor total = at::add(sum.view(s.residual.sizes()), s.residual);
    const at::Tensor wide = widened(total);
    const at::Tensor scale = wide.square().mean(-1, true).add_(epsilon).rsqrt_();
    normalized.copy_((wide * scale).mul_(widened(s.gamma)));
    y.copy_(total);
}

}  // namespace
}  // namespace vnpu::opapi

#define SUM \
    Sum { x1, x2, bias, residual, gamma }

RANKS_OP(aclnnMatmulAllReduceAddRmsNorm, optional(bias); check_not_a3("aclnnMatmulAllReduceAddRmsNorm");
         check_sum_norm(SUM, epsilon, group, reduceOp, commTurn, streamMode, y, normOut),
         if (!(SUM).empty())
             sum_and_normalize(Group("aclnnMatmulAllReduceAddRmsNorm", group), SUM, epsilon, y, normOut))
// The sum takes the place of the residual.
RANKS_OP(aclnnInplaceMatmulAllReduceAddRmsNorm, optional(bias); check_not_a3("aclnnInplaceMatmulAllReduceAddRmsNorm");
         check_sum_norm(SUM, epsilon, group, reduceOp, commTurn, streamMode, residual, normOut),
         if (!(SUM).empty())
             sum_and_normalize(Group("aclnnInplaceMatmulAllReduceAddRmsNorm", group), SUM, epsilon, residual, normOut))
