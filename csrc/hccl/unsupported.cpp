// The collectives that torch_npu looks up. The virtual NPU has none yet: each answers HCCL_E_NOT_SUPPORT and says so by
// its name.
#include "ascendcl/unsupported.h"

#define VNPU_UNSUPPORTED(name) \
    VNPU_UNSUPPORTED_AS(Collective, void, int, name, "The virtual NPU has no collectives yet: train on one device.")

VNPU_UNSUPPORTED(HcclGetRootInfo)
VNPU_UNSUPPORTED(HcclGetRootInfoScalable)
VNPU_UNSUPPORTED(HcclCommInitRootInfo)
VNPU_UNSUPPORTED(HcclCommInitRootInfoConfig)
VNPU_UNSUPPORTED(HcclCommInitRootInfoScalable)
VNPU_UNSUPPORTED(HcclCommInitClusterInfo)
VNPU_UNSUPPORTED(HcclCommInitClusterInfoConfig)
VNPU_UNSUPPORTED(HcclCommInitAll)
VNPU_UNSUPPORTED(HcclCreateSubCommConfig)
VNPU_UNSUPPORTED(HcclCommDestroy)
VNPU_UNSUPPORTED(HcclCommResume)
VNPU_UNSUPPORTED(HcclGetCommName)
VNPU_UNSUPPORTED(HcclGetCommAsyncError)
VNPU_UNSUPPORTED(HcclAllReduce)
VNPU_UNSUPPORTED(HcclBroadcast)
VNPU_UNSUPPORTED(HcclAllGather)
VNPU_UNSUPPORTED(HcclAllGatherV)
VNPU_UNSUPPORTED(HcclReduceScatter)
VNPU_UNSUPPORTED(HcclReduceScatterV)
VNPU_UNSUPPORTED(HcclReduce)
VNPU_UNSUPPORTED(HcclScatter)
VNPU_UNSUPPORTED(HcclAlltoAll)
VNPU_UNSUPPORTED(HcclAlltoAllV)
VNPU_UNSUPPORTED(HcclAlltoAllVC)
VNPU_UNSUPPORTED(HcclSend)
VNPU_UNSUPPORTED(HcclRecv)
VNPU_UNSUPPORTED(HcclBatchSendRecv)
VNPU_UNSUPPORTED(HcclCommWorkingDevNicSet)
VNPU_UNSUPPORTED(HcclCommSetMemoryRange)
VNPU_UNSUPPORTED(HcclCommUnsetMemoryRange)
VNPU_UNSUPPORTED(HcclCommActivateCommMemory)
VNPU_UNSUPPORTED(HcclCommDeactivateCommMemory)
VNPU_UNSUPPORTED(HcclCommRegister)
VNPU_UNSUPPORTED(HcclCommDeregister)
VNPU_UNSUPPORTED(HcclCommExchangeMem)
VNPU_UNSUPPORTED(HcclCommSymWinRegister)
VNPU_UNSUPPORTED(HcclCommSymWinDeregister)

// Deliberately absent: HcclGetCommConfigCapability, by whose absence torch_npu knows that no optional feature exists;
// HcclGroupStart and HcclGroupEnd, which it looks for in libhcomm.
