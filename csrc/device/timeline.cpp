#include "device/timeline.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "device/clock.h"
#include "device/machine.h"

namespace vnpu {
namespace {

constexpr std::string_view kMagic = "VNPUTL1\n";
constexpr size_t kRoom = 1 << 20;  // kept back before it is written
constexpr size_t kKnownNames = 1024;

enum Type : uint16_t { kProcess = 1, kName = 2, kTask = 3, kMemory = 4 };

// As they lie in the file, little endian, every record a multiple of eight bytes long.
struct Head {
    uint32_t length;  // of the record, with this
    uint16_t type, reserved;
};
struct Process {
    Head head;
    uint32_t version, process;
    int32_t rank, world;
    uint32_t chip;  // a name
    uint8_t dry, reserved[3];
    int64_t monotonic, realtime;
};
struct Name {
    Head head;
    uint32_t number, bytes;
};
struct TaskRecord {
    Head head;
    uint32_t name;
    uint16_t device, tensors;
    uint32_t stream, thread;
    uint8_t unit, failed;
    uint16_t ranks;
    uint32_t reserved;
    uint64_t correlation;
    TaskTimes times;
    double flops, bytes, converted;
};
struct TensorRecord {
    uint64_t address, bytes;
    uint8_t dtype, format, rank, flags;  // 1: written, 2: a view
    uint32_t reserved;
};
struct MemoryRecord {
    Head head;
    uint32_t device, reserved;
    int64_t monotonic, virtual_time;
    uint64_t address;
    int64_t bytes;
    uint64_t used;
};
static_assert(sizeof(TaskRecord) == 112 && sizeof(TensorRecord) == 24 && sizeof(MemoryRecord) == 56 &&
              sizeof(Process) == 48);

struct Log {
    std::mutex mutex;
    std::vector<std::byte> kept;
    std::unordered_map<std::string_view, uint32_t> names;
    struct Known {
        const char *name;
        uint32_t number;
    };
    std::array<Known, kKnownNames> known{};  // by address: a name is looked up once, mostly
    pid_t process = 0;

