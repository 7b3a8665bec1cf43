// mstx, of libms_tools_ext.so: marks and ranges in domains. Its header (ms_tools_ext.h) is not in torch_npu's wheel.
// What a program registers of its memory is for a checker of leaks that there is not on the virtual NPU: handles that
// can be given back.
#include <atomic>
#include <cstring>
#include <string>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "ascendcl/profiler/mark.h"

using namespace vnpu;

#define MSTX_EXPORT extern "C" [[gnu::visibility("default")]]

struct mstxDomainRegistration_st {
    std::string name;
};
using Domain = mstxDomainRegistration_st *;

namespace {

std::string_view name_of(Domain domain) { return domain == nullptr ? std::string_view("default") : domain->name; }

uint64_t start(Domain domain, const char *message, void *stream) {
    acl::not_null(message, "message");
    return acl::begin_range(name_of(domain), message, stream);
}

}  // namespace

MSTX_EXPORT void mstxDomainMarkA(Domain domain, const char *message, void *stream) {
    VNPU_API(domain, message, stream) {
        acl::not_null(message, "message");
        acl::mark(name_of(domain), message, stream);
    };
}

MSTX_EXPORT uint64_t mstxDomainRangeStartA(Domain domain, const char *message, void *stream) {
    return VNPU_API(domain, message, stream) { return start(domain, message, stream); };
}

MSTX_EXPORT void mstxDomainRangeEnd(Domain, uint64_t id) {
    VNPU_API(id) { acl::end_range(id); };
}

MSTX_EXPORT void mstxMarkA(const char *message, void *stream) { mstxDomainMarkA(nullptr, message, stream); }

MSTX_EXPORT uint64_t mstxRangeStartA(const char *message, void *stream) {
    return VNPU_API(message, stream) { return start(nullptr, message, stream); };
}

MSTX_EXPORT void mstxRangeEnd(uint64_t id) {
    VNPU_API(id) { acl::end_range(id); };
}

// Kept for ever: marks of it may be on their way, and domains are few.
MSTX_EXPORT Domain mstxDomainCreateA(const char *name) {
    return VNPU_API(name) {
        acl::not_null(name, "name");
        return new mstxDomainRegistration_st{name};
    };
}

MSTX_EXPORT void mstxDomainDestroy(Domain domain) {
    VNPU_API(domain) { acl::not_null(domain, "domain"); };
}

MSTX_EXPORT void *mstxMemHeapRegister(Domain domain, const void *desc) {
    return VNPU_API(domain, desc)->void * {
        acl::not_null(desc, "desc");
        static std::atomic<uintptr_t> given{0};
        return reinterpret_cast<void *>(++given);
    };
}

MSTX_EXPORT void mstxMemHeapUnregister(Domain domain, void *heap) {
    VNPU_API(domain, heap) { acl::not_null(heap, "heap"); };
}

MSTX_EXPORT void mstxMemRegionsRegister(Domain domain, const void *desc) {
    VNPU_API(domain, desc) { acl::not_null(desc, "desc"); };
}

MSTX_EXPORT void mstxMemRegionsUnregister(Domain domain, const void *desc) {
    VNPU_API(domain, desc) { acl::not_null(desc, "desc"); };
}
