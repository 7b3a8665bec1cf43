// Allocators that a program offers the runtime, by stream. CANN takes workspaces from them for models and operators
// that it compiles; what runs here needs no device memory but what the program gives it.
#include <acl/acl_rt_allocator.h>

#include <map>
#include <memory>
#include <mutex>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "device/machine.h"

using namespace vnpu;
using acl::required;

namespace {

struct Allocator {
    aclrtAllocator object = nullptr;
    aclrtAllocatorAllocFunc allocate = nullptr;
    aclrtAllocatorFreeFunc free = nullptr;
    aclrtAllocatorAllocAdviseFunc allocate_near = nullptr;
    aclrtAllocatorGetAddrFromBlockFunc address = nullptr;
};

struct Offered {
    aclrtAllocatorDesc desc;
    Allocator allocator;
};

struct Table {
    std::mutex mutex;
    std::map<aclrtAllocatorDesc, std::unique_ptr<Allocator>> descriptors;
    std::map<aclrtStream, Offered> of;
};
Table &table() {
    static auto *all = new Table;  // never destroyed: unregistered until the very end
    return *all;
}

// With the table's mutex held.
Allocator &described(aclrtAllocatorDesc desc) {
    acl::not_null(desc, "allocatorDesc");
    const auto found = table().descriptors.find(desc);
    if (found == table().descriptors.end())
        fail(FaultKind::InvalidHandle, "{} is not a descriptor of aclrtAllocatorCreateDesc.", desc);
    return *found->second;
}

template <class Member, class Value>
aclError set(const char *call, Member member, aclrtAllocatorDesc desc, Value value, const char *name) {
    return acl::call<acl::Face::Runtime>(call) << [&] {
        acl::not_null(reinterpret_cast<const void *>(value), name);
        const std::lock_guard lock(table().mutex);
        described(desc).*member = value;
    };
}

}  // namespace

aclrtAllocatorDesc aclrtAllocatorCreateDesc() {
    return VNPU_API() {
        auto made = std::make_unique<Allocator>();
        const std::lock_guard lock(table().mutex);
        aclrtAllocatorDesc desc = made.get();
        table().descriptors.emplace(desc, std::move(made));
        return desc;
    };
}

aclError aclrtAllocatorDestroyDesc(aclrtAllocatorDesc allocatorDesc) {
    return VNPU_API(allocatorDesc) {
        const std::lock_guard lock(table().mutex);
        described(allocatorDesc);
        table().descriptors.erase(allocatorDesc);
    };
}

aclError aclrtAllocatorSetObjToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocator allocator) {
    return set(__func__, &Allocator::object, allocatorDesc, allocator, "allocator");
}
aclError aclrtAllocatorSetAllocFuncToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocatorAllocFunc func) {
    return set(__func__, &Allocator::allocate, allocatorDesc, func, "func");
}
aclError aclrtAllocatorSetFreeFuncToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocatorFreeFunc func) {
    return set(__func__, &Allocator::free, allocatorDesc, func, "func");
}
aclError aclrtAllocatorSetAllocAdviseFuncToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocatorAllocAdviseFunc func) {
    return set(__func__, &Allocator::allocate_near, allocatorDesc, func, "func");
}
aclError aclrtAllocatorSetGetAddrFromBlockFuncToDesc(aclrtAllocatorDesc allocatorDesc,
                                                     aclrtAllocatorGetAddrFromBlockFunc func) {
    return set(__func__, &Allocator::address, allocatorDesc, func, "func");
}

aclError aclrtAllocatorRegister(aclrtStream stream, aclrtAllocatorDesc allocatorDesc) {
    return VNPU_API(stream, allocatorDesc) {
        Machine::instance().stream(stream);
        const std::lock_guard lock(table().mutex);
        const Allocator &offered = described(allocatorDesc);
        if (offered.object == nullptr || offered.allocate == nullptr || offered.free == nullptr ||
            offered.address == nullptr)
            fail(FaultKind::InvalidArgument,
                 "allocatorDesc lacks the allocator or a function of it: only the one with advice may be missing.");
        table().of[stream] = {allocatorDesc, offered};
    };
}

aclError aclrtAllocatorGetByStream(aclrtStream stream, aclrtAllocatorDesc *allocatorDesc, aclrtAllocator *allocator,
                                   aclrtAllocatorAllocFunc *allocFunc, aclrtAllocatorFreeFunc *freeFunc,
                                   aclrtAllocatorAllocAdviseFunc *allocAdviseFunc,
                                   aclrtAllocatorGetAddrFromBlockFunc *getAddrFromBlockFunc) {
    return VNPU_API(stream) {
        const std::lock_guard lock(table().mutex);
        const auto found = table().of.find(stream);
        if (found == table().of.end())
            fail(FaultKind::InvalidArgument, "No allocator is registered for stream {}.", stream);
        const auto &[desc, offered] = found->second;
        required(allocatorDesc, "allocatorDesc") = desc;
        required(allocator, "allocator") = offered.object;
        required(allocFunc, "allocFunc") = offered.allocate;
        required(freeFunc, "freeFunc") = offered.free;
        if (allocAdviseFunc != nullptr) *allocAdviseFunc = offered.allocate_near;
        if (getAddrFromBlockFunc != nullptr) *getAddrFromBlockFunc = offered.address;
    };
}

aclError aclrtAllocatorUnregister(aclrtStream stream) {
    return VNPU_API(stream) {
        const std::lock_guard lock(table().mutex);
        if (table().of.erase(stream) == 0)
            fail(FaultKind::InvalidArgument, "No allocator is registered for stream {}.", stream);
    };
}
