// Settings of the collectives for the whole process. torch_npu sets determinism on a single device as well, so they are
// kept, though the virtual NPU has no collectives yet.
#include <acl/acl.h>

// The header says nothing of visibility, and this library is built with everything hidden.
#pragma GCC visibility push(default)
#include <third_party/hccl/inc/hccl/hccl.h>
#pragma GCC visibility pop

#include <array>
#include <atomic>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"

using namespace vnpu;

namespace {

std::array<std::atomic<int32_t>, HCCL_CONFIG_RESERVED> settings{};

std::atomic<int32_t> &setting(HcclConfig config) {
    if (config < HCCL_DETERMINISTIC || config >= HCCL_CONFIG_RESERVED)
        fail(FaultKind::InvalidArgument, "config is {}, which is none of HcclConfig.", static_cast<int>(config));
    return settings[static_cast<size_t>(config)];
}

}  // namespace

HcclResult HcclSetConfig(HcclConfig config, HcclConfigValue configValue) {
    return static_cast<HcclResult>(
        VNPU_COLLECTIVE_API(config, configValue.value) { setting(config).store(configValue.value); });
}

HcclResult HcclGetConfig(HcclConfig config, HcclConfigValue *configValue) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(config, configValue) {
        acl::required(configValue, "configValue").value = setting(config).load();
    });
}
