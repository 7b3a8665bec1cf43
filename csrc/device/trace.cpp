#include "device/trace.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "device/doorbell.h"
#include "device/fault.h"
#include "device/stream.h"

namespace vnpu {
namespace {

const Clock::time_point start = Clock::now();

double seconds() { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A call writes its line when it is over, and one that crashes never is: this names the C function that the crashing
// thread is in, the only ones whose names a loaded library still has. Not promised to be safe in a signal handler, but
// the process ends anyway, and only with a trace asked for does it get here.
const char *called() noexcept {
    std::array<void *, 64> frames{};
    const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
    for (int i = 0; i < count; ++i) {
        Dl_info found{};
        if (dladdr(frames[static_cast<size_t>(i)], &found) == 0 || found.dli_sname == nullptr) continue;
        const std::string_view name(found.dli_sname);
        for (const char *prefix : {"acl", "rt", "Hccl", "Msprof"})
            if (name.starts_with(prefix)) return found.dli_sname;
    }
    return "no call";
}

// Appends one line, however many its text has; false where the disk is full.
bool append(int file, std::string line) noexcept {
    for (size_t at = 0; (at = line.find('\n', at)) != std::string::npos; at += 2) line.replace(at, 1, "\\n");
    line += '\n';
    ssize_t written = -1;
    do written = ::write(file, line.data(), line.size());
    while (written < 0 && errno == EINTR);
    return written >= 0;
}

constexpr std::array kCrashes = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
std::array<struct sigaction, kCrashes.size()> handlers_before;
int crash_file = -1;

void on_crash(int number) noexcept {
    for (size_t i = 0; i < kCrashes.size(); ++i)
        if (kCrashes[i] == number) sigaction(number, &handlers_before[i], nullptr);
    const Stream *stream = current_worker();
    const std::string where = stream == nullptr ? called() : fmt::format("a task of stream={}", stream->id());
    append(crash_file,
           fmt::format("{:.6f} {} crash in {} -> signal {}", seconds(), syscall(SYS_gettid), where, number));
    raise(number);  // delivered when this returns, to whom it would have gone without us
}

}  // namespace

std::atomic<int> Trace::file_{-1};

void Trace::open(const char *path) {
    file_ = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file_ < 0)
        fail(FaultKind::InvalidArgument, "VNPU_TRACE={} cannot be opened for writing: {}.", path, std::strerror(errno));
    crash_file = file_;
    called();  // loads what backtrace() needs, while memory can still be had
    struct sigaction action{};
    action.sa_handler = on_crash;
    action.sa_flags = SA_ONSTACK;
    for (size_t i = 0; i < kCrashes.size(); ++i) sigaction(kCrashes[i], &action, &handlers_before[i]);
}

void Trace::write(std::string line) noexcept {
    // A full disk must not disturb the traced program: the rest of the trace is lost, the program goes on.
    if (!append(file_, std::move(line))) file_ = -1;
}

void Trace::call(std::string_view name, std::string_view arguments, std::string_view result) noexcept {
    write(fmt::format("{:.6f} {} call {}({}) -> {}", seconds(), syscall(SYS_gettid), name, arguments, result));
}

void Trace::task(const Stream &stream, std::string_view name, std::string_view failure) noexcept {
    write(fmt::format("{:.6f} {} run {} stream={} device={} -> {}", seconds(), syscall(SYS_gettid), name, stream.id(),
                      stream.device(), failure.empty() ? "ok" : failure));
}

}  // namespace vnpu
