// What matrix products fused with a collective have in common. The product of a rank is rounded to the result's dtype
// before it goes to the others, who sum in float32 and round once, as HCCL's reductions here do.
#pragma once

#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/precision.h"
#include "opapi/distributed/group.h"

namespace vnpu::opapi {

inline void check_sums(const std::string &reduction) {
    on_chip(reduction == "sum", "parameter reduceOp is \"{}\", allowed is sum", reduction);
}

inline void check_stops_on_failure(int64_t mode) {
    on_chip(mode == 1, "parameter streamMode is {}, allowed is 1 (ACL_STOP_ON_FAILURE)", mode);
}

// What adds the parts: all that 910B has, said or not (ops-transformer: IsCommModeValid).
inline void check_by_processor(const std::string &mode) {
    on_chip(mode.empty() || mode == "ai_cpu", "parameter commMode is \"{}\", allowed are null and ai_cpu", mode);
}

inline void check_one_turn(int64_t turns) { tiled(turns == 0, "parameter commTurn is {}, allowed is 0", turns); }

inline void check_same_inner(const Operand &x1, const Operand &x2) {
    if (x1.size(-1) != x2.size(0))
        fail(FaultKind::InvalidArgument, "parameter x2 is {}, expected {} rows, the last size of x1", describe(x2),
             x1.size(-1));
}

inline void check_bias(const Operand &bias, const Operand &x2) {
    if (bias.defined()) shape(bias, {x2.size(1)});
}

// The kernels' limits on the dimension that is summed over (ops-transformer: aclnn_all_gather_matmul.cpp).
inline constexpr int64_t kLeastInner = 256, kMostInner = 65535;

inline void check_long_inner(const Operand &x1) {
    on_chip(x1.size(-1) >= kLeastInner && x1.size(-1) < kMostInner,
            "parameter x1 is {}, allowed are {} to {} elements in its last dimension", describe(x1), kLeastInner,
            kMostInner - 1);
}

// As CANN tells it from strides alone (ops-transformer: IsTransposeLastTwoDims).
inline bool transposed(const at::Tensor &matrix) {
    return !matrix.is_contiguous() && matrix.stride(0) == 1 && matrix.stride(1) == matrix.size(0);
}

// Of a sum over all ranks of products of [..., m, k] and [k, n]; x3 is added to each rank's (ops-transformer:
// matmul_all_reduce_util.cpp, matmul_all_reduce_tiling.cpp).
inline void check_sum(const Operand &x1, const Operand &x2, const Operand &bias, const Operand &x3,
                      const std::string &group, const std::string &reduction, int64_t turns, int64_t mode,
                      const Operand &output) {
    rank(x1, {2, 3});
    rank(x2, {2});
    check_sums(reduction);
    check_stops_on_failure(mode);
    check_same_inner(x1, x2);
    at::DimVector sizes(x1.sizes().begin(), x1.sizes().end());
    sizes.back() = x2.size(1);
    shape(output, sizes);
    if (x3.defined()) same_shape(x3, output);
    check_bias(bias, x2);
    tiled(output.numel() != 0, "parameter output is {}, which is empty", describe(output));
    check_one_turn(turns);
    ranks_of(group, {1, 2, 4, 8}, {});
}

// Of a sum over all ranks of which each gets its rows: what the rank counts of the chips leave to check.
inline void check_scattered_rows(const Operand &x1, const Operand &x2, const std::string &group,
                                 const std::string &reduction, int64_t turns, std::initializer_list<int64_t> on_a3,
                                 const Operand &output) {
    tiled(reduction == "sum", "parameter reduceOp is \"{}\", allowed is sum", reduction);
    check_one_turn(turns);
    const int64_t ranks = ranks_of(group, {2, 4, 8}, on_a3);
    if (x1.size(0) % ranks != 0)
        fail(FaultKind::InvalidArgument, "parameter x1 is {}, expected a multiple of {} rows, the ranks of the group",
             describe(x1), ranks);
    shape(output, {x1.size(0) / ranks, x2.size(1)});
}

// Into `output` what this rank adds to the sum.
inline void own_part(const at::Tensor &product, const at::Tensor &x3, at::Tensor &output) {
    output.copy_(product);
    if (x3.defined()) output.copy_(widened(output) + widened(x3));
}

inline void all_reduce(const Group &ranks, const at::Tensor &product, const at::Tensor &x3, at::Tensor &output) {
    own_part(product, x3, output);
    ranks.all_reduce(output);
}

}  // namespace vnpu::opapi
