// MSPTI's records and codes, as torch_npu reads them (third_party/mspti/mspti_activity.h of its sources; no header of
// the wheel has them).
#pragma once

#include <cstdint>

namespace vnpu::mspti {

enum Result : int32_t {
    kSuccess = 0,
    kInvalidParameter = 1,
    kMultipleSubscribers = 2,
    kMaxLimitReached = 3,
    kQueueEmpty = 5,
    kInner = 999,
};

enum Kind : int32_t {
    kKernel = 2,
    kMemcpy = 7,
    kExternalCorrelation = 8,
    kCommunication = 9,
    kAclApi = 10,
    kKinds = 13,
};

struct Place {
    uint32_t device, stream;
};

struct [[gnu::packed, gnu::aligned(8)]] KernelRecord {
    int32_t kind;
    uint64_t start, end;  // ns since 1970
    Place where;
    uint64_t correlation;
    const char *type, *name;
};
struct [[gnu::packed, gnu::aligned(8)]] CommunicationRecord {
    int32_t kind, data_type;
    uint64_t count;
    Place where;
    uint64_t start, end;
    const char *algorithm, *name, *group;
    uint64_t correlation;
};
struct [[gnu::packed, gnu::aligned(8)]] ExternalCorrelationRecord {
    int32_t kind, external_kind;
    uint64_t external, correlation;
};

}  // namespace vnpu::mspti
