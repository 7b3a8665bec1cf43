// What a device is: numbers of its chip profile (knowledge/devices.toml).
#include <acl/acl_rt.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "ascendcl/visible_devices.h"
#include "device/machine.h"

using namespace vnpu;
using acl::required;

namespace {

const Chip &chip_of(uint32_t device) {
    Machine &machine = Machine::instance();
    if (device >= static_cast<uint32_t>(acl::visible_device_count()))
        fail(FaultKind::InvalidDevice, "There is no device {}: this process sees {}.", device,
             acl::visible_device_count());
    return *machine.settings().chip;
}

// 0 in the profile means that no source gives the figure: saying so beats a guess.
int64_t known(int64_t value, const Chip &chip, const char *what) {
    if (value == 0) fail(FaultKind::Unsupported, "The profile of {} does not give its {}.", chip.name, what);
    return value;
}

}  // namespace

aclError aclGetDeviceCapability(uint32_t deviceId, aclDeviceInfo deviceInfo, int64_t *value) {
    return VNPU_API(deviceId, deviceInfo, value) {
        const Chip &chip = chip_of(deviceId);
        int64_t &answer = required(value, "value");
        switch (deviceInfo) {
            case ACL_DEVICE_INFO_AI_CORE_NUM:
                answer = chip.cube_cores;
                return;
            case ACL_DEVICE_INFO_VECTOR_CORE_NUM:
                answer = chip.vector_cores;
                return;
            case ACL_DEVICE_INFO_L2_SIZE:
                answer = known(static_cast<int64_t>(chip.l2_bytes), chip, "L2 size");
                return;
            case ACL_DEVICE_INFO_UNDEFINED:
                break;
        }
        fail(FaultKind::InvalidArgument, "deviceInfo is {}, which is none of its values.",
             static_cast<int>(deviceInfo));
    };
}

aclError aclrtGetDeviceInfo(uint32_t deviceId, aclrtDevAttr attr, int64_t *value) {
    return VNPU_API(deviceId, attr, value) {
        const Chip &chip = chip_of(deviceId);
        int64_t &answer = required(value, "value");
        switch (attr) {
            case ACL_DEV_ATTR_AICORE_CORE_NUM:
            case ACL_DEV_ATTR_CUBE_CORE_NUM:
                answer = chip.cube_cores;
                return;
            case ACL_DEV_ATTR_VECTOR_CORE_NUM:
                answer = chip.vector_cores;
                return;
            case ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE:
                answer = static_cast<int64_t>(chip.memory_bytes);
                return;
            case ACL_DEV_ATTR_L2_CACHE_SIZE:
                answer = known(static_cast<int64_t>(chip.l2_bytes), chip, "L2 size");
                return;
            case ACL_DEV_ATTR_PHY_CHIP_ID:
                answer = acl::physical_device(static_cast<int>(deviceId));
                return;
            case ACL_DEV_ATTR_IS_VIRTUAL:
                answer = 1;
                return;
            default:
                fail(FaultKind::Unsupported, "Device attribute {} is not known for the virtual NPU.",
                     static_cast<int>(attr));
        }
    };
}

aclError aclrtGetDeviceCapability(int32_t deviceId, aclrtDevFeatureType devFeatureType, int32_t *value) {
    return VNPU_API(deviceId, devFeatureType, value) {
        chip_of(static_cast<uint32_t>(deviceId));
        required(value, "value") =
            ACL_DEV_FEATURE_NOT_SUPPORT;  // task update, cross-device queues: neither exists here
    };
}

// "vNPU", the physical number, then zeros: equal for the same device in all processes of this machine.
aclError aclrtDeviceGetUuid(int32_t deviceId, aclrtUuid *uuid) {
    return VNPU_API(deviceId, uuid) {
        chip_of(static_cast<uint32_t>(deviceId));
        aclrtUuid answer{{'v', 'N', 'P', 'U'}};
        const int physical = acl::physical_device(deviceId);
        std::memcpy(answer.bytes + 4, &physical, sizeof physical);
        required(uuid, "uuid") = answer;
    };
}

// Memory is what is allocated. Cores: busy or not, since nothing here is a fraction of a core.
aclError aclrtGetDeviceUtilizationRate(int32_t deviceId, aclrtUtilizationInfo *utilizationInfo) {
    return VNPU_API(deviceId, utilizationInfo) {
        chip_of(static_cast<uint32_t>(deviceId));
        Machine &machine = Machine::instance();
        aclrtUtilizationInfo &info = required(utilizationInfo, "utilizationInfo");
        const bool active = machine.active(deviceId);
        const int32_t busy = active && !machine.idle(deviceId) ? 100 : 0;
        info.cubeUtilization = info.vectorUtilization = busy;
        info.aicpuUtilization = 0;
        info.memoryUtilization = 0;
        if (active) {
            const Heap &heap = machine.device(deviceId).heap();
            info.memoryUtilization = static_cast<int32_t>(heap.used() * 100 / heap.capacity());
        }
    };
}

// Bit-for-bit memory errors do not occur: there are none to report, ever.
aclError aclrtGetMemUceInfo(int32_t deviceId, aclrtMemUceInfo *, size_t, size_t *retSize) {
    return VNPU_API(deviceId, retSize) {
        chip_of(static_cast<uint32_t>(deviceId));
        required(retSize, "retSize") = 0;
    };
}

// bfloat16 and overflow to inf and nan follow the chip; nothing is compiled at run time.
aclError aclGetCannAttribute(aclCannAttr cannAttr, int32_t *value) {
    return VNPU_API(cannAttr, value) {
        int32_t &answer = required(value, "value");
        const Chip &chip = *Machine::instance().settings().chip;
        switch (cannAttr) {
            case ACL_CANN_ATTR_INF_NAN:
                answer = chip.inf_nan ? 1 : 0;
                return;
            case ACL_CANN_ATTR_BF16:
                answer = chip.bf16 ? 1 : 0;
                return;
            case ACL_CANN_ATTR_JIT_COMPILE:
                answer = 0;
                return;
            case ACL_CANN_ATTR_UNDEFINED:
                break;
        }
        fail(FaultKind::InvalidArgument, "cannAttr is {}, which is none of its values.", static_cast<int>(cannAttr));
    };
}

aclError aclGetCannAttributeList(const aclCannAttr **cannAttrList, size_t *num) {
    return VNPU_API(num) {
        static const std::vector<aclCannAttr> attributes = [] {
            const Chip &chip = *Machine::instance().settings().chip;
            std::vector<aclCannAttr> has;
            if (chip.inf_nan) has.push_back(ACL_CANN_ATTR_INF_NAN);
            if (chip.bf16) has.push_back(ACL_CANN_ATTR_BF16);
            return has;
        }();
        required(cannAttrList, "cannAttrList") = attributes.data();
        required(num, "num") = attributes.size();
    };
}
