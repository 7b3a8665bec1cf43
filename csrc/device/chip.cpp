#include "device/chip.h"

#include "device/fault.h"

namespace vnpu {
namespace {

constexpr Chip kChips[] = {
#include "chips.inc"
};

}  // namespace

const Chip &find_chip(std::string_view name) {
    for (const Chip &chip : kChips)
        if (name == chip.name) return chip;
    fail(FaultKind::InvalidArgument, "VNPU_SOC={} is not a chip profile of the virtual NPU; choose one of {}.", name,
         chip_names());
}

std::string chip_names() {
    std::string names;
    for (const Chip &chip : kChips) names += (names.empty() ? "" : ", ") + std::string(chip.name);
    return names;
}

}  // namespace vnpu
