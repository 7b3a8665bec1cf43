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

constexpr std::array kCrashes = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
std::array<struct sigaction, kCrashes.size()> handlers_before;
int crash_file = -1;

// Takes no memory: the crash may have come while the allocator held its lock.
void on_crash(int number, siginfo_t *info, void *) noexcept {
    for (size_t i = 0; i < kCrashes.size(); ++i) sigaction(kCrashes[i], &handlers_before[i], nullptr);
    std::array<char, 64> place{};
    const Stream *stream = current_worker();
    if (stream != nullptr) fmt::format_to_n(place.data(), place.size() - 1, "a task of stream={}", stream->id());
    std::array<char, 256> line{};
    const auto end = fmt::format_to_n(line.data(), line.size() - 1, "{:.6f} {} crash in {} -> signal {}", seconds(),
                                      syscall(SYS_gettid), stream == nullptr ? called() : place.data(), number);
    *end.out = '\n';
    // Where it cannot be written, there is nobody left to be told.
    [[maybe_unused]] const ssize_t written =
        ::write(crash_file, line.data(), static_cast<size_t>(end.out - line.data()) + 1);
    // Then it goes where it would have gone without us: a fault comes again by itself, with its address.
    if (info->si_code <= 0) raise(number);
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
    action.sa_sigaction = on_crash;
    action.sa_flags = SA_ONSTACK | SA_SIGINFO;
    for (size_t i = 0; i < kCrashes.size(); ++i) sigaction(kCrashes[i], &action, &handlers_before[i]);
}

void Trace::write(std::string line) noexcept {
    for (size_t at = 0; (at = line.find('\n', at)) != std::string::npos; at += 2) line.replace(at, 1, "\\n");
    line += '\n';
    ssize_t written = -1;
    do written = ::write(file_, line.data(), line.size());
    while (written < 0 && errno == EINTR);
    // A full disk must not disturb the traced program: the rest of the trace is lost, the program goes on.
    if (written < 0) file_ = -1;
}

void Trace::call(std::string_view name, std::string_view arguments, std::string_view result) noexcept {
    write(fmt::format("{:.6f} {} call {}({}) -> {}", seconds(), syscall(SYS_gettid), name, arguments, result));
}

void Trace::task(const Stream &stream, std::string_view name, std::string_view failure) noexcept {
    write(fmt::format("{:.6f} {} run {} stream={} device={} -> {}", seconds(), syscall(SYS_gettid), name, stream.id(),
                      stream.device(), failure.empty() ? "ok" : failure));
}

}  // namespace vnpu
