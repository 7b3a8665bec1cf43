// The library's life, devices, and which one a thread uses.
#include <acl/acl_rt.h>
#include <acl/error_codes/rt_error_codes.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "ascendcl/configuration.h"
#include "ascendcl/version.h"
#include "ascendcl/visible_devices.h"
#include "device/abort.h"
#include "device/machine.h"
#include "device/peers.h"
#include "device/timeline.h"

using namespace vnpu;
using acl::required;

namespace {

std::atomic<bool> initialized{false};

Machine &machine() { return Machine::instance(); }

// Fault InvalidDevice for a number that ASCEND_RT_VISIBLE_DEVICES hides.
int visible(int device) {
    const int count = acl::visible_device_count();
    if (device < 0 || device >= count)
        fail(FaultKind::InvalidDevice,
             "There is no device {}: this process sees {} (VNPU_DEVICES, limited by ASCEND_RT_VISIBLE_DEVICES).",
             device, count);
    return device;
}

// How often each device was set and not reset since: the last reset is the one that frees (aclrtResetDevice).
struct References {
    std::mutex mutex;
    std::map<int, int> of;
};
References &references() {
    static auto *all = new References;  // never destroyed: devices are reset until the very end
    return *all;
}

void reset(int device) {
    machine().reset(device);
    const std::lock_guard lock(references().mutex);
    references().of.erase(device);
}

void reset_all() {
    for (int i = 0; i < machine().settings().devices; ++i)
        if (machine().active(i)) reset(i);
}

}  // namespace

// Of the configuration file "defaultDevice" is taken. "dump" asks for files on an AI Core exception, which has no
// counterpart here: a failed kernel's message says what happened.
aclError aclInit(const char *configPath) {
    return VNPU_API(configPath) {
        machine();
        acl::cann_version();  // torch_npu, which asks for it first, takes an error for a CANN that has no version
        std::optional<int> device;
        if (configPath != nullptr && *configPath != '\0')
            device = acl::default_device(acl::read_configuration(configPath), configPath);
        if (initialized.exchange(true))
            throw acl::Error(ACL_ERROR_REPEAT_INITIALIZE, "aclInit was called before in this process.");
        machine().set_default(device);
    };
}

// Resets every device in use: queued work runs to its end, the workers are joined, memory goes back.
aclError aclFinalize() {
    return VNPU_API() {
        if (!initialized.exchange(false))
            throw acl::Error(ACL_ERROR_REPEAT_FINALIZE, "aclFinalize was called without a preceding aclInit.");
        machine().set_default(std::nullopt);
        reset_all();
    };
}

aclError aclrtSetDevice(int32_t deviceId) {
    return VNPU_API(deviceId) {
        machine().set_current(visible(deviceId));
        const std::lock_guard lock(references().mutex);
        ++references().of[deviceId];
    };
}

aclError aclrtResetDevice(int32_t deviceId) {
    return VNPU_API(deviceId) {
        {
            const std::lock_guard lock(references().mutex);
            const auto found = references().of.find(visible(deviceId));
            if (found != references().of.end() && found->second > 1) {
                --found->second;
                return;
            }
        }
        reset(deviceId);
    };
}

aclError aclrtResetDeviceForce(int32_t deviceId) {
    return VNPU_API(deviceId) { reset(visible(deviceId)); };
}

aclError aclrtGetDevice(int32_t *deviceId) {
    return VNPU_API(deviceId) { required(deviceId, "deviceId") = machine().chosen(); };
}

aclError aclrtGetDeviceCount(uint32_t *count) {
    return VNPU_API(count) { required(count, "count") = static_cast<uint32_t>(acl::visible_device_count()); };
}

aclError aclrtGetRunMode(aclrtRunMode *runMode) {
    return VNPU_API(runMode) { required(runMode, "runMode") = ACL_HOST; };
}

aclError aclrtSynchronizeDevice() {
    const CallScope call(__func__);
    return VNPU_API() { machine().synchronize(machine().current().index()); };
}

aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout) {
    const CallScope call(__func__);
    return VNPU_API(timeout) { machine().synchronize(machine().current().index(), acl::deadline(timeout)); };
}

// `timeout`: milliseconds; 0 waits for ever.
aclError aclrtDeviceTaskAbort(int32_t deviceId, uint32_t timeout) {
    return VNPU_API(deviceId, timeout) {
        const Clock::time_point until = Clock::now() + std::chrono::milliseconds(timeout);
        abort_tasks(visible(deviceId), timeout == 0 ? Deadline() : until);
    };
}

aclError aclrtQueryDeviceStatus(int32_t deviceId, aclrtDeviceStatus *deviceStatus) {
    return VNPU_API(deviceId, deviceStatus) {
        visible(deviceId);
        required(deviceStatus, "deviceStatus") = ACL_RT_DEVICE_STATUS_NORMAL;
    };
}

aclError aclrtGetPrimaryCtxState(int32_t deviceId, uint32_t *flags, int32_t *active) {
    return VNPU_API(deviceId, flags, active) {
        visible(deviceId);
        if (flags != nullptr) *flags = 0;  // torch_npu passes null
        required(active, "active") = machine().active(deviceId) ? 1 : 0;
    };
}

// The memory of all devices is one address space, so every device can reach every other, once that was asked for.
aclError aclrtDeviceCanAccessPeer(int32_t *canAccessPeer, int32_t deviceId, int32_t peerDeviceId) {
    return VNPU_API(canAccessPeer, deviceId, peerDeviceId) {
        required(canAccessPeer, "canAccessPeer") = visible(deviceId) != visible(peerDeviceId) ? 1 : 0;
    };
}

aclError aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags) {
    return VNPU_API(peerDeviceId, flags) {
        if (flags != 0) fail(FaultKind::InvalidArgument, "flags is {}; it must be 0.", flags);
        open_peer(machine().current().index(), visible(peerDeviceId));
    };
}

aclError aclrtDeviceDisablePeerAccess(int32_t peerDeviceId) {
    return VNPU_API(peerDeviceId) { close_peer(machine().current().index(), visible(peerDeviceId)); };
}

aclError aclrtGetLogicDevIdByUserDevId(const int32_t userDevid, int32_t *const logicDevId) {
    return VNPU_API(userDevid, logicDevId) {
        required(logicDevId, "logicDevId") = acl::physical_device(visible(userDevid));
    };
}

// The process id as device and driver know it; in a container that is not the one getpid() gives, here it is.
aclError aclrtDeviceGetBareTgid(int32_t *pid) {
    return VNPU_API(pid) { required(pid, "pid") = getpid(); };
}

const char *aclrtGetSocName() {
    return VNPU_API() { return machine().settings().chip->name; };
}
