// What torch_npu looks up and the virtual NPU does not offer: each answers HCCL_E_NOT_SUPPORT and says so by its name.
// Compiled alone: HCCL's headers, which this source does not include, declare these functions with parameters.
#include "ascendcl/unsupported.h"

#define VNPU_UNSUPPORTED(name) \
    VNPU_UNSUPPORTED_AS(Collective, void, int, name, "The virtual NPU has the collectives, not this.")

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