    std::byte *take(size_t bytes) {
        const size_t at = kept.size();
        kept.resize(at + bytes);
        return kept.data() + at;
    }
    template <class T>
    std::byte *put(const T &record, std::byte *to) {
        static_assert(std::is_trivially_copyable_v<T>);
        std::memcpy(to, &record, sizeof record);
        return to + sizeof record;
    }
    uint32_t number(const char *name) {
        Known &seen = known[(reinterpret_cast<uintptr_t>(name) >> 2) % kKnownNames];
        if (seen.name == name) return seen.number;
        const auto [found, added] = names.emplace(name, static_cast<uint32_t>(names.size()));
        if (added) {
            const size_t bytes = found->first.size(), room = (bytes + 7) / 8 * 8;
            std::byte *to = take(sizeof(Name) + room);
            to = put(Name{{static_cast<uint32_t>(sizeof(Name) + room), kName, 0},
                          found->second,
                          static_cast<uint32_t>(bytes)},
                     to);
            std::memcpy(to, name, bytes);
        }
        seen = {name, found->second};
        return found->second;
    }
};

Log &log() {
    static auto *all = new Log;  // never destroyed: streams run until the very end of the process
    return *all;
}

int32_t number_in(const char *variable, int32_t otherwise) {
    const char *text = std::getenv(variable);
    return text == nullptr || *text == '\0' ? otherwise : std::atoi(text);
}

int64_t clock_ns(clockid_t which) noexcept {
    timespec now{};
    clock_gettime(which, &now);
    return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

std::atomic<int> Timeline::file_{-1};

int64_t monotonic() noexcept { return clock_ns(CLOCK_MONOTONIC); }

void Timeline::open(const char *path, const Settings &settings) {
    std::string place = path;
    if (const size_t at = place.find("%p"); at != std::string::npos) place.replace(at, 2, std::to_string(getpid()));
    const int file = ::open(place.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0)
        fail(FaultKind::InvalidArgument, "VNPU_TIMELINE={} cannot be opened for writing: {}.", path,
             std::strerror(errno));
    Log &all = log();
    {
        const std::lock_guard lock(all.mutex);
        all.process = getpid();
        all.kept.reserve(kRoom + (64 << 10));
        std::memcpy(all.take(kMagic.size()), kMagic.data(), kMagic.size());
        const uint32_t chip = all.number(settings.chip->name);
        all.put(Process{{sizeof(Process), kProcess, 0},
                        1,
                        static_cast<uint32_t>(all.process),
                        number_in("RANK", 0),
                        number_in("WORLD_SIZE", 1),
                        chip,
                        settings.dry,
                        {},
                        monotonic(),
                        clock_ns(CLOCK_REALTIME)},
                all.take(sizeof(Process)));
    }
    file_.store(file);
    std::atexit([] { flush(); });
}

void Timeline::task(const char *name, int device, int stream, uint64_t correlation, uint32_t thread, bool failed,
                    const TaskTimes &times, const Description &what) noexcept {
    Log &all = log();
    const std::lock_guard lock(all.mutex);
    const uint32_t number = all.number(name);
    size_t length = sizeof(TaskRecord);
    for (const TensorLine &tensor : what.tensors) length += sizeof(TensorRecord) + tensor.rank * sizeof(int64_t);
    std::byte *to = all.take(length);
    to = all.put(TaskRecord{{static_cast<uint32_t>(length), kTask, 0},
                            number,
                            static_cast<uint16_t>(device),
                            static_cast<uint16_t>(what.tensors.size()),
                            static_cast<uint32_t>(stream),
                            thread,
                            static_cast<uint8_t>(what.work.unit),
                            failed,
                            static_cast<uint16_t>(what.ranks),
                            0,
                            correlation,
                            times,
                            what.work.flops,
                            what.work.bytes,
                            what.work.converted},
                 to);
    for (const TensorLine &tensor : what.tensors) {
        to = all.put(TensorRecord{tensor.address, tensor.bytes, tensor.dtype, tensor.format, tensor.rank,
                                  static_cast<uint8_t>((tensor.output ? 1 : 0) | (tensor.view ? 2 : 0)), 0},
                     to);
        std::memcpy(to, tensor.sizes.data(), tensor.rank * sizeof(int64_t));
        to += tensor.rank * sizeof(int64_t);
    }
    if (all.kept.size() >= kRoom) [[unlikely]]
        write_kept();
}

void Timeline::memory(int device, const void *address, int64_t bytes, uint64_t used) noexcept {
    Log &all = log();
    const std::lock_guard lock(all.mutex);
    all.put(MemoryRecord{{sizeof(MemoryRecord), kMemory, 0},
                         static_cast<uint32_t>(device),
                         0,
                         monotonic(),
                         clocks::host(),
                         reinterpret_cast<uint64_t>(address),
                         bytes,
                         used},
            all.take(sizeof(MemoryRecord)));
}

void Timeline::flush() noexcept {
    Log &all = log();
    const std::lock_guard lock(all.mutex);
    write_kept();
}

// A full disk must not disturb the program: the rest of the log is lost, and one line says so.
void Timeline::write_kept() noexcept {
    Log &all = log();
    const int file = file_.load(std::memory_order_relaxed);
    if (file >= 0 && all.process == getpid()) {
        const std::byte *from = all.kept.data();
        for (size_t left = all.kept.size(); left > 0;) {
            const ssize_t written = ::write(file, from, left);
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) {
                std::fprintf(stderr, "torchport: the log of VNPU_TIMELINE ends early: %s.\n", std::strerror(errno));
                file_.store(-1);
                break;
            }
            from += written;
            left -= static_cast<size_t>(written);
        }
    }
    all.kept.clear();
}

}  // namespace vnpu

void vnpuTimelineFlush() noexcept { vnpu::Timeline::flush(); }
