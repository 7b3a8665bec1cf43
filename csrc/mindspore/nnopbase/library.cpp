// What MindSpore asks for that all operators stand on, beside the descriptors: those are in libopapi.
#include <cstdint>

#include "ascendcl/call.h"

#define EXPORT extern "C" [[gnu::visibility("default")]]

// Operators are compiled into the library: there is nothing to set up or to take down, and no configuration to read.
EXPORT int32_t aclnnInit(const char *configPath) { return VNPU_OPERATOR_API(configPath){}; }
EXPORT int32_t aclnnFinalize() { return VNPU_OPERATOR_API(){}; }

// Between these calls CANN keeps the memory of a thread's descriptors. Here each has memory of its own and none is
// kept, which is what CANN does of a thread that has not called them.
EXPORT int InitHugeMemThreadLocal(void *, bool) { return 0; }
EXPORT void UnInitHugeMemThreadLocal(void *, bool) {}
EXPORT void ReleaseHugeMem(void *, bool) {}
