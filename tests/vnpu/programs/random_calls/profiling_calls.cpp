#include <acl/acl_prof.h>

#include <memory>

#include "calls.h"

// Declared in no header that the wheel of torch_npu has.
extern "C" {
aclError aclprofSetConfig(aclprofConfigType type, const char *config, size_t length);
aclError aclprofWarmup(const aclprofConfig *config);
aclError aclprofRegisterDeviceCallback();
aclError aclprofGetSupportedFeatures(size_t *size, void **data);
aclError aclprofGetSupportedFeaturesV2(size_t *size, void **data);
}

namespace random_calls {
namespace {

struct Destroy {
    void operator()(aclprofConfig *config) const { aclprofDestroyConfig(config); }
};

// One of a device that there may not be; null where it was refused.
std::unique_ptr<aclprofConfig, Destroy> config(Draw &draw) {
    auto device = static_cast<uint32_t>(draw.number());
    return std::unique_ptr<aclprofConfig, Destroy>(
        aclprofCreateConfig(&device, 1, ACL_AICORE_PIPE_UTILIZATION, nullptr, ACL_PROF_ACL_API));
}

// Where nothing can be written, so that no files are left: sessions are not started, but asked for.
int init(Draw &) {
    constexpr char kNowhere[] = "/proc/nowhere";
    return aclprofInit(kNowhere, sizeof kNowhere - 1);
}

int step(Draw &draw) {
    aclprofStepInfo *step = aclprofCreateStepInfo();
    const int code = aclprofGetStepTimestamp(step, ACL_STEP_START, nullptr);
    aclprofGetStepTimestamp(step, static_cast<aclprofStepTag>(draw.number() % 3), nullptr);
    aclprofDestroyStepInfo(step);
    return code;
}

}  // namespace

std::vector<Call> profiling_calls() {
    return {
        {"aclprofInit", init, 1},
        RARELY(aclprofFinalize),
        {"aclprofStart", [](Draw &draw) -> int { return aclprofStart(config(draw).get()); }, 1},
        {"aclprofStop", [](Draw &draw) -> int { return aclprofStop(config(draw).get()); }, 1},
        {"aclprofWarmup", [](Draw &draw) -> int { return aclprofWarmup(config(draw).get()); }, 1},
        {"aclprofCreateConfig", [](Draw &draw) -> int { return ignored(config(draw)); }, 1},
        RARELY(aclprofDestroyConfig, nullptr),
        {"aclprofSetConfig",
         [](Draw &draw) -> int {
             return aclprofSetConfig(static_cast<aclprofConfigType>(draw.number() % 20), "50", draw.number() % 4);
         },
         1},
        RARELY(aclprofRegisterDeviceCallback),
        RARELY(aclprofGetSupportedFeatures, draw.out<size_t>(), draw.out<void *>()),
        RARELY(aclprofGetSupportedFeaturesV2, draw.out<size_t>(), draw.out<void *>()),
        RARELY(aclprofMarkEx, "mark", draw.number() % 5, nullptr),
        {"aclprofCreateStamp", [](Draw &) -> int { return ignored(aclprofCreateStamp()); }, 1},
        {"aclprofDestroyStamp", [](Draw &draw) -> int { return aclprofDestroyStamp(draw.anything()), 0; }, 1},
        RARELY(aclprofSetStampTraceMessage, draw.anything(), "a stamp", static_cast<uint32_t>(draw.number() % 200)),
        RARELY(aclprofMark, draw.anything()),
        RARELY(aclprofPush, draw.anything()),
        RARELY(aclprofPop),
        RARELY(aclprofRangeStart, draw.anything(), nullptr),
        RARELY(aclprofRangeStop, static_cast<uint32_t>(draw.number())),
        {"aclprofCreateStepInfo", step, 1},
        {"aclprofGetStepTimestamp", step, 1},
        {"aclprofDestroyStepInfo", step, 1},
    };
}

}  // namespace random_calls
