// libascend_hal.so: the driver's library. torch_npu counts devices through it before the runtime is initialised, so
// that a process may still fork afterwards: nothing here may start the machine.
#include <cstdint>

#include "device/machine.h"

#define HAL_EXPORT extern "C" [[gnu::visibility("default")]]

namespace {

// The driver's own numbers (DRV_ERROR_*), which no header of the wheel defines.
constexpr int kSuccess = 0, kInvalidValue = 3, kNoDevice = 1, kNotSupported = 0xfffe;

// Older than 0x071905, from which on torch_npu takes its times from the processor's counter: ours are
// CLOCK_MONOTONIC_RAW.
constexpr int32_t kVersion = 0x071904;

}  // namespace

// Devices of this machine; ASCEND_RT_VISIBLE_DEVICES is the caller's to apply.
HAL_EXPORT int drvGetDevNum(uint32_t *count) {
    if (count == nullptr) return kInvalidValue;
    try {
        *count = static_cast<uint32_t>(vnpu::Settings::from_environment().devices);
        return kSuccess;
    } catch (...) {
        // VNPU_DEVICES or VNPU_SOC is wrong. This interface has no room for a sentence; aclInit says it.
        return kNoDevice;
    }
}

HAL_EXPORT int halGetAPIVersion(int32_t *version) {
    if (version == nullptr) return kInvalidValue;
    *version = kVersion;
    return kSuccess;
}

// Asked for the frequency of the counter, which there is not.
HAL_EXPORT int halGetDeviceInfo(uint32_t, int32_t, int32_t, int64_t *value) {
    return value == nullptr ? kInvalidValue : kNotSupported;
}

// Host memory that a device maps, for memory shared between chips (shmem).
HAL_EXPORT int halHostRegister(void *, uint64_t, uint32_t, uint32_t, void **) { return kNotSupported; }
HAL_EXPORT int halHostUnregister(void *, uint32_t) { return kNotSupported; }
