#include "device/shared_marks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "device/fault.h"

namespace vnpu {
namespace {

struct alignas(64) Place {
    EventMarks marks;
    std::atomic<uint64_t> made;  // 0: nobody's
};

constexpr uint32_t kPlaces = 1 << 16;
constexpr size_t kBytes = kPlaces * sizeof(Place);  // of which only the pages in use take memory

// The places of one process, here or as another sees them.
class Places {
  public:
    explicit Places(int file) : file_(file) {
        void *at = file < 0 ? MAP_FAILED : mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (at == MAP_FAILED)
            fail(FaultKind::HostOutOfMemory, "No memory for events between processes: {}.", std::strerror(errno));
        places_ = static_cast<Place *>(at);
    }
    int file() const noexcept { return file_; }
    Place &at(uint32_t place) const noexcept { return places_[place]; }
    bool holds(const EventMarks &marks) const noexcept {
        const auto *place = reinterpret_cast<const Place *>(&marks);
        return place >= places_ && place < places_ + kPlaces;
    }
    uint32_t index(const EventMarks &marks) const noexcept {
        return static_cast<uint32_t>(reinterpret_cast<const Place *>(&marks) - places_);
    }

  private:
    const int file_;
    Place *places_;
};

int made_file() {
    const int file = memfd_create("vnpu-events", MFD_CLOEXEC);
    return file >= 0 && ftruncate(file, kBytes) == 0 ? file : -1;
}

// This process's, never unmapped: calls come in until the very end of the process.
class Own {
  public:
    std::shared_ptr<EventMarks> make() {
        const std::lock_guard lock(mutex_);
        if (free_.empty() && fresh_ == kPlaces)
            fail(FaultKind::HostLimit, "There are {} events between processes, which is as many as there can be.",
                 kPlaces);
        uint32_t index = fresh_;
        if (free_.empty()) {
            ++fresh_;
        } else {
            index = free_.back();
            free_.pop_back();
        }
        Place &place = places_.at(index);
        // Numbers go on where the last owner's ended, so that who still waits for that one's goes on.
        place.marks.forgotten.store(place.marks.requested.load());
        place.made.store(++made_);
        return {&place.marks, [this, index](EventMarks *) { release(index); }};
    }
    Places &places() noexcept { return places_; }

  private:
    void release(uint32_t index) {
        const std::lock_guard lock(mutex_);
        places_.at(index).made.store(0);
        free_.push_back(index);
    }

    std::mutex mutex_;
    Places places_{made_file()};
    std::vector<uint32_t> free_;
    uint32_t fresh_ = 0;
    uint64_t made_ = 0;
};

Own &own() {
    static auto *places = new Own;
    return *places;
}

// Other processes', which stay mapped: programs open many events of few processes.
std::shared_ptr<Places> others(const MarksAddress &address) {
    static auto *mutex = new std::mutex;
    static auto *known = new std::map<std::pair<dev_t, ino_t>, std::shared_ptr<Places>>;
    const std::string path = fmt::format("/proc/{}/fd/{}", address.process, address.file);
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct stat status{};
    if (file < 0 || fstat(file, &status) != 0 || static_cast<size_t>(status.st_size) != kBytes) {
        const std::string reason = file < 0 ? std::strerror(errno) : "it is another file";
        if (file >= 0) close(file);
        fail(FaultKind::InvalidArgument,
             "The event cannot be opened at {} ({}): process {}, which made it, has ended, or runs under another user "
             "or in another container.",
             path, reason, address.process);
    }
    const std::lock_guard lock(*mutex);
    std::shared_ptr<Places> &places = (*known)[{status.st_dev, status.st_ino}];
    if (places)
        close(file);
    else
        places = std::make_shared<Places>(file);
    return places;
}

}  // namespace

std::shared_ptr<EventMarks> shared_marks() { return own().make(); }

MarksAddress address_of(const EventMarks &marks) {
    const Places &places = own().places();
    if (!places.holds(marks))
        fail(FaultKind::InvalidArgument,
             "The event was not made for other processes: aclrtCreateEventExWithFlag with ACL_EVENT_IPC does.");
    const uint32_t index = places.index(marks);
    return {getpid(), places.file(), index, places.at(index).made.load()};
}

std::shared_ptr<EventMarks> open_marks(const MarksAddress &address) {
    const std::shared_ptr<Places> places = others(address);
    if (address.place >= kPlaces || address.made == 0 || places->at(address.place).made.load() != address.made)
        fail(FaultKind::InvalidArgument, "The event is no more: process {}, which made it, has destroyed it.",
             address.process);
    return {places, &places->at(address.place).marks};
}

}  // namespace vnpu
