// The VNPU_* variables that shape the machine. Their documentation is the table in torchport.vnpu.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

#include "device/fault.h"
#include "device/launches.h"
#include "device/machine.h"

namespace vnpu {
namespace {

std::string_view variable(const char *name, std::string_view otherwise) {
    const char *value = std::getenv(name);
    return value == nullptr || *value == '\0' ? otherwise : std::string_view(value);
}

// "32GiB", "500 MB", "1e10": bytes. GB is 1000^3, GiB and G are 1024^3.
uint64_t bytes(std::string_view text) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
    while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
    constexpr std::pair<std::string_view, double> kUnits[] = {
        {"", 1},
        {"B", 1},
        {"KiB", 1024.},
        {"K", 1024.},
        {"KB", 1e3},
        {"MiB", 1048576.},
        {"M", 1048576.},
        {"MB", 1e6},
        {"GiB", 1073741824.},
        {"G", 1073741824.},
        {"GB", 1e9},
        {"T", 1099511627776.},
        {"TiB", 1099511627776.},
        {"TB", 1e12},
    };
    for (const auto &[name, factor] : kUnits)
        if (error == std::errc() && unit == name && std::isfinite(number) && number > 0 && number * factor < 0x1p63)
            return static_cast<uint64_t>(number * factor);
    fail(FaultKind::InvalidArgument, "VNPU_HOST_LIMIT={} is not an amount of memory; write for example 16GiB.", text);
}

// Four fifths of what this process can have: the machine's memory or its cgroup's limit, the smaller, which the ranks
// that torchrun starts on one machine share.
uint64_t default_host_limit() {
    uint64_t memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    for (const char *path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
        uint64_t limit = 0;
        if (std::ifstream file(path); file >> limit && limit > 0) memory = std::min(memory, limit);
    }
    uint64_t processes = 1;
    const std::string_view ranks = variable("LOCAL_WORLD_SIZE", "1");
    std::from_chars(ranks.data(), ranks.data() + ranks.size(), processes);
    return memory / 5 * 4 / std::max<uint64_t>(processes, 1);
}

}  // namespace

Settings Settings::from_environment() {
    Settings settings{};
    const std::string_view devices = variable("VNPU_DEVICES", "8");
    const auto [end, error] = std::from_chars(devices.data(), devices.data() + devices.size(), settings.devices);
    if (error != std::errc() || end != devices.data() + devices.size() || settings.devices < 1 ||
        settings.devices > kMostDevices)
        fail(FaultKind::InvalidArgument, "VNPU_DEVICES={} is not a number of devices from 1 to {}.", devices,
             kMostDevices);
    settings.chip = &find_chip(variable("VNPU_SOC", "Ascend910B1"));
    const std::string_view mode = variable("VNPU_MODE", "exact");
    settings.dry = mode == "dry";
    if (!settings.dry && mode != "exact")
        fail(FaultKind::InvalidArgument, "VNPU_MODE={} is neither exact nor dry (operators are checked, not run).",
             mode);
    const std::string_view time = variable("VNPU_TIME", "wall");
    settings.model_time = time == "model";
    if (!settings.model_time && time != "wall")
        fail(FaultKind::InvalidArgument, "VNPU_TIME={} is neither wall (this machine's time) nor model (the chip's).",
             time);
    const std::string_view order = variable("VNPU_SUM_ORDER", "cpu");
    if (order != "cpu") {
        const auto [order_end, order_error] =
            std::from_chars(order.data(), order.data() + order.size(), settings.sum_order.emplace());
        if (order_error != std::errc() || order_end != order.data() + order.size())
            fail(FaultKind::InvalidArgument, "VNPU_SUM_ORDER={} is neither cpu nor a seed (a number from 0).", order);
    }
    const std::string_view share = variable("VNPU_DRY_SHARE", "1");
    const auto [share_end, share_error] =
        std::from_chars(share.data(), share.data() + share.size(), settings.dry_share);
    if (share_error != std::errc() || share_end != share.data() + share.size() || !(settings.dry_share > 0) ||
        settings.dry_share > 1)
        fail(FaultKind::InvalidArgument, "VNPU_DRY_SHARE={} is not a number above 0 and at most 1.", share);
    const std::string_view limit = variable("VNPU_HOST_LIMIT", "");
    settings.host_limit = limit.empty() ? default_host_limit() : bytes(limit);
    if (settings.dry) settings.host_limit = std::numeric_limits<uint64_t>::max();  // nothing is written there
    const std::string_view checks = variable("VNPU_CHECKS", "hardware");
    settings.hardware_checks = checks == "hardware";
    if (!settings.hardware_checks && checks != "any")
        fail(FaultKind::InvalidArgument, "VNPU_CHECKS={} is neither hardware (what it refuses is refused) nor any.",
             checks);
    const std::string_view bugs = variable("VNPU_HIDDEN_BUGS", "error");
    settings.hidden_bugs = bugs == "hardware";
    if (!settings.hidden_bugs && bugs != "error")
        fail(FaultKind::InvalidArgument, "VNPU_HIDDEN_BUGS={} is neither error nor hardware.", bugs);
    const std::string_view check = variable("VNPU_CHECK_MEMORY", "0");
    settings.check_memory = check == "1";
    if (!settings.check_memory && check != "0")
        fail(FaultKind::InvalidArgument, "VNPU_CHECK_MEMORY={} is neither 0 nor 1.", check);
    return settings;
}

}  // namespace vnpu
