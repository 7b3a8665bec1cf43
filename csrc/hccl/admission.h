// Who connects to a listening socket: ranks, which introduce themselves with the id of their root info, and strangers
// (port scanners, health checks, ranks of another job), which do not.
#pragma once

#include <array>
#include <deque>
#include <optional>
#include <span>
#include <string>

#include "hccl/socket.h"

namespace vnpu::hccl {

using Identity = std::array<uint64_t, 2>;

// What a rank says first on every connection that it makes.
struct Introduction {
    Identity id;
    uint32_t ranks, rank, address, port;
    int64_t process;
    std::array<char, 64> host;
    int32_t device;  // the physical number of its device
    int32_t group;   // torchrun's GROUP_RANK, which tells machines of one name apart
};

// What it hears then. Whoever is no rank hears nothing.
struct Answer {
    uint32_t admitted;
    std::array<char, 1024> problem;  // why it is not
};
Answer admitted();
Answer refused(const std::string &problem);

class Admission {
  public:
    struct Guest {
        Socket socket;
        Introduction says;
    };
    Admission(const Socket &listening, const Identity &id) : listening_(listening), id_(id) {}

    // The next that has introduced itself with the id; nothing when the deadline passes. Who closes or says something
    // else is dropped. Who says nothing keeps nobody else waiting; of those the first are dropped when there are many.
    std::optional<Guest> next(Deadline deadline);

  private:
    static constexpr size_t kWaiting = 256;
    static constexpr int kAtOnce = 64;
    struct Unknown {
        Socket socket;
        Introduction says{};
        size_t come = 0;  // bytes of it
    };
    bool hear(Unknown &who) const noexcept;  // false when it is a stranger
    std::optional<Guest> hear_all();
    void let_in();

    const Socket &listening_;
    const Identity id_;
    std::deque<Unknown> waiting_;  // in the order in which they came
};

// Says who this rank is. Fault Timeout; a connection that is closed meanwhile is none, as answered() finds out.
void introduce(const Socket &to, const Introduction &as, Deadline deadline);

// Waits for the answer. A connection that was closed in front of it, as one of too many, is made again. Faults:
// Timeout, also when nobody listens any more.
Answer answered(Socket &socket, const Endpoint &to, const Introduction &as, Deadline deadline);

// Sends the same to all of them at once; who is gone, or has not taken it by the deadline, goes without.
void tell(std::span<const Socket> sockets, std::span<const std::byte> bytes, Deadline deadline);
// On a connection on which nothing was sent yet, and which has room for it.
void tell(const Socket &socket, const Answer &answer);

}  // namespace vnpu::hccl
