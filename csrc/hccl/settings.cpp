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

int number(const char *name, const char *unit, const char *text, int otherwise, int least) {
    if (text == nullptr || *text == '\0') return otherwise;
    const std::string_view value(text);
    int found = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), found);
    if (error != std::errc() || end != value.data() + value.size() || found < least)
        fail(FaultKind::InvalidArgument, "{}={} is not a number of {} from {} on.", name, value, unit, least);
    return found;
}

std::chrono::seconds seconds(const char *name, const char *text, int otherwise, int least) {
    return std::chrono::seconds(number(name, "seconds", text, otherwise, least));
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

// Default, unit and least value: hcomm (externalinput_pub.h), CANN's page of HCCL_BUFFSIZE.
uint64_t hccl::buffer_size() {
    return uint64_t{1024} * 1024 *
           static_cast<uint64_t>(number("HCCL_BUFFSIZE", "megabytes", std::getenv("HCCL_BUFFSIZE"), 200, 1));
}

uint64_t hccl::buffer_size(uint32_t megabytes) {
    if (megabytes == HCCL_COMM_BUFFSIZE_CONFIG_NOT_SET) return buffer_size();
    if (megabytes == 0) fail(FaultKind::InvalidArgument, "hcclBufferSize is 0; it is a number of megabytes from 1 on.");
    return uint64_t{1024} * 1024 * megabytes;
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
