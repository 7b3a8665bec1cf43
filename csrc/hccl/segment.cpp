#include "hccl/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <thread>

#include "device/bytes.h"

namespace vnpu::hccl {

// Where the members of a part of this communicator find that part's segment.
struct Segment::Part {
    std::atomic<uint64_t> key;    // 0: free
    std::atomic<uint32_t> ready;  // whether the address is there
    SharedDoorbell made;          // rung when it is
    std::atomic<uint32_t> found;  // members that have it
    Address address;
};

struct Segment::Header {
    std::array<uint64_t, 2> id;
    std::atomic<uint32_t> ranks;  // 0: not said yet
    std::atomic<uint32_t> joined;
    SharedDoorbell arrival;  // rung when one more has joined
    std::array<Part, 256> parts;
};

namespace {

constexpr size_t kPage = 4096;
constexpr size_t whole_pages(size_t size) { return bytes::round_up(size, kPage, "segment"); }

// A ring that the second-level cache holds; smaller where there are many (n ranks have n * (n - 1) of them). Pages are
// the machine's only once they are written to.
size_t ring_capacity(int ranks) { return ranks <= 8 ? 1 << 20 : 128 << 10; }

[[noreturn]] void system_failure(const char *what) {
    fail(FaultKind::HostOutOfMemory, "{} failed for the memory that ranks share: {}.", what, std::strerror(errno));
}

// Segments of this process that are alive, so that ranks which are threads of it share one mapping.
struct Registry {
    std::mutex mutex;
    std::map<std::array<uint64_t, 2>, std::weak_ptr<Segment>> live;
};

Registry &registry() {
    static auto *all = new Registry;  // never destroyed: communicators are destroyed until the very end of the process
    return *all;
}

}  // namespace

Segment::Segment(const Address &address, int file) : address_(address), file_(file) {
    map(whole_pages(sizeof(Header)));
}

Segment::~Segment() {
    if (memory_ != nullptr) munmap(memory_, mapped_);
    close(file_);
    const std::lock_guard lock(registry().mutex);
    if (const auto it = registry().live.find(address_.id); it != registry().live.end() && it->second.expired())
        registry().live.erase(it);
}

void Segment::map(size_t bytes) {
    void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (at == MAP_FAILED) system_failure("mmap");
    if (memory_ != nullptr) munmap(memory_, mapped_);
    memory_ = static_cast<std::byte *>(at);
    mapped_ = bytes;
}

std::shared_ptr<Segment> Segment::create() {
    Address address{getpid(), memfd_create("vnpu-hccl", MFD_CLOEXEC), {}};
    if (address.file < 0 || ftruncate(address.file, whole_pages(sizeof(Header))) != 0) system_failure("memfd_create");
    if (getrandom(address.id.data(), sizeof address.id, 0) != sizeof address.id) system_failure("getrandom");
    const std::shared_ptr<Segment> made(new Segment(address, address.file));
    reinterpret_cast<Header *>(made->memory_)->id = address.id;
    const std::lock_guard lock(registry().mutex);
    registry().live[address.id] = made;
    return made;
}

std::shared_ptr<Segment> Segment::open(const Address &address) {
    const std::lock_guard lock(registry().mutex);
    auto &known = registry().live[address.id];
    if (auto segment = known.lock()) return segment;
    const std::string path = fmt::format("/proc/{}/fd/{}", address.process, address.file);
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    std::array<uint64_t, 2> id{};
    if (file < 0 || pread(file, id.data(), sizeof id, 0) != sizeof id || id != address.id) {
        const std::string reason = file < 0 ? std::strerror(errno) : "it is another file";
        if (file >= 0) close(file);
        fail(FaultKind::InvalidArgument,
             "The communicator's memory cannot be opened at {} ({}): the rank that made the root info (process {}) has "
             "ended, or runs under another user or in another container.",
             path, reason, address.process);
    }
    std::shared_ptr<Segment> made(new Segment(address, file));
    known = made;
    return made;
}

void Segment::lay_out(int ranks) {
    const std::lock_guard lock(mutex_);
    auto &said = reinterpret_cast<Header *>(memory_)->ranks;
    uint32_t before = 0;
    if (!said.compare_exchange_strong(before, static_cast<uint32_t>(ranks)) && before != static_cast<uint32_t>(ranks))
        fail(FaultKind::InvalidArgument, "nRanks is {} here, and {} on a rank that came before.", ranks, before);
    if (ranks_ == ranks) return;
    const auto n = static_cast<size_t>(ranks);
    const size_t rings = kChannels * n * n;
    const size_t bytes = whole_pages(sizeof(Header)) + whole_pages(n * sizeof(Slot) + rings * sizeof(Ring::Marks)) +
                         rings * ring_capacity(ranks);
    // Every rank asks for the same size, so it does not matter who comes first.
    if (ftruncate(file_, static_cast<off_t>(bytes)) != 0) system_failure("ftruncate");
    map(bytes);
    ranks_ = ranks;
    capacity_ = ring_capacity(ranks);
}

Segment::Slot &Segment::slot(int rank) const noexcept {
    return reinterpret_cast<Slot *>(memory_ + whole_pages(sizeof(Header)))[rank];
}

Ring Segment::ring(int from, int to, Channel channel) const noexcept {
    const auto n = static_cast<size_t>(ranks_);
    const size_t index = (static_cast<size_t>(channel) * n + static_cast<size_t>(from)) * n + static_cast<size_t>(to);
    std::byte *slots = memory_ + whole_pages(sizeof(Header));
    auto *marks = reinterpret_cast<Ring::Marks *>(slots + n * sizeof(Slot));
    std::byte *data = slots + whole_pages(n * sizeof(Slot) + kChannels * n * n * sizeof(Ring::Marks));
    return {marks[index], data + index * capacity_, capacity_};
}

void Segment::join() noexcept {
    auto &header = *reinterpret_cast<Header *>(memory_);
    header.joined.fetch_add(1);
    header.arrival.ring();
}

bool Segment::complete(Deadline deadline) {
    auto &header = *reinterpret_cast<Header *>(memory_);
    return header.arrival.wait([&] { return header.joined.load() >= static_cast<uint32_t>(ranks_); }, deadline);
}

// Whether this member is the first. The key alone says which place it is: members that searched for a free one could
// find two.
bool Segment::claim(Part &part, uint64_t key, Deadline deadline) {
    for (uint64_t holder = 0; !part.key.compare_exchange_strong(holder, key); holder = 0) {
        if (holder == key) return false;
        if (deadline && Clock::now() >= *deadline)
            fail(FaultKind::Timeout, "Another part of the communicator was not completed within HCCL_CONNECT_TIMEOUT.");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // another part, until all its members have it
    }
    return true;
}

std::shared_ptr<Segment> Segment::part(std::span<const uint32_t> members, uint64_t number, Deadline deadline) const {
    uint64_t key = 0xcbf29ce484222325;  // FNV-1a
    for (const uint64_t value : members) key = (key ^ value) * 0x100000001b3;
    key = ((key ^ number) * 0x100000001b3) | 1;
    auto &parts = reinterpret_cast<Header *>(memory_)->parts;
    Part &part = parts[(key >> 32) % parts.size()];
    const bool first = claim(part, key, deadline);
    std::shared_ptr<Segment> segment;
    if (first) {
        segment = create();
        part.address = segment->address();
        part.ready.store(1);
        part.made.ring();
    }
    if (!part.made.wait([&] { return part.ready.load() != 0; }, deadline))
        fail(FaultKind::Timeout, "The first member of part {} has not made it within HCCL_CONNECT_TIMEOUT.", number);
    if (!first) segment = open(part.address);
    if (part.found.fetch_add(1) + 1 == members.size()) {  // the last: everybody joins only after this
        part.found.store(0);
        part.ready.store(0);
        part.key.store(0);
    }
    return segment;
}

}  // namespace vnpu::hccl
