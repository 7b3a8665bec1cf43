#include "device/event_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "device/clock.h"
#include "device/event_records.h"
#include "device/machine.h"
#include "device/observed.h"

namespace vnpu {
namespace {

constexpr size_t kRoom = 1 << 20;  // kept back before it is written

int32_t number_in(const char *variable, int32_t otherwise) {
    const char *text = std::getenv(variable);
    return text == nullptr || *text == '\0' ? otherwise : std::atoi(text);
}

template <class T>
std::byte *put(const T &record, std::byte *to) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::memcpy(to, &record, sizeof record);
    return to + sizeof record;
}

template <class T>
records::Head head(records::Type type) {
    return {sizeof(T), type, 0};
}

std::atomic<EventLog *> of_process{nullptr};

}  // namespace

EventLog::Moment EventLog::Moment::now() noexcept {
    return {monotonic_raw(), vnpu::monotonic(), vnpu::realtime(), clocks::host()};
}

EventLog::EventLog(const std::string &path, const Settings &settings, Of of, std::string subject)
    : of_(of),
      subject_(std::move(subject)),
      file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)),
      process_(getpid()) {
    if (file_ < 0)
        fail(FaultKind::InvalidArgument, "{}{} cannot be opened for writing: {}.",
             of == Of::Process ? "VNPU_TIMELINE=" : "", path, std::strerror(errno));
    kept_.reserve(kRoom + (64 << 10));
    std::memcpy(take(std::strlen(records::kMagic)), records::kMagic, std::strlen(records::kMagic));
    const uint32_t chip = number(settings.chip->name);
    put(records::Process{head<records::Process>(records::kProcess),
                         1,
                         static_cast<uint32_t>(process_),
                         number_in("RANK", 0),
                         number_in("WORLD_SIZE", 1),
                         chip,
                         settings.dry,
                         {},
                         monotonic(),
                         realtime()},
        take(sizeof(records::Process)));
}

EventLog::~EventLog() {
    flush();
    if (file_ >= 0) ::close(file_);
}

std::byte *EventLog::take(size_t bytes) {
    const size_t at = kept_.size();
    kept_.resize(at + bytes);
    return kept_.data() + at;
}

uint32_t EventLog::number(std::string_view name) {
    const auto [found, added] = names_.emplace(name, static_cast<uint32_t>(names_.size()));
    if (!added) return found->second;
    const size_t room = (name.size() + 7) / 8 * 8;
    std::byte *to = take(sizeof(records::Name) + room);
    to = put(records::Name{{static_cast<uint32_t>(sizeof(records::Name) + room), records::kName, 0},
                           found->second,
                           static_cast<uint32_t>(name.size())},
             to);
    std::memcpy(to, name.data(), name.size());
    return found->second;
}

uint32_t EventLog::number_of(const char *name) {
    Known &seen = known_[(reinterpret_cast<uintptr_t>(name) >> 2) % known_.size()];
    if (seen.name != name) seen = {name, number(name)};
    return seen.number;
}

void EventLog::task(const TaskSeen &task) noexcept {
    const std::lock_guard lock(mutex_);
    const Description &what = task.what;
    if (const CollectiveSeen &one = task.collective; of_ == Of::Session && one.group != nullptr) {
        const uint32_t group = number(*one.group);
        put(records::Collective{head<records::Collective>(records::kCollective), group, one.rank, one.sequence,
                                one.count, one.type, one.peer, task.virtual_ready},
            take(sizeof(records::Collective)));
    }
    const uint32_t name = number_of(task.name);
    size_t length = sizeof(records::Task);
    for (const TensorLine &tensor : what.tensors) length += sizeof(records::Tensor) + tensor.rank * sizeof(int64_t);
    std::byte *to = take(length);
    to = put(records::Task{{static_cast<uint32_t>(length), records::kTask, 0},
                           name,
                           static_cast<uint16_t>(task.device),
                           static_cast<uint16_t>(what.tensors.size()),
                           static_cast<uint32_t>(task.stream),
                           task.thread,
                           static_cast<uint8_t>(what.work.unit),
                           task.failed,
                           static_cast<uint16_t>(what.ranks),
                           0,
                           task.correlation,
                           task.times,
                           what.work.flops,
                           what.work.bytes,
                           what.work.converted},
             to);
    for (const TensorLine &tensor : what.tensors) {
        to = put(records::Tensor{tensor.address, tensor.bytes, tensor.dtype, tensor.format, tensor.rank,
                                 static_cast<uint8_t>((tensor.output ? 1 : 0) | (tensor.view ? 2 : 0)), 0},
                 to);
        std::memcpy(to, tensor.sizes.data(), tensor.rank * sizeof(int64_t));
        to += tensor.rank * sizeof(int64_t);
    }
    if (kept_.size() >= kRoom) [[unlikely]]
        write_kept();
}

