// The virtual-memory API: reserve addresses, make physical memory, map one to the other.
#include <acl/acl_rt.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "device/machine.h"

using namespace vnpu;
using acl::required;

namespace {

constexpr size_t kGranularity = 2ull << 20;  // CANN's for huge pages, which every memory attribute here stands for

void aligned(size_t value, const char *name) {
    if (value % kGranularity != 0)
        fail(FaultKind::InvalidArgument, "{} is {}; it must be a multiple of {} bytes.", name, value, kGranularity);
}

class Handles {
  public:
    aclrtDrvMemHandle add(std::shared_ptr<PhysicalMemory> memory) {
        const std::lock_guard lock(mutex_);
        void *handle = memory.get();
        live_.emplace(handle, std::move(memory));
        return handle;
    }

    std::shared_ptr<PhysicalMemory> find(aclrtDrvMemHandle handle) {
        const std::lock_guard lock(mutex_);
        const auto it = live_.find(handle);
        if (it == live_.end()) fail(FaultKind::InvalidHandle, "{} is not live physical memory.", handle);
        return it->second;
    }

    // The memory stays until its last mapping is gone.
    void drop(aclrtDrvMemHandle handle) {
        const std::lock_guard lock(mutex_);
        if (live_.erase(handle) == 0) fail(FaultKind::InvalidHandle, "{} is not live physical memory.", handle);
    }

  private:
    std::mutex mutex_;
    std::unordered_map<void *, std::shared_ptr<PhysicalMemory>> live_;
};

Handles &handles() {
    static auto *all = new Handles;  // never destroyed: segments are freed until the very end of the process
    return *all;
}

}  // namespace

aclError aclrtReserveMemAddress(void **virPtr, size_t size, size_t alignment, void *expectPtr, uint64_t flags) {
    return VNPU_API(virPtr, size, alignment, expectPtr, flags) {
        acl::present(virPtr, "virPtr");
        if (size == 0) fail(FaultKind::InvalidArgument, "size is 0.");
        if (expectPtr != nullptr)
            fail(FaultKind::Unsupported, "The virtual NPU chooses addresses itself; expectPtr must be null.");
        if (alignment > kGranularity)
            fail(FaultKind::Unsupported, "alignment is {}; the virtual NPU aligns to {}.", alignment, kGranularity);
        *virPtr = Machine::instance().space().reserve(size);
    };
}

aclError aclrtReleaseMemAddress(void *virPtr) {
    return VNPU_API(virPtr) {
        acl::present(virPtr, "virPtr");
        Machine &machine = Machine::instance();
        const size_t size = machine.space().reserved_from(virPtr);
        if (machine.mappings().any(virPtr, size))
            fail(FaultKind::InvalidArgument, "Memory is still mapped in the range at {}: unmap it first.", virPtr);
        machine.space().release(virPtr);
    };
}

aclError aclrtMallocPhysical(aclrtDrvMemHandle *handle, size_t size, const aclrtPhysicalMemProp *prop, uint64_t flags) {
    return VNPU_API(handle, size, prop, flags) {
        acl::present(handle, "handle");
        if (size == 0) fail(FaultKind::InvalidArgument, "size is 0.");
        aligned(size, "size");
        const aclrtMemLocation where = required(prop, "prop").location;
        if (where.type != ACL_MEM_LOCATION_TYPE_DEVICE)
            fail(FaultKind::Unsupported, "Physical memory exists on devices only; location type {} was asked for.",
                 static_cast<int>(where.type));
        Device &device = Machine::instance().device(static_cast<int>(where.id));
        *handle = handles().add(std::make_shared<PhysicalMemory>(device.heap(), device.index(), size));
    };
}

aclError aclrtFreePhysical(aclrtDrvMemHandle handle) {
    return VNPU_API(handle) {
        acl::present(handle, "handle");
        handles().drop(handle);
    };
}

aclError aclrtMapMem(void *virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags) {
    return VNPU_API(virPtr, size, offset, handle, flags) {
        acl::present(virPtr, "virPtr");
        if (size == 0) fail(FaultKind::InvalidArgument, "size is 0.");
        aligned(size, "size");
        aligned(offset, "offset");
        Machine::instance().mappings().map(virPtr, size, offset, handles().find(handle));
    };
}

// Runs what is queued on the memory's device first: kernels read and write through the mapping.
aclError aclrtUnmapMem(void *virPtr) {
    return VNPU_API(virPtr) {
        acl::present(virPtr, "virPtr");
        Machine &machine = Machine::instance();
        const int device = machine.mappings().device_at(virPtr);
        if (device >= 0) machine.drain(device);
        machine.mappings().unmap(virPtr);
    };
}

aclError aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp *prop, aclrtMemGranularityOptions option,
                                          size_t *granularity) {
    return VNPU_API(prop, option, granularity) { required(granularity, "granularity") = kGranularity; };
}
