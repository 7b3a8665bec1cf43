// What MindSpore asks for that all operators stand on, beside the descriptors: those are in libopapi.
#include <cstdint>

#include "ascendcl/call.h"

#define EXPORT extern "C" [[gnu::visibility("default")]]

// Operators are compiled into the library: there is nothing to set up or to take down, and no configuration to read.
EXPORT int32_t aclnnInit(const char *configPath) { return VNPU_OPERATOR_API(configPath){}; }
EXPORT int32_t aclnnFinalize() { return VNPU_OPERATOR_API(){}; }

// Around each operator, with null and false, for memory that CANN keeps for descriptors; here each has its own and
// there is nothing to keep. Nothing depends on it: op-plugin, which makes the same calls around its operators, leaves
// out those that it does not find (op_plugin/utils/custom_functions/opapi/update_op_api_common.h); MindSpore wants to
// find them.
EXPORT int InitHugeMemThreadLocal(void *, bool) { return 0; }
EXPORT void UnInitHugeMemThreadLocal(void *, bool) {}
EXPORT void ReleaseHugeMem(void *, bool) {}
