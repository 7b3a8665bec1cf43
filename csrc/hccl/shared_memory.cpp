#include "hccl/shared_memory.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "device/fault.h"
#include "hccl/places.h"

namespace vnpu::hccl {
namespace {

using State = Segment::State;

// How long to look before sleeping: a peer that answers at once does so within a few microseconds, and where all ranks
// share two cores more would take the core from the one that is waited for.
constexpr auto kSpin = std::chrono::microseconds(10);

// The third field of /proc/<pid>/stat, after the name in brackets: T is stopped, t is held by a debugger.
bool stopped(pid_t process) {
    std::ifstream file(fmt::format("/proc/{}/stat", process));
    std::string line;
    std::getline(file, line);
    const size_t bracket = line.rfind(')');
    return bracket != std::string::npos && bracket + 2 < line.size() &&
           (line[bracket + 2] == 'T' || line[bracket + 2] == 't');
}

}  // namespace

SharedMemory::SharedMemory(std::shared_ptr<Segment> segment, int rank, int device)
    : segment_(std::move(segment)), rank_(rank) {
    Segment::Slot &mine = segment_->slot(rank);
    mine.process.store(getpid());
    State absent = State::Absent;
    if (!mine.state.compare_exchange_strong(absent, State::Joined))
        fail(FaultKind::InvalidArgument, "Rank {} has joined this communicator before.", rank);
    mine.device.store(device);
    take_rings();
    segment_->join();
}

SharedMemory::SharedMemory(const SharedMemory &collectives, Segment::Channel channel)
    : segment_(collectives.segment_), rank_(collectives.rank_), channel_(channel), processes_(collectives.processes_) {
    take_rings();
}

std::unique_ptr<Transport> SharedMemory::operators() const {
    return std::unique_ptr<Transport>(new SharedMemory(*this, Segment::Channel::Operators));
}

void SharedMemory::take_rings() {
    for (int peer = 0; peer < size(); ++peer) {
        to_.push_back(segment_->ring(rank_, peer, channel_));
        from_.push_back(segment_->ring(peer, rank_, channel_));
    }
}

SharedMemory::~SharedMemory() {
    if (channel_ == Segment::Channel::Collectives) leave({});
}

void SharedMemory::connect(Deadline deadline) {
    if (!segment_->complete(deadline)) {
        std::string missing;
        for (int peer = 0; peer < size(); ++peer)
            if (segment_->slot(peer).state.load() == State::Absent) missing += fmt::format(" {}", peer);
        if (!missing.empty())
            fail(FaultKind::Timeout,
                 "Rank {} of {} waited for the others until HCCL_CONNECT_TIMEOUT; missing:{}. Every rank has to reach "
                 "the first collective of the group: look at the logs of those.",
                 rank_, size(), missing);
    }
    processes_ = std::shared_ptr<std::vector<int>>(new std::vector<int>, [](std::vector<int> *all) {
        for (const int process : *all)
            if (process >= 0) close(process);
        delete all;
    });
    for (int peer = 0; peer < size(); ++peer) {
        processes_->push_back(static_cast<int>(syscall(SYS_pidfd_open, segment_->slot(peer).process.load(), 0)));
        if (processes_->back() < 0 && errno != ESRCH)
            fail(FaultKind::HostOutOfMemory, "pidfd_open failed for rank {}: {}.", peer, std::strerror(errno));
    }
    check_devices();
}

void SharedMemory::check_devices() const {
    const std::array<char, 64> host = host_name();
    std::vector<Place> places;
    for (int peer = 0; peer < size(); ++peer) places.push_back({host.data(), segment_->slot(peer).device.load()});
    check_places(places);
}

void SharedMemory::notify(int peer) noexcept { segment_->slot(peer).bell.ring(); }

void SharedMemory::wait(const Condition &condition, Clock::time_point until) {
    segment_->slot(rank_).bell.wait([&] { return condition.holds(); }, until, kSpin);
}

// A process descriptor becomes readable when its process ends, reaped or not.
bool SharedMemory::ended(int peer) const noexcept {
    const int process = (*processes_)[static_cast<size_t>(peer)];
    if (process < 0) return true;  // ESRCH
    pollfd entry{process, POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
}

std::string SharedMemory::absence(int peer) {
    const Segment::Slot &slot = segment_->slot(peer);
    switch (slot.state.load()) {
        case State::Failed:
            return fmt::format("rank {} has failed before: {}", peer, slot.reason.data());
        case State::Left:
            return fmt::format(
                "rank {} (process {}) has left the communicator after {} collectives: its process ended in an error or "
                "destroyed the group, so look at its log",
                peer, slot.process.load(), slot.finished[static_cast<size_t>(channel_)].load());
        default:
            return !ended(peer)
                       ? ""
                       : fmt::format("rank {} (process {}) died after {} collectives: it was killed or crashed", peer,
                                     slot.process.load(), slot.finished[static_cast<size_t>(channel_)].load());
    }
}

std::string SharedMemory::condition(int peer) {
    const Segment::Slot &slot = segment_->slot(peer);
    const pid_t process = slot.process.load();
    if (stopped(process)) return fmt::format("rank {} (process {}) is stopped (SIGSTOP)", peer, process);
    return fmt::format("rank {} (process {}) is running and has finished {} collectives of this communicator", peer,
                       process, slot.finished[static_cast<size_t>(channel_)].load());
}

void SharedMemory::finished(uint64_t collectives) noexcept {
    segment_->slot(rank_).finished[static_cast<size_t>(channel_)].store(collectives);
}

void SharedMemory::leave(std::string_view reason) noexcept {
    Segment::Slot &mine = segment_->slot(rank_);
    if (mine.state.load() != State::Joined) return;
    mine.reason[reason.copy(mine.reason.data(), mine.reason.size() - 1)] = '\0';
    mine.state.store(reason.empty() ? State::Left : State::Failed);
    for (int peer = 0; peer < size(); ++peer) notify(peer);
}

// Waits until every rank has come as far as this one.
void SharedMemory::meet(Deadline deadline) {
    const uint32_t step = segment_->slot(rank_).restored.fetch_add(1) + 1;
    class Others final : public Condition {
      public:
        Others(const Segment &segment, uint32_t step) : segment_(segment), step_(step) {}
        int missing() const noexcept {
            for (int peer = 0; peer < segment_.ranks(); ++peer)
                if (segment_.slot(peer).restored.load() < step_) return peer;
            return -1;
        }
        bool holds() const noexcept override { return missing() < 0; }

      private:
        const Segment &segment_;
        const uint32_t step_;
    } others(*segment_, step);
    for (int peer = 0; peer < size(); ++peer) notify(peer);
    while (!others.holds()) {
        wait(others, Clock::now() + std::chrono::milliseconds(50));
        const int peer = others.missing();
        if (peer < 0) return;
        const bool gone = ended(peer) || segment_->slot(peer).state.load() == State::Left;
        if (!gone && (!deadline || Clock::now() < *deadline)) continue;
        segment_->slot(rank_).restored.fetch_sub(1);  // the next try starts at the same step
        if (gone) fail(FaultKind::RankGone, "{}; it cannot be resumed.", absence(peer));
        fail(FaultKind::Timeout, "{} and has not called HcclCommResume.", condition(peer));
    }
}

void SharedMemory::restore(Deadline deadline) {
    meet(deadline);  // from here on nobody writes
    Segment::Slot &mine = segment_->slot(rank_);
    for (const auto channel : {Segment::Channel::Collectives, Segment::Channel::Operators}) {
        for (int peer = 0; peer < size(); ++peer) {
            Ring ring = segment_->ring(peer, rank_, channel);
            for (size_t left = ring.bytes().size(); left != 0; left = ring.bytes().size()) ring.take(left);
        }
        mine.finished[static_cast<size_t>(channel)].store(0);
    }
    mine.state.store(State::Joined);
    meet(deadline);
}

}  // namespace vnpu::hccl
