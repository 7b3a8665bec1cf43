// Ranks on several machines: a TCP connection between any two, and rings in this process that it fills and empties.
#pragma once

#include <memory>
#include <vector>

#include "hccl/admission.h"
#include "hccl/transport.h"

namespace vnpu::hccl {

class Network final : public Transport {
  public:
    // Every rank tells the root where it listens and is told where all do; then each connects to those below it. `host`
    // is the root's listening socket in the one process that has it. Faults: Timeout names missing ranks;
    // InvalidArgument when ranks contradict each other; SharedDevice when two have one `device` (physical number).
    Network(const Identity &id, const Endpoint &root, const Socket *host, int ranks, int rank, int device,
            Deadline deadline);
    ~Network() override;

    int rank() const noexcept override { return rank_; }
    int size() const noexcept override { return static_cast<int>(peers_.size()); }
    Ring &to(int peer) noexcept override { return peers_[static_cast<size_t>(peer)]->out.ring; }
    Ring &from(int peer) noexcept override { return peers_[static_cast<size_t>(peer)]->in.ring; }
    bool carries_itself() const noexcept override { return false; }
    void notify(int peer) noexcept override;
    void wait(const Condition &condition, Clock::time_point until) override;
    std::string absence(int peer) override;
    std::string condition(int peer) override;
    void finished(uint64_t) noexcept override {}  // not told to other machines
    void leave(std::string_view reason) noexcept override;
    void restore(Deadline deadline) override;

  private:
    static constexpr size_t kCapacity = 256 << 10;
    static constexpr size_t kLongestReason = 1000;
    struct Buffer {
        std::unique_ptr<std::byte[]> data = std::make_unique_for_overwrite<std::byte[]>(kCapacity);
        Ring::Marks marks{};
        Ring ring{marks, data.get(), kCapacity};
    };
    // What precedes data, or the reason with which a rank leaves.
    struct Frame {
        uint32_t leaving;
        uint32_t bytes;
    };
    struct Peer {
        Socket socket;
        Buffer out, in;
        Frame incoming{};   // of what comes now
        size_t header = 0;  // bytes of it that have come
        Frame outgoing{};   // of what goes now
        size_t header_sent = sizeof(Frame);
        std::string where, reason;  // its host; why it has left
        bool deaf = false;          // it takes no more; what it said last is still to be read
        bool closed = false;        // nothing more comes
    };
    void admit(Admission admission, Deadline deadline);
    void push(Peer &peer) noexcept;
    void pull(Peer &peer) noexcept;
    void pump(Peer &peer) noexcept {
        push(peer);
        pull(peer);
    }

    const int rank_;
    bool left_ = false;
    std::vector<std::unique_ptr<Peer>> peers_;  // by rank; this rank's own has no socket
};

}  // namespace vnpu::hccl
