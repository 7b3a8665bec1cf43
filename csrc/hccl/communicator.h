// One rank's end of a communicator: runs collectives in the order of their calls, checks that all ranks mean the same
// one, and remembers the failure after which nothing can be exchanged any more.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "device/handles.h"
#include "device/stream.h"
#include "hccl/api.h"
#include "hccl/buffers.h"
#include "hccl/exchange.h"

namespace vnpu::hccl {

// What a rank says of a call; the same on every rank but for the last two. -1: the collective has no such parameter.
struct Call {
    const char *name;  // HcclAllReduce
    HcclCMDType kind;
    uint64_t count = 0;
    int32_t type = -1, op = -1, root = -1;
    const char *within = nullptr;  // the operator whose kernel it is part of
};

// A message between two ranks: its header is compared with what the other expects.
struct Message {
    bool send;
    Piece piece;
    Call call;
};

struct Copy {
    std::byte *to;
    const std::byte *from;
    size_t bytes;
};

// Device memory that a call reads or writes; it has to be live when the call is made and when it runs.
struct Range {
    const std::byte *view;
    size_t bytes;
    const char *name;
};

// A call, ready to run: owns what it needs but the device memory it points to.
struct Plan {
    Call call;
    std::vector<Range> ranges;
    std::vector<Copy> copies;       // on this rank, before the rounds
    std::vector<Round> rounds;      // of a collective, which all ranks take part in
    std::vector<Message> messages;  // of a point-to-point call: only their two ranks know of them
    bool collective = true;
    std::vector<std::unique_ptr<std::byte[]>> kept;  // input that the output would overwrite too early
};

struct Options {
    std::string name;
    uint64_t buffer;                       // bytes of each of the two that it keeps in the memory of its device
    std::string shared_buffer;             // a name that others have for theirs too; empty: its own
    std::optional<Clock::duration> limit;  // HCCL_EXEC_TIMEOUT
};

class Communicator {
  public:
    Communicator(std::unique_ptr<Transport> transport, int device, Options options);
    ~Communicator();

    int rank() const noexcept { return collectives_.transport->rank(); }
    int size() const noexcept { return collectives_.transport->size(); }
    int device() const noexcept { return device_; }
    const Options &options() const noexcept { return options_; }
    Transport &transport() noexcept { return *collectives_.transport; }
    // The memory that its first operation takes. Fault OutOfMemory.
    void take_buffers();

    // Queues the plan on the stream. The collectives of a communicator run one at a time.
    static void submit(const std::shared_ptr<Communicator> &self, Stream &stream, Plan plan);
    // Runs a plan of an operator, on the thread that runs its kernel: one at a time, beside the collectives.
    void perform(const Plan &plan);
    // Whether it can.
    bool performs() const noexcept { return operators_.transport != nullptr; }

    // The failure that ended it: HCCL_SUCCESS while there is none.
    HcclResult failure() const;
    std::string failure_text() const;
    // Forgets the failure and starts again at sequence number 1, once every rank has called it.
    void resume(Deadline deadline);
    // The program has no more use for it: what is still queued gets a few seconds to finish.
    void release() noexcept { released_.store(true); }

  private:
    // What is exchanged one after another.
    struct Queue {
        std::unique_ptr<Transport> transport;
        std::mutex running = {};
        std::atomic<uint64_t> issued = 0;    // collectives, which have the same number on every rank
        std::atomic<uint64_t> messages = 0;  // of which each rank may have another number
        uint64_t finished = 0;
    };
    void run(Queue &queue, const Plan &plan, uint64_t sequence);
    void agree(Transport &transport, const Plan &plan, uint64_t sequence);
    void deliver(Transport &transport, const std::vector<Message> &messages);
    Limit limit() const;

    Queue collectives_, operators_;
    const int device_;
    const Options options_;
    std::mutex buffers_mutex_;
    std::shared_ptr<Buffers> buffers_;  // from its first operation on
    std::atomic<bool> released_{false};
    mutable std::mutex failure_mutex_;
    HcclResult failure_ = HCCL_SUCCESS;
    std::string failure_text_;
};

extern Handles<Communicator> communicators;  // that the program holds

}  // namespace vnpu::hccl
