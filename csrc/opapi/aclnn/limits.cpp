#include "opapi/aclnn/limits.h"

#include <acl/acl.h>

#include <cstdlib>
#include <utility>

#include "device/machine.h"
#include "opapi/aclnn/check.h"

namespace vnpu::opapi {

bool chip_limits() { return Machine::instance().settings().hardware_checks; }

bool chip_is(Generation one) { return generation() == static_cast<size_t>(one); }

void beyond_the_chip(FaultKind kind, std::string sentence) {
    fail(kind, "{} on {}; with VNPU_CHECKS=any the virtual NPU computes it all the same", sentence,
         Machine::instance().settings().chip->name);
}

void since(int major, int minor) {
    char cann[ACL_PKG_VERSION_MAX_SIZE] = {}, package[] = "runtime", *end = nullptr;
    aclsysGetVersionStr(package, cann);
    const long first = std::strtol(cann, &end, 10), second = *end == '.' ? std::strtol(end + 1, nullptr, 10) : 0;
    if (std::pair(first, second) < std::pair<long, long>(major, minor))
        fail(
            FaultKind::Unsupported,
            "CANN {} calls this operator with other parameters than CANN {}.{} and later, whose are known here: run it "
            "with VNPU_CANN={}.{}.0",
            static_cast<const char *>(cann), major, minor, major, minor);
}

void fewest_dimensions(const Operand &tensor, int64_t dimensions) {
    on_chip(tensor.dim() >= dimensions, "The {} tensor must have at least {} dimensions: it is {}", tensor.parameter(),
            dimensions, describe(tensor));
}

bool bugs_hidden() { return Machine::instance().settings().hidden_bugs; }

std::string hidden_on_hardware(const char *instead) {
    return fmt::format(" (hardware hides this: {}; VNPU_HIDDEN_BUGS=hardware goes on here too)", instead);
}

}  // namespace vnpu::opapi
