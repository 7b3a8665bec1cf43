// How many cores a program lets a device, a stream or a thread use. Kept and reported, and without effect on results;
// there are no cores to take away from a kernel that runs on a CPU.
#include <acl/acl_rt.h>

#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "device/machine.h"

using namespace vnpu;
using acl::required;

namespace {

// A device or a stream, by number: an address may be another stream's later.
struct Owner {
    enum Kind { OfDevice, OfStream } kind;
    int number;
    auto operator<=>(const Owner &) const = default;
};

Owner owner(Device &device) { return {Owner::OfDevice, device.index()}; }
Owner owner(const Stream &stream) { return {Owner::OfStream, stream.id()}; }

class Limits {
  public:
    void set(Owner owner, aclrtDevResLimitType type, uint32_t value) {
        const uint32_t most = all(type);
        if (value == 0 || value > most)
            fail(FaultKind::InvalidArgument, "value is {}; the chip has 1 to {} such cores.", value, most);
        const std::lock_guard lock(mutex_);
        limits_[{owner, type}] = value;
    }

    void reset(Owner owner) {
        const std::lock_guard lock(mutex_);
        limits_.erase({owner, ACL_RT_DEV_RES_CUBE_CORE});
        limits_.erase({owner, ACL_RT_DEV_RES_VECTOR_CORE});
    }

    // What was set for the owner, else `otherwise`.
    uint32_t get(Owner owner, aclrtDevResLimitType type, uint32_t otherwise) const {
        const std::lock_guard lock(mutex_);
        const auto it = limits_.find({owner, type});
        return it == limits_.end() ? otherwise : it->second;
    }

    static uint32_t all(aclrtDevResLimitType type) {
        const Chip &chip = *Machine::instance().settings().chip;
        if (type == ACL_RT_DEV_RES_CUBE_CORE) return static_cast<uint32_t>(chip.cube_cores);
        if (type == ACL_RT_DEV_RES_VECTOR_CORE) return static_cast<uint32_t>(chip.vector_cores);
        fail(FaultKind::InvalidArgument, "type is {}, which is none of its values.", static_cast<int>(type));
    }

  private:
    mutable std::mutex mutex_;
    std::map<std::pair<Owner, aclrtDevResLimitType>, uint32_t> limits_;
};

Limits &limits() {
    static auto *all = new Limits;  // never destroyed: used until the very end of the process
    return *all;
}

// The stream whose limits the calling thread uses; none: its device's.
thread_local std::optional<Owner> adopted;

Device &device_of(int32_t device) { return Machine::instance().device(device); }
std::shared_ptr<Stream> stream_of(aclrtStream handle) { return Machine::instance().stream(handle); }

uint32_t limit_of(Device &device, aclrtDevResLimitType type) {
    return limits().get(owner(device), type, Limits::all(type));
}

uint32_t limit_of(const Stream &stream, aclrtDevResLimitType type) {
    return limits().get(owner(stream), type, limit_of(device_of(stream.device()), type));
}

}  // namespace

aclError aclrtSetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t value) {
    return VNPU_API(deviceId, type, value) { limits().set(owner(device_of(deviceId)), type, value); };
}

aclError aclrtGetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t *value) {
    return VNPU_API(deviceId, type, value) { required(value, "value") = limit_of(device_of(deviceId), type); };
}

aclError aclrtResetDeviceResLimit(int32_t deviceId) {
    return VNPU_API(deviceId) { limits().reset(owner(device_of(deviceId))); };
}

aclError aclrtSetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t value) {
    return VNPU_API(stream, type, value) { limits().set(owner(*stream_of(stream)), type, value); };
}

aclError aclrtGetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t *value) {
    return VNPU_API(stream, type, value) { required(value, "value") = limit_of(*stream_of(stream), type); };
}

aclError aclrtResetStreamResLimit(aclrtStream stream) {
    return VNPU_API(stream) { limits().reset(owner(*stream_of(stream))); };
}

aclError aclrtUseStreamResInCurrentThread(aclrtStream stream) {
    return VNPU_API(stream) { adopted = owner(*stream_of(stream)); };
}

aclError aclrtUnuseStreamResInCurrentThread(aclrtStream stream) {
    return VNPU_API(stream) {
        if (adopted == owner(*stream_of(stream))) adopted.reset();
    };
}

aclError aclrtGetResInCurrentThread(aclrtDevResLimitType type, uint32_t *value) {
    return VNPU_API(type, value) {
        uint32_t &answer = required(value, "value");
        answer = limit_of(Machine::instance().current(), type);
        if (adopted) answer = limits().get(*adopted, type, answer);
    };
}
