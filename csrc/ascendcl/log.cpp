// aclAppLog: torch_npu's own log. CANN writes it to files below ~/ascend; here it goes to the trace, and to standard
// output where ASCEND_SLOG_PRINT_TO_STDOUT=1 asks for it (level ASCEND_GLOBAL_LOG_LEVEL, default 3: errors).
#include <acl/acl_base.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "ascendcl/call.h"

using namespace vnpu;

namespace {

constexpr std::array<const char *, 4> kLevels = {"DEBUG", "INFO", "WARNING", "ERROR"};

// The lowest level that is printed; above all levels where nothing is.
int printed_level() {
    static const int level = [] {
        const char *print = std::getenv("ASCEND_SLOG_PRINT_TO_STDOUT");
        if (print == nullptr || std::string_view(print) != "1") return ACL_ERROR + 1;
        const char *wanted = std::getenv("ASCEND_GLOBAL_LOG_LEVEL");
        return wanted == nullptr ? static_cast<int>(ACL_ERROR) : std::atoi(wanted);
    }();
    return level;
}

}  // namespace

void aclAppLog(aclLogLevel logLevel, const char *func, const char *file, uint32_t line, const char *fmt, ...) {
    const bool print = logLevel >= printed_level();
    if ((!print && !Trace::enabled()) || fmt == nullptr || logLevel < ACL_DEBUG || logLevel > ACL_ERROR) return;
    std::array<char, 1024> text{};
    va_list arguments;
    va_start(arguments, fmt);
    std::vsnprintf(text.data(), text.size(), fmt, arguments);
    va_end(arguments);
    const char *level = kLevels[static_cast<size_t>(logLevel)];
    if (print) std::printf("[%s] %s:%u %s: %s\n", level, file, line, func, text.data());
    if (Trace::enabled()) Trace::call("aclAppLog", level, text.data());
}
