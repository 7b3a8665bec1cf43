#include "device/chip.h"

#include "device/fault.h"

namespace vnpu {
namespace {

constexpr Chip kChips[] = {
#include "chips.inc"
};

}  // namespace

const Chip &find_chip(std::string_view name) {
    std::string why;
    for (const Chip &chip : kChips) {
        if (chip.lacking == nullptr && name == chip.name) return chip;
        if (chip.lacking != nullptr && name.starts_with(chip.name)) why = fmt::format(" ({})", chip.lacking);
    }
    fail(FaultKind::InvalidArgument, "VNPU_SOC={} is not a chip profile of the virtual NPU{}; choose one of {}.", name,
         why, chip_names());
}

std::string chip_names() {
    std::string names;
    for (const Chip &chip : kChips)
        if (chip.lacking == nullptr) names += (names.empty() ? "" : ", ") + std::string(chip.name);
    return names;
}

}  // namespace vnpu
