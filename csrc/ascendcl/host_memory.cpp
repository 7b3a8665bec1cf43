#include "ascendcl/host_memory.h"

#include <acl/acl_rt.h>
#include <acl/error_codes/rt_error_codes.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "device/bytes.h"
#include "device/live_memory.h"
#include "device/machine.h"
#include "device/reached.h"

using namespace vnpu;
using acl::required;

namespace {

constexpr size_t kPage = 4096;

struct Free {
    void operator()(void *memory) const noexcept { std::free(memory); }
};

struct Range {
    size_t size;
    std::unique_ptr<void, Free> memory;  // null: the program's own, registered
};

class PinnedRanges {
  public:
    void add(void *address, size_t size, bool ours) {
        const std::lock_guard lock(mutex_);
        const auto start = reinterpret_cast<uintptr_t>(address);
        const auto next = ranges_.lower_bound(start);
        const bool overlaps =
            (next != ranges_.end() && next->first < start + size) ||
            (next != ranges_.begin() && std::prev(next)->first + std::prev(next)->second.size > start);
        if (overlaps)
            throw acl::Error(ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                             fmt::format("Host memory in the {} bytes at {} is pinned already.", size, address));
        ranges_.emplace(start, Range{size, std::unique_ptr<void, Free>(ours ? address : nullptr)});
    }

    // Takes out the range that starts at `address` and was allocated (or registered) by us.
    Range take(void *address, bool ours) {
        const std::lock_guard lock(mutex_);
        const auto it = ranges_.find(reinterpret_cast<uintptr_t>(address));
        if (it == ranges_.end() || (it->second.memory != nullptr) != ours) {
            const std::string text = fmt::format("{} is not host memory {}.", address,
                                                 ours ? "given by aclrtMallocHost" : "registered by aclrtHostRegister");
            if (ours) throw Fault(FaultKind::InvalidAddress, text);
            throw acl::Error(ACL_ERROR_HOST_MEMORY_NOT_REGISTERED, text);
        }
        Range range = std::move(it->second);
        ranges_.erase(it);
        return range;
    }

    // Whether a range that the program has registered starts at `address`.
    bool registered(const void *address) const {
        const std::lock_guard lock(mutex_);
        const auto it = ranges_.find(reinterpret_cast<uintptr_t>(address));
        return it != ranges_.end() && it->second.memory == nullptr;
    }

    bool covers(const void *address, size_t size) const {
        const std::lock_guard lock(mutex_);
        const auto start = reinterpret_cast<uintptr_t>(address);
        auto it = ranges_.upper_bound(start);
        if (it == ranges_.begin()) return false;
        --it;
        const size_t offset = start - it->first;
        return offset < it->second.size && size <= it->second.size - offset;
    }

  private:
    mutable std::mutex mutex_;
    std::map<uintptr_t, Range> ranges_;
};

PinnedRanges &ranges() {
    static auto *all = new PinnedRanges;  // never destroyed: tensors are freed until the very end of the process
    return *all;
}

void *allocate(size_t size) {
    if (size == 0) fail(FaultKind::InvalidArgument, "An allocation of 0 bytes of host memory was asked for.");
    void *memory = std::aligned_alloc(kPage, bytes::round_up(size, kPage, "size"));
    if (memory == nullptr) fail(FaultKind::HostOutOfMemory, "{} bytes of host memory were asked for.", size);
    std::unique_ptr<void, Free> owner(memory);
    ranges().add(memory, size, true);
    return owner.release();
}

void registrable(const void *ptr, uint64_t size) {
    acl::not_null(ptr, "ptr");
    if (size == 0) fail(FaultKind::InvalidArgument, "size is 0.");
}

}  // namespace

void acl::drain_all() {
    Machine &machine = Machine::instance();
    for (int i = 0; i < machine.settings().devices; ++i)
        if (machine.active(i)) machine.drain(i);
}

bool acl::pinned(const void *address, size_t size) {
    Machine &machine = Machine::instance();
    return ranges().covers(address, size) ||
           (machine.space().in_window(address) && machine.mappings().on_host(address, size));
}

aclError aclrtMallocHost(void **hostPtr, size_t size) {
    return VNPU_API(hostPtr, size) { required(hostPtr, "hostPtr") = allocate(size); };
}

aclError aclrtMallocHostWithCfg(void **ptr, uint64_t size, aclrtMallocConfig *cfg) {
    return VNPU_API(ptr, size, cfg) { required(ptr, "ptr") = allocate(size); };
}

// Waits for the work queued on all devices first, as aclrtFree does for its device.
aclError aclrtFreeHost(void *hostPtr) {
    return VNPU_API(hostPtr) {
        acl::not_null(hostPtr, "hostPtr");
        acl::drain_all();
        ranges().take(hostPtr, true);
    };
}

