// The memory that the ranks of one communicator share on one machine: a memfd, which the others open through
// /proc/<pid>/fd. It has no name, so nothing is left of it when its processes are gone, however they went.
#pragma once

#include <sys/types.h>

#include <array>
#include <memory>
#include <mutex>

#include "device/doorbell.h"
#include "hccl/ring.h"

namespace vnpu::hccl {

class Segment {
  public:
    struct Address {
        pid_t process;
        int file;
        std::array<uint64_t, 2> id;
    };

    enum class State : uint32_t { Absent, Joined, Left, Failed };
    // Each has rings of its own: what operators exchange while they run is in no order with the program's collectives.
    enum class Channel : uint8_t { Collectives, Operators };
    static constexpr size_t kChannels = 2;

    // What a rank shows the others.
    struct Slot {
        alignas(kGrain) SharedDoorbell bell;  // rung when a ring of this rank has changed
        std::atomic<State> state;
        std::atomic<pid_t> process;
        std::atomic<int> device;  // physical number
        alignas(kGrain) std::array<std::atomic<uint64_t>, kChannels> finished;
        std::atomic<uint32_t> restored;  // steps of restore() that it has come to
        std::array<char, 1024> reason;   // why it failed; written before state
    };

    static std::shared_ptr<Segment> create();
    // The segment at the address: this process's mapping of it when it has one. Fault InvalidArgument when its owner is
    // gone or on another machine.
    static std::shared_ptr<Segment> open(const Address &address);
    ~Segment();
    Segment(const Segment &) = delete;
    Segment &operator=(const Segment &) = delete;

    const Address &address() const noexcept { return address_; }
    // Makes room for that many ranks. Fault InvalidArgument when another rank has said another number.
    void lay_out(int ranks);

    int ranks() const noexcept { return ranks_; }
    Slot &slot(int rank) const noexcept;
    Ring ring(int from, int to, Channel channel) const noexcept;
    // Counts one more rank that has joined.
    void join() noexcept;
    // Waits for all ranks to join; false when the deadline passes first.
    bool complete(Deadline deadline);
    // The segment that these members have for the part of that number: made by the first who asks, found by the others.
    // Fault Timeout.
    std::shared_ptr<Segment> part(std::span<const uint32_t> members, uint64_t number, Deadline deadline) const;

  private:
    struct Header;
    struct Part;
    static bool claim(Part &part, uint64_t key, Deadline deadline);
    Segment(const Address &address, int file);
    void map(size_t bytes);

    Address address_;
    int file_;
    std::mutex mutex_;
    int ranks_ = 0;
    size_t capacity_ = 0;  // of a ring
    size_t mapped_ = 0;
    std::byte *memory_ = nullptr;
};

}  // namespace vnpu::hccl
