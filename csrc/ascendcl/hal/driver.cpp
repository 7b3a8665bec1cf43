// libascend_hal.so: the driver's library. torch_npu counts devices through it before the runtime is initialised, so
// that a process may still fork afterwards: nothing here may start the machine.
#include <cstdint>

#include "device/machine.h"

namespace {

// The driver's own numbers (DRV_ERROR_*), which no header of the wheel defines.
constexpr int kSuccess = 0, kInvalidValue = 3, kNoDevice = 1;

}  // namespace

// Devices of this machine; ASCEND_RT_VISIBLE_DEVICES is the caller's to apply.
extern "C" [[gnu::visibility("default")]] int drvGetDevNum(uint32_t *count) {
    if (count == nullptr) return kInvalidValue;
    try {
        *count = static_cast<uint32_t>(vnpu::Settings::from_environment().devices);
        return kSuccess;
    } catch (...) {
        // VNPU_DEVICES or VNPU_SOC is wrong. This interface has no room for a sentence; aclInit says it.
        return kNoDevice;
    }
}
