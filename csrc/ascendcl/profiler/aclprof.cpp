// The profiler's interface (acl_prof.h), of which libmsprofiler.so has a part and libascendcl.so another: torch_npu
// finds both here. A call that cannot do what it is asked says so in one sentence on stderr as well: torch_npu only
// notes the code in a log that nobody reads, and its user would miss files without a word.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <set>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "ascendcl/profiler/mark.h"
#include "ascendcl/profiler/session.h"
#include "device/machine.h"

using namespace vnpu;
using acl::required;

#define PROF_EXPORT extern "C" [[gnu::visibility("default")]]

namespace {

struct Profiler {
    std::mutex mutex;
    std::optional<std::string> path;  // from aclprofInit to aclprofFinalize
    std::shared_ptr<acl::ProfilerSession> session;
    std::shared_ptr<acl::ProfilerSession> last;  // stopped, not yet finalized
};

Profiler &profiler() {
    static auto *const one = new Profiler;  // never destroyed: a program may profile to its very end
    return *one;
}

void say(const std::string &message) { std::fprintf(stderr, "torchport: %s\n", message.c_str()); }

[[noreturn]] void refuse(aclError code, const std::string &message) {
    say(message);
    throw acl::Error(code, message);
}

// Once for each of what a user may switch on: a program may start many sessions.
void say_missing(const char *what, const std::string &message) {
    static auto *const said = new std::set<std::string>;  // under the profiler's lock
    if (said->insert(what).second) say(message);
}

// What aclprofSetConfig is given for, and torch_npu's word for it.
const char *collected_by(aclprofConfigType type) {
    switch (type) {
        case ACL_PROF_SYS_IO_FREQ:
            return "the traffic of network cards (sys_io)";
        case ACL_PROF_SYS_INTERCONNECTION_FREQ:
            return "the traffic of links (sys_interconnection)";
        case ACL_PROF_HOST_SYS:
        case ACL_PROF_HOST_SYS_USAGE:
        case ACL_PROF_HOST_SYS_USAGE_FREQ:
            return "this machine's own load (host_sys)";
        default:
            return nullptr;
    }
}

}  // namespace

std::shared_ptr<acl::ProfilerSession> acl::profiler_session() noexcept {
    Profiler &one = profiler();
    const std::lock_guard lock(one.mutex);
    return one.session;
}

aclError aclprofInit(const char *profilerResultPath, size_t length) {
    return VNPU_API(profilerResultPath, length) {
        acl::not_null(profilerResultPath, "profilerResultPath");
        const std::string path(profilerResultPath, strnlen(profilerResultPath, length));
        if (path.empty()) fail(FaultKind::InvalidArgument, "profilerResultPath is empty.");
        Profiler &one = profiler();
        const std::lock_guard lock(one.mutex);
        if (one.path)
            refuse(ACL_ERROR_PROF_ALREADY_RUN,
                   fmt::format("A profile into {} is going on; the one into {} is not made.", *one.path, path));
        one.path = path;
    };
}

aclError aclprofFinalize() {
    return VNPU_API() {
        Profiler &one = profiler();
        const std::lock_guard lock(one.mutex);
        if (!one.path) throw acl::Error(ACL_ERROR_PROF_NOT_RUN, "aclprofInit has not been called.");
        if (one.session != nullptr) one.session->stop();
        if (one.session != nullptr) one.last = std::move(one.session);
        if (one.last != nullptr) one.last->rewrite_late();
        one.session.reset();
        one.last.reset();
        one.path.reset();
    };
}

aclprofConfig *aclprofCreateConfig(uint32_t *deviceIdList, uint32_t deviceNums, aclprofAicoreMetrics aicoreMetrics,
                                   const aclprofAicoreEvents *aicoreEvents, uint64_t dataTypeConfig) {
    return VNPU_API(deviceIdList, deviceNums, aicoreMetrics, aicoreEvents, dataTypeConfig)->aclprofConfig * {
        if (deviceNums > 0) acl::not_null(deviceIdList, "deviceIdList");
        const auto devices = static_cast<uint32_t>(Machine::instance().settings().devices);
        for (uint32_t i = 0; i < deviceNums; ++i)
            if (deviceIdList[i] >= devices)
                fail(FaultKind::InvalidDevice, "deviceIdList[{}] is {}; the virtual NPU has devices 0 to {}.", i,
                     deviceIdList[i], devices - 1);
        return new aclprofConfig{{deviceIdList, deviceIdList + deviceNums}, aicoreMetrics, dataTypeConfig};
    };
}

aclError aclprofDestroyConfig(const aclprofConfig *profilerConfig) {
    return VNPU_API(profilerConfig) {
        acl::not_null(profilerConfig, "profilerConfig");
        delete profilerConfig;
    };
}

aclError aclprofStart(const aclprofConfig *profilerConfig) {
    return VNPU_API(profilerConfig) {
        acl::not_null(profilerConfig, "profilerConfig");
        Profiler &one = profiler();
        const std::lock_guard lock(one.mutex);
        if (!one.path) throw acl::Error(ACL_ERROR_PROF_NOT_RUN, "aclprofInit has not been called.");
        if (one.session != nullptr)
            refuse(ACL_ERROR_PROF_ALREADY_RUN,
                   fmt::format("The profile into {} runs already; it is not started again.", *one.path));
        try {
            one.session = std::make_shared<acl::ProfilerSession>(*one.path, *profilerConfig);
        } catch (const std::exception &error) {
            refuse(ACL_ERROR_PROFILING_FAILURE,
                   fmt::format("The NPU's part of the profile is missing: {}", error.what()));
        }
        if ((profilerConfig->switches & ACL_PROF_L2CACHE) != 0)
            say_missing("l2", "l2_cache.csv will be missing: the virtual NPU's model counts no hits of the L2 cache.");
    };
}

