#include "device/trace.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "device/doorbell.h"
#include "device/fault.h"
#include "device/stream.h"

namespace vnpu {
namespace {

const Clock::time_point start = Clock::now();

}  // namespace

std::atomic<int> Trace::file_{-1};

void Trace::open(const char *path) {
    file_ = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file_ < 0)
        fail(FaultKind::InvalidArgument, "VNPU_TRACE={} cannot be opened for writing: {}.", path, std::strerror(errno));
}

void Trace::write(std::string line) noexcept {
    line += '\n';
    // A full disk must not disturb the traced program: the rest of the trace is lost, the program goes on.
    if (::write(file_, line.data(), line.size()) < 0) file_ = -1;
}

void Trace::call(std::string_view name, std::string_view arguments, std::string_view result) noexcept {
    const double at = std::chrono::duration<double>(Clock::now() - start).count();
    write(fmt::format("{:.6f} {} call {}({}) -> {}", at, syscall(SYS_gettid), name, arguments, result));
}

void Trace::task(const Stream &stream, std::string_view name, std::string_view failure) noexcept {
    const double at = std::chrono::duration<double>(Clock::now() - start).count();
    write(fmt::format("{:.6f} {} run {} stream={} device={} -> {}", at, syscall(SYS_gettid), name, stream.id(),
                      stream.device(), failure.empty() ? "ok" : failure));
}

}  // namespace vnpu
