// How the ranks of one communicator reach each other: a ring in each direction between any two, a way to sleep until
// one of them changes, and news of ranks that are gone.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "device/doorbell.h"
#include "hccl/ring.h"

namespace vnpu::hccl {

class Transport {
  public:
    virtual ~Transport() = default;
    Transport() = default;
    Transport(const Transport &) = delete;
    Transport &operator=(const Transport &) = delete;

    virtual int rank() const noexcept = 0;
    virtual int size() const noexcept = 0;
    virtual Ring &to(int peer) noexcept = 0;
    virtual Ring &from(int peer) noexcept = 0;
    // Whether what is in a ring reaches the peer without this rank's further help.
    virtual bool carries_itself() const noexcept { return true; }
    // Tells the peer that one of the rings between us has changed.
    virtual void notify(int peer) noexcept = 0;

    // What wait() waits for; its answer may change only with a ring of ours.
    class Condition {
      public:
        virtual bool holds() const noexcept = 0;

      protected:
        ~Condition() = default;
    };
    // Returns when the condition holds, at `until`, or earlier for no reason.
    virtual void wait(const Condition &condition, Clock::time_point until) = 0;

    // Why no more will come from the peer; empty while more may. Ask before looking at the ring for the last time.
    virtual std::string absence(int peer) = 0;
    // What the peer is doing, for the message of a time-out: "is stopped ...", "has finished 3 collectives ...".
    virtual std::string condition(int peer) = 0;
    // What condition() tells the others: collectives finished so far.
    virtual void finished(uint64_t collectives) noexcept = 0;
    // Ends our part, after a failure with its reason: every peer's absence() tells it from now on.
    virtual void leave(std::string_view reason) noexcept = 0;
    // Starts anew after failures, with empty rings, once every rank has called it. Fault Timeout or RankGone when
    // one does not.
    virtual void restore(Deadline deadline) = 0;
    // Other rings between the same ranks, for what operators exchange; null where there are none.
    virtual std::unique_ptr<Transport> operators() const { return nullptr; }
};

}  // namespace vnpu::hccl
