// TCP connections with deadlines, IPv4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "device/doorbell.h"

namespace vnpu::hccl {

struct Endpoint {
    uint32_t address;  // network byte order
    uint16_t port;
    std::string text() const;
};

// This machine's address for other machines: HCCL_IF_IP, or that of the first interface that is up, is not the loopback
// and whose name starts with HCCL_SOCKET_IFNAME. Fault InvalidArgument when there is none.
uint32_t own_address();

class Socket {
  public:
    Socket() = default;
    Socket(Socket &&other) noexcept : file_(std::exchange(other.file_, -1)) {}
    Socket &operator=(Socket &&other) noexcept {
        std::swap(file_, other.file_);
        return *this;
    }
    ~Socket();

    // Listens on any free port of the address.
    static Socket listen(uint32_t address);
    // Faults: Timeout; KernelFailure when it is refused until then.
    static Socket connect(const Endpoint &to, Deadline deadline);
    // Who waits to be let in; nothing, with errno, when nobody does or there is no room.
    Socket accept() const;

    Endpoint local() const;
    // All of it. Fault RankGone when the other side closes, Timeout.
    void send(const void *data, size_t bytes, Deadline deadline) const;
    void receive(void *data, size_t bytes, Deadline deadline) const;

    explicit operator bool() const noexcept { return file_ >= 0; }
    int file() const noexcept { return file_; }

  private:
    explicit Socket(int file) : file_(file) {}
    bool ready(short events, Deadline deadline) const;
    int file_ = -1;
};

}  // namespace vnpu::hccl
