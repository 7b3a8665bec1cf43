// All ranks of a group wait for each other; the tensor orders the call among others and is not touched.
#include "opapi/aclnn/limits.h"
#include "opapi/distributed/group.h"

namespace vnpu::opapi {
namespace {

// (ops-transformer: distribute_barrier)
void check_barrier(const char *operation, const std::string &group, int64_t size) {
    check_a3_only(operation);
    tiled(size >= 2 && size <= 384, "parameter worldSize is {}, allowed are 2 to 384", size);
    const hccl::OperatorGroup ranks(group);
    tiled(ranks.size() == size, "parameter worldSize is {}, the group has {} ranks", size, ranks.size());
    ranks.take_buffers();
}

void check_beyond(const Operand &limit, const Operand &elastic) {
    if (limit.defined()) {
        dtype(limit, {at::kInt});
        shape(limit, {1});
    }
    for (const Operand *tensor : {&limit, &elastic})
        if (tensor->defined())
            fail(FaultKind::Unsupported,
                 "parameter {} is given; the virtual NPU's barrier has no time limit of its own "
                 "(HCCL_EXEC_TIMEOUT has) and no groups that shrink",
                 tensor->parameter());
}

}  // namespace
}  // namespace vnpu::opapi

RANKS_OP(aclnnDistributeBarrier, check_barrier("aclnnDistributeBarrier", group, worldSize),
         Group("aclnnDistributeBarrier", group).barrier())
RANKS_OP(aclnnDistributeBarrierV2, optional(timeOut, elasticInfo);
         check_barrier("aclnnDistributeBarrierV2", group, worldSize);
         check_beyond(timeOut, elasticInfo), Group("aclnnDistributeBarrierV2", group).barrier())