// On hardware memory of aclrtMallocHostWithCfg with vaFlag has one address for both; here the device's is another.
aclError aclrtHostRegister(void *ptr, uint64_t size, aclrtHostRegisterType type, void **devPtr) {
    return VNPU_API(ptr, size, type, devPtr) {
        registrable(ptr, size);
        void *&address = required(devPtr, "devPtr");
        if (type != ACL_HOST_REGISTER_MAPPED)
            fail(FaultKind::Unsupported,
                 "Host memory is registered as type {}; CANN 9.1 has ACL_HOST_REGISTER_MAPPED (0) only, others are "
                 "reserved.",
                 static_cast<int>(type));
        address = ReachedMemory::instance().show(Machine::instance().space(), ptr, size);
    };
}

aclError aclrtHostRegisterV2(void *ptr, uint64_t size, uint32_t flag) {
    return VNPU_API(ptr, size, flag) {
        registrable(ptr, size);
        if ((flag & ~uint32_t{ACL_HOST_REG_MAPPED | ACL_HOST_REG_PINNED}) != 0)
            fail(FaultKind::Unsupported,
                 "flag is {:#x}; CANN 9.1 has ACL_HOST_REG_MAPPED (0x2) and ACL_HOST_REG_PINNED (0x10000000), others "
                 "are reserved.",
                 flag);
        host_range(ptr, size, "ptr");
        const bool mapped = (flag & ACL_HOST_REG_MAPPED) != 0;
        if (mapped) ReachedMemory::instance().show(Machine::instance().space(), ptr, size);
        if (mapped && (flag & ACL_HOST_REG_PINNED) == 0) return;
        try {
            ranges().add(ptr, size, false);
        } catch (...) {
            if (mapped) ReachedMemory::instance().hide(Machine::instance().space(), ptr);
            throw;
        }
    };
}

aclError aclrtHostGetDevicePointer(void *pHost, void **pDevice, uint32_t flag) {
    return VNPU_API(pHost, pDevice, flag) {
        acl::not_null(pHost, "pHost");
        void *&address = required(pDevice, "pDevice");
        if (flag != 0) fail(FaultKind::InvalidArgument, "flag is {}; it is reserved and has to be 0.", flag);
        address = ReachedMemory::instance().device_address(pHost);
        if (address == nullptr)
            throw acl::Error(ACL_ERROR_HOST_MEMORY_NOT_REGISTERED,
                             fmt::format("{} is not host memory that was registered with ACL_HOST_REG_MAPPED.", pHost));
    };
}

// All of them: nothing here goes another way than kernels do.
aclError aclrtHostMemMapCapabilities(uint32_t deviceId, aclrtHacType hacType, aclrtHostMemMapCapability *capabilities) {
    return VNPU_API(deviceId, hacType, capabilities) {
        aclrtHostMemMapCapability &can = required(capabilities, "capabilities");
        Machine::instance().device(static_cast<int>(deviceId));
        if (hacType < ACL_RT_HAC_TYPE_STARS || hacType > ACL_RT_HAC_TYPE_CCU)
            fail(FaultKind::InvalidArgument, "hacType is {}, which is none of aclrtHacType.",
                 static_cast<int>(hacType));
        can = ACL_RT_HOST_MEM_MAP_SUPPORTED;
    };
}

aclError aclrtHostUnregister(void *ptr) {
    return VNPU_API(ptr) {
        acl::not_null(ptr, "ptr");
        acl::drain_all();
        const bool mapped = ReachedMemory::instance().hide(Machine::instance().space(), ptr);
        if (!mapped || ranges().registered(ptr)) ranges().take(ptr, false);
    };
}

aclError aclrtPointerGetAttributes(const void *ptr, aclrtPtrAttributes *attributes) {
    return VNPU_API(ptr, attributes) {
        acl::not_null(ptr, "ptr");
        Machine &machine = Machine::instance();
        aclrtPtrAttributes answer{};
        if (const auto live = machine.allocation(ptr)) {
            answer.location = live->device < 0
                                  ? aclrtMemLocation{0, ACL_MEM_LOCATION_TYPE_HOST}
                                  : aclrtMemLocation{static_cast<uint32_t>(live->device), ACL_MEM_LOCATION_TYPE_DEVICE};
            answer.pageSize = kPage;
        } else if (acl::pinned(ptr, 1)) {
            answer.location = {0, ACL_MEM_LOCATION_TYPE_HOST};
            answer.pageSize = kPage;
        } else {
            answer.location = {0, ACL_MEM_LOCATION_TYPE_UNREGISTERED};
        }
        required(attributes, "attributes") = answer;
    };
}