aclError aclprofStop(const aclprofConfig *profilerConfig) {
    return VNPU_API(profilerConfig) {
        acl::not_null(profilerConfig, "profilerConfig");
        Profiler &one = profiler();
        const std::lock_guard lock(one.mutex);
        if (one.session == nullptr) throw acl::Error(ACL_ERROR_PROF_NOT_RUN, "No profile is running.");
        one.session->stop();
        one.last = std::move(one.session);
    };
}

// What is collected by the way: memory is logged at each change. What has no model is refused: no traffic of network
// cards and links, no counters of the host.
PROF_EXPORT aclError aclprofSetConfig(aclprofConfigType configType, const char *config, size_t configLength) {
    return VNPU_API(configType, config, configLength) {
        acl::not_null(config, "config");
        if (configLength == 0 || configLength > 4096)
            fail(FaultKind::InvalidArgument, "configLength is {}; it is 1 to 4096.", configLength);
        const auto number = static_cast<int>(configType);
        switch (configType) {
            case ACL_PROF_STORAGE_LIMIT:
            case ACL_PROF_SYS_HARDWARE_MEM_FREQ:
            case ACL_PROF_LLC_MODE:
                return;
            default: {
                const char *what = collected_by(configType);
                const std::string message =
                    fmt::format("The virtual NPU has no model for {}; no file will have it.",
                                what ? std::string(what) : fmt::format("what setting {} collects", number));
                const std::lock_guard lock(profiler().mutex);
                if (what != nullptr) say_missing(what, message);
                throw acl::Error(ACL_ERROR_PROF_MODULES_UNSUPPORTED, message);
            }
        }
    };
}

// A session needs no preparation that takes time: there is no device to be told.
PROF_EXPORT aclError aclprofWarmup(const aclprofConfig *profilerConfig) {
    return VNPU_API(profilerConfig) {
        acl::not_null(profilerConfig, "profilerConfig");
        Profiler &one = profiler();
        const std::lock_guard lock(one.mutex);
        if (!one.path) throw acl::Error(ACL_ERROR_PROF_NOT_RUN, "aclprofInit has not been called.");
    };
}

// Devices that the program uses later belong to the profile in any case.
PROF_EXPORT aclError aclprofRegisterDeviceCallback() {
    return VNPU_API() {
        if (acl::profiler_session() == nullptr) throw acl::Error(ACL_ERROR_PROF_NOT_RUN, "No profile is running.");
    };
}

namespace {

// As torch_npu reads them (csrc/profiler/feature_mgr.h of 2.13): both with a table of virtual functions in front.
struct Feature {
    const void *table = nullptr;
    char name[64] = {};
    const void *info_table = nullptr;
    char compatibility[16] = "1", version[16] = "1", component[16] = "all", component_version[16] = "all";
    char log[128] = "It is supported by the virtual NPU.";
};
static_assert(sizeof(Feature) == 272);

}  // namespace

PROF_EXPORT aclError aclprofGetSupportedFeaturesV2(size_t *featuresSize, void **featuresData) {
    return VNPU_API(featuresSize, featuresData) {
        static auto *const features = [] {
            auto *all = new std::vector<Feature>(3);
            const char *const names[] = {"ATTR", "MemoryAccess", "AICORE_SHAPE"};
            for (size_t i = 0; i < all->size(); ++i) std::strncpy((*all)[i].name, names[i], sizeof(Feature::name) - 1);
            return all;
        }();
        required(featuresSize, "featuresSize") = features->size();
        required(featuresData, "featuresData") = features->data();
    };
}

PROF_EXPORT aclError aclprofGetSupportedFeatures(size_t *featuresSize, void **featuresData) {
    return aclprofGetSupportedFeaturesV2(featuresSize, featuresData);
}

aclError aclprofMarkEx(const char *msg, size_t msgLen, aclrtStream stream) {
    return VNPU_API(msg, msgLen, stream) {
        acl::not_null(msg, "msg");
        acl::mark("default", std::string_view(msg, strnlen(msg, msgLen)), stream);
    };
}

// --- steps, for programs that mark their own
struct aclprofStepInfo {
    uint64_t range = 0;
};

aclprofStepInfo *aclprofCreateStepInfo() {
    return VNPU_API()->aclprofStepInfo * { return new aclprofStepInfo; };
}

void aclprofDestroyStepInfo(aclprofStepInfo *stepinfo) { delete stepinfo; }

aclError aclprofGetStepTimestamp(aclprofStepInfo *stepInfo, aclprofStepTag tag, aclrtStream stream) {
    return VNPU_API(stepInfo, tag, stream) {
        aclprofStepInfo &step = required(stepInfo, "stepInfo");
        if (tag == ACL_STEP_START) {
            step.range = acl::begin_range("default", "step", stream);
        } else if (tag == ACL_STEP_END) {
            acl::end_range(step.range);
        } else {
            fail(FaultKind::InvalidArgument, "tag is {}; it is 0 (start) or 1 (end).", static_cast<int>(tag));
        }
    };
}
