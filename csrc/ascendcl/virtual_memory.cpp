// The virtual-memory API: reserve addresses, make physical memory, map one to the other.
#include <acl/acl_rt.h>

#include <memory>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "ascendcl/host_memory.h"
#include "device/machine.h"

using namespace vnpu;
using acl::required;

namespace {

constexpr size_t kGranularity = 2ull << 20;  // CANN's for huge pages, which every memory attribute here stands for

void aligned(size_t value, const char *name) {
    if (value % kGranularity != 0)
        fail(FaultKind::InvalidArgument, "{} is {}; it must be a multiple of {} bytes.", name, value, kGranularity);
}

Handles<PhysicalMemory> memories("physical memory handle");

}  // namespace

aclError aclrtReserveMemAddress(void **virPtr, size_t size, size_t alignment, void *expectPtr, uint64_t flags) {
    return VNPU_API(virPtr, size, alignment, expectPtr, flags) {
        acl::not_null(virPtr, "virPtr");
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
        acl::not_null(virPtr, "virPtr");
        Machine &machine = Machine::instance();
        const size_t size = machine.space().reserved_from(virPtr);
        if (machine.mappings().any(virPtr, size))
            fail(FaultKind::InvalidArgument, "Memory is still mapped in the range at {}: unmap it first.", virPtr);
        machine.space().release(virPtr);
    };
}

aclError aclrtMallocPhysical(aclrtDrvMemHandle *handle, size_t size, const aclrtPhysicalMemProp *prop, uint64_t flags) {
    return VNPU_API(handle, size, prop, flags) {
        acl::not_null(handle, "handle");
        if (size == 0) fail(FaultKind::InvalidArgument, "size is 0.");
        aligned(size, "size");
        const aclrtMemLocation where = required(prop, "prop").location;
        // torch_npu's pinned segments (pin_memory_expandable_segments), from CANN 8.5.0 on
        if (where.type == ACL_MEM_LOCATION_TYPE_HOST) {
            *handle = memories.add(std::make_shared<PhysicalMemory>(size));
            return;
        }
        if (where.type != ACL_MEM_LOCATION_TYPE_DEVICE)
            fail(FaultKind::Unsupported,
                 "Physical memory is made on a device (1) or the host (0); location type {} was asked for.",
                 static_cast<int>(where.type));
        Device &device = Machine::instance().device(static_cast<int>(where.id));
        *handle = memories.add(std::make_shared<PhysicalMemory>(device.heap(), device.index(), size));
    };
}

// The memory stays until its last mapping is gone.
aclError aclrtFreePhysical(aclrtDrvMemHandle handle) {
    return VNPU_API(handle) {
        acl::not_null(handle, "handle");
        memories.remove(handle);
    };
}

aclError aclrtMapMem(void *virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags) {
    return VNPU_API(virPtr, size, offset, handle, flags) {
        acl::not_null(virPtr, "virPtr");
        if (size == 0) fail(FaultKind::InvalidArgument, "size is 0.");
        aligned(size, "size");
        aligned(offset, "offset");
        Machine::instance().mappings().map(virPtr, size, offset, memories.find(handle));
    };
}

// Runs what is queued on all devices first: kernels read and write through the mapping.
aclError aclrtUnmapMem(void *virPtr) {
    return VNPU_API(virPtr) {
        acl::not_null(virPtr, "virPtr");
        Machine &machine = Machine::instance();
        if (machine.mappings().any(virPtr, 1)) acl::drain_all();
        machine.mappings().unmap(virPtr);
    };
}

aclError aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp *prop, aclrtMemGranularityOptions option,
                                          size_t *granularity) {
    return VNPU_API(prop, option, granularity) { required(granularity, "granularity") = kGranularity; };
}
