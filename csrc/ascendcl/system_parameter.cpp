// Switches of the whole process and of a context: determinism, debug kernels, overflow mode.
#include <acl/acl_rt.h>
#include <acl/error_codes/rt_error_codes.h>

#include <array>
#include <atomic>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "device/machine.h"
#include "device/overflow.h"

using namespace vnpu;
using acl::required;

namespace {

constexpr size_t kOptions = ACL_OPT_STRONG_CONSISTENCY + 1;

// Kernels here are deterministic whatever these say (each runs on one stream's thread, sums in a fixed order).
using Values = std::array<std::atomic<int64_t>, kOptions>;
Values process_values{};
std::array<Values, 64> context_values{};  // by device; VNPU_DEVICES is at most 64

std::atomic<int64_t> &option(Values &values, aclSysParamOpt opt) {
    if (opt < ACL_OPT_DETERMINISTIC || opt > ACL_OPT_STRONG_CONSISTENCY)
        fail(FaultKind::InvalidArgument, "opt is {}, which is none of aclSysParamOpt.", static_cast<int>(opt));
    return values[static_cast<size_t>(opt)];
}

void set(Values &values, aclSysParamOpt opt, int64_t value) {
    std::atomic<int64_t> &target = option(values, opt);
    if (opt == ACL_OPT_ENABLE_DEBUG_KERNEL && value != 0)
        fail(FaultKind::Unsupported, "The virtual NPU has no debug kernels.");
    if (value < 0) fail(FaultKind::InvalidArgument, "value is {}; it must not be negative.", value);
    target.store(value);
}

Values &current_context() { return context_values[static_cast<size_t>(Machine::instance().current().index())]; }

}  // namespace

aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
    return VNPU_API(opt, value) { set(process_values, opt, value); };
}

// Unlike CANN, which fails with 107021 before the first set, this answers 0: what holds.
aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t *value) {
    return VNPU_API(opt, value) { required(value, "value") = option(process_values, opt).load(); };
}

aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
    return VNPU_API(opt, value) { set(current_context(), opt, value); };
}

aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t *value) {
    return VNPU_API(opt, value) { required(value, "value") = option(current_context(), opt).load(); };
}

// What results out of range become, on every device of the process: csrc/device/overflow.h.
aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode) {
    return VNPU_API(mode) {
        if (mode != ACL_RT_OVERFLOW_MODE_SATURATION && mode != ACL_RT_OVERFLOW_MODE_INFNAN)
            fail(FaultKind::InvalidArgument, "mode is {}, which is neither saturation (0) nor inf and nan (1).",
                 static_cast<int>(mode));
        set_overflow_mode(mode == ACL_RT_OVERFLOW_MODE_INFNAN ? OverflowMode::InfNan : OverflowMode::Saturate);
    };
}

aclError aclrtGetDeviceSatMode(aclrtFloatOverflowMode *mode) {
    return VNPU_API(mode) {
        Machine::instance();  // which sets the mode that the chip starts in
        required(mode, "mode") = saturates() ? ACL_RT_OVERFLOW_MODE_SATURATION : ACL_RT_OVERFLOW_MODE_INFNAN;
    };
}
