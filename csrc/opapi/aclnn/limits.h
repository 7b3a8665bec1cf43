// What the chip's cores cannot, where this machine's can, and what they do not notice, where ATen's kernels do.
#pragma once

#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "device/chip.h"
#include "device/fault.h"

namespace vnpu::opapi {

class Operand;

// Whether the chip's own limits count: VNPU_CHECKS=any lifts them, and none of torch's.
bool chip_limits();
// Of the machine's chip.
bool chip_is(Generation generation);
[[noreturn]] void beyond_the_chip(FaultKind kind, std::string sentence);

// What CANN's first phase refuses (161002), by name and value: on_chip(dilation == 1, "parameter dilation ...").
template <class... Args>
void on_chip(bool holds, fmt::format_string<Args...> text, Args &&...args) {
    if (!holds && chip_limits())
        beyond_the_chip(FaultKind::InvalidArgument, fmt::format(text, std::forward<Args>(args)...));
}
// What the kernel has no plan for: an operator that is one kernel (561002) ...
template <class... Args>
void tiled(bool holds, fmt::format_string<Args...> text, Args &&...args) {
    if (!holds && chip_limits())
        beyond_the_chip(FaultKind::TilingRefused, fmt::format(text, std::forward<Args>(args)...));
}
// ... or one of several that an operator is made of (561103).
template <class... Args>
void tiled_part(bool holds, fmt::format_string<Args...> text, Args &&...args) {
    if (!holds && chip_limits())
        beyond_the_chip(FaultKind::PartRefused, fmt::format(text, std::forward<Args>(args)...));
}

// Refuses a call of what has other parameters in an older CANN, which torch_npu gives it (VNPU_CANN); asked for before
// the first of them is looked at. `since` of signatures.json.
void since(int major, int minor);

// The fewest dimensions that CANN's own check lets pass, where ATen computes with fewer.
void fewest_dimensions(const Operand &tensor, int64_t dimensions);

// Whether mistakes of the program that hardware does not notice give a value (VNPU_HIDDEN_BUGS=hardware) and no error.
bool bugs_hidden();
// What hardware does instead, behind the error: "division by zero gives the dividend".
std::string hidden_on_hardware(const char *instead);

// Runs what ATen stops at such a mistake, with these words; its error then says what hardware would do.
template <class Run>
void noticing(std::string_view words, const char *instead, Run run) {
    try {
        run();
    } catch (const c10::Error &error) {
        const std::string sentence = error.what_without_backtrace();
        if (sentence.find(words) == std::string::npos) throw;
        throw std::runtime_error(sentence + hidden_on_hardware(instead));
    }
}

}  // namespace vnpu::opapi
