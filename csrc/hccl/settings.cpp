// Settings of the collectives for the whole process: HcclSetConfig, and the time-outs of the environment.
#include "hccl/settings.h"

#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "hccl/api.h"

using namespace vnpu;

namespace {

std::array<std::atomic<int32_t>, HCCL_CONFIG_RESERVED> settings{};

std::atomic<int32_t> &setting(HcclConfig config) {
    if (config < HCCL_DETERMINISTIC || config >= HCCL_CONFIG_RESERVED)
        fail(FaultKind::InvalidArgument, "config is {}, which is none of HcclConfig.", static_cast<int>(config));
    return settings[static_cast<size_t>(config)];
}

std::chrono::seconds seconds(const char *name, const char *text, int otherwise, int least) {
    if (text == nullptr || *text == '\0') return std::chrono::seconds(otherwise);
    const std::string_view value(text);
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < least)
        fail(FaultKind::InvalidArgument, "{}={} is not a number of seconds from {} on.", name, value, least);
    return std::chrono::seconds(number);
}

}  // namespace

// Defaults and ranges: CANN 8, environment variables of HCCL.
std::optional<Clock::duration> hccl::exec_timeout() {
    const auto limit = seconds("HCCL_EXEC_TIMEOUT", std::getenv("HCCL_EXEC_TIMEOUT"), 1836, 0);
    if (limit.count() == 0) return std::nullopt;
    return limit;
}

std::chrono::seconds hccl::connect_timeout() {
    return seconds("HCCL_CONNECT_TIMEOUT", std::getenv("HCCL_CONNECT_TIMEOUT"), 120, 1);
}

HcclResult HcclSetConfig(HcclConfig config, HcclConfigValue configValue) {
    return static_cast<HcclResult>(
        VNPU_COLLECTIVE_API(config, configValue.value) { setting(config).store(configValue.value); });
}

HcclResult HcclGetConfig(HcclConfig config, HcclConfigValue *configValue) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(config, configValue) {
        acl::required(configValue, "configValue").value = setting(config).load();
    });
}