void EventLog::call(const CallSeen &call) noexcept {
    if (of_ != Of::Session) return;
    const std::lock_guard lock(mutex_);
    const uint32_t name = number_of(call.name);
    put(records::Call{head<records::Call>(records::kCall), name, call.thread, call.correlation, call.began, call.ended,
                      call.virtual_began, call.virtual_ended},
        take(sizeof(records::Call)));
    if (kept_.size() >= kRoom) [[unlikely]]
        write_kept();
}

void EventLog::memory(const MemorySeen &memory) noexcept {
    const std::lock_guard lock(mutex_);
    put(records::Memory{head<records::Memory>(records::kMemory), static_cast<uint32_t>(memory.device), 0, monotonic(),
                        clocks::host(), reinterpret_cast<uint64_t>(memory.address), memory.bytes, memory.used},
        take(sizeof(records::Memory)));
}

void EventLog::mark(const Mark &mark) noexcept {
    const std::lock_guard lock(mutex_);
    const uint32_t domain = number(mark.domain), message = number(mark.message);
    put(records::Mark{head<records::Mark>(records::kMark), mark.kind, thread_number(), domain, message, mark.number,
                      mark.correlation, monotonic_raw(), clocks::host()},
        take(sizeof(records::Mark)));
}

void EventLog::add(uint16_t type, std::span<const std::byte> body) noexcept {
    const std::lock_guard lock(mutex_);
    std::byte *to = take(sizeof(records::Head) + body.size());
    to = put(records::Head{static_cast<uint32_t>(sizeof(records::Head) + body.size()), type, 0}, to);
    std::memcpy(to, body.data(), body.size());
}

bool EventLog::flush() noexcept {
    const std::lock_guard lock(mutex_);
    write_kept();
    return whole_;
}

// A full disk must not disturb the program: the rest of the log is lost, and one line says so.
void EventLog::write_kept() noexcept {
    if (file_ >= 0 && process_ == getpid()) {
        const std::byte *from = kept_.data();
        for (size_t left = kept_.size(); left > 0;) {
            const ssize_t written = ::write(file_, from, left);
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) {
                std::fprintf(stderr, "torchport: %s ends early: %s.%s\n", subject_.c_str(), std::strerror(errno),
                             of_ == Of::Session ? " No file will be made of the NPU's part of it." : "");
                ::close(file_);
                file_ = -1;
                whole_ = false;
                break;
            }
            from += written;
            left -= static_cast<size_t>(written);
        }
    }
    kept_.clear();
}

void log_process(const char *path, const Settings &settings) {
    std::string place = path;
    if (const size_t at = place.find("%p"); at != std::string::npos) place.replace(at, 2, std::to_string(getpid()));
    // Never destroyed: streams run until the very end of the process.
    auto *log = new EventLog(place, settings, EventLog::Of::Process, "the log of VNPU_TIMELINE");
    of_process.store(log);
    Timeline::add(*log);
    std::atexit([] { vnpuTimelineFlush(); });
}

}  // namespace vnpu

void vnpuTimelineFlush() noexcept {
    if (vnpu::EventLog *log = vnpu::of_process.load()) log->flush();
}
