// Ranks of one machine: rings in a Segment, futexes to sleep on, process descriptors to see who has died.
#pragma once

#include <memory>
#include <vector>

#include "hccl/segment.h"
#include "hccl/transport.h"

namespace vnpu::hccl {

class SharedMemory final : public Transport {
  public:
    // Takes the rank's place; `device` is the physical number of its device. Fault InvalidArgument when somebody else
    // has the place.
    SharedMemory(std::shared_ptr<Segment> segment, int rank, int device);
    ~SharedMemory() override;

    // Waits for all ranks to take theirs. Faults: Timeout names those that did not; SharedDevice.
    void connect(Deadline deadline);
    const std::shared_ptr<Segment> &segment() const noexcept { return segment_; }

    int rank() const noexcept override { return rank_; }
    int size() const noexcept override { return segment_->ranks(); }
    Ring &to(int peer) noexcept override { return to_[static_cast<size_t>(peer)]; }
    Ring &from(int peer) noexcept override { return from_[static_cast<size_t>(peer)]; }
    void notify(int peer) noexcept override;
    void wait(const Condition &condition, Clock::time_point until) override;
    std::string absence(int peer) override;
    std::string condition(int peer) override;
    void finished(uint64_t collectives) noexcept override;
    void leave(std::string_view reason) noexcept override;
    void restore(Deadline deadline) override;
    std::unique_ptr<Transport> operators() const override;

  private:
    SharedMemory(const SharedMemory &collectives, Segment::Channel channel);
    void take_rings();
    void check_devices() const;
    bool ended(int peer) const noexcept;
    void meet(Deadline deadline);

    const std::shared_ptr<Segment> segment_;
    const int rank_;
    const Segment::Channel channel_ = Segment::Channel::Collectives;
    std::vector<Ring> to_, from_;
    std::shared_ptr<std::vector<int>> processes_;  // pidfd by rank
};

}  // namespace vnpu::hccl
