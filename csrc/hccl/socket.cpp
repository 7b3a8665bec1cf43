#include "hccl/socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>

#include "device/fault.h"

namespace vnpu::hccl {
namespace {

sockaddr_in name_of(const Endpoint &endpoint) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = endpoint.address;
    name.sin_port = htons(endpoint.port);
    return name;
}

[[noreturn]] void system_failure(const std::string &what) {
    fail(FaultKind::KernelFailure, "{} failed: {}.", what, std::strerror(errno));
}

int make_socket() {
    const int made = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (made < 0) system_failure("socket()");
    const int on = 1;
    setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // small messages wait for nobody
    return made;
}

}  // namespace

std::string Endpoint::text() const {
    char buffer[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &address, buffer, sizeof buffer);
    return fmt::format("{}:{}", buffer, port);
}

uint32_t own_address() {
    if (const char *text = std::getenv("HCCL_IF_IP"); text != nullptr && *text != '\0') {
        in_addr address{};
        if (inet_pton(AF_INET, text, &address) != 1)
            fail(FaultKind::InvalidArgument, "HCCL_IF_IP={} is not an IPv4 address.", text);
        return address.s_addr;
    }
    const char *wanted = std::getenv("HCCL_SOCKET_IFNAME");
    const std::string_view prefix = wanted == nullptr ? "" : wanted;
    ifaddrs *list = nullptr;
    if (getifaddrs(&list) != 0) system_failure("getifaddrs()");
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
    for (const ifaddrs *each = list; each != nullptr; each = each->ifa_next)
        if (each->ifa_addr != nullptr && each->ifa_addr->sa_family == AF_INET && (each->ifa_flags & IFF_UP) != 0 &&
            (each->ifa_flags & IFF_LOOPBACK) == 0 && std::string_view(each->ifa_name).starts_with(prefix))
            return reinterpret_cast<const sockaddr_in *>(each->ifa_addr)->sin_addr.s_addr;
    fail(FaultKind::InvalidArgument,
         "No network interface has an IPv4 address (HCCL_SOCKET_IFNAME={}) by which other machines could reach this "
         "one; set HCCL_IF_IP.",
         prefix);
}

Socket::~Socket() {
    if (file_ >= 0) close(file_);
}

bool Socket::ready(short events, Deadline deadline) const {
    for (;;) {
        const auto left = deadline ? std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now())
                                   : std::chrono::milliseconds(1000);
        if (deadline && left.count() <= 0) return false;
        pollfd entry{file_, events, 0};
        if (poll(&entry, 1, static_cast<int>(std::min<int64_t>(left.count(), 1000))) > 0) return true;
    }
}

Socket Socket::listen(uint32_t address) {
    Socket made(make_socket());
    const sockaddr_in name = name_of({address, 0});
    if (bind(made.file_, reinterpret_cast<const sockaddr *>(&name), sizeof name) != 0 ||
        ::listen(made.file_, 1024) != 0)
        system_failure(fmt::format("Listening on {}", Endpoint{address, 0}.text()));
    return made;
}

Socket Socket::connect(const Endpoint &to, Deadline deadline) {
    const sockaddr_in name = name_of(to);
    for (int reason = ETIMEDOUT;;) {
        Socket made(make_socket());
        int error = ::connect(made.file_, reinterpret_cast<const sockaddr *>(&name), sizeof name) == 0 ? 0 : errno;
        if (error == EINPROGRESS) {
            if (!made.ready(POLLOUT, deadline)) error = ETIMEDOUT;
            socklen_t length = sizeof error;
            if (error != ETIMEDOUT) getsockopt(made.file_, SOL_SOCKET, SO_ERROR, &error, &length);
        }
        if (error == 0) return made;
        if (error != ETIMEDOUT) reason = error;  // why the tries before the last failed says more
        if (deadline && Clock::now() >= *deadline)
            fail(FaultKind::Timeout, "Connecting to {} did not succeed in time (HCCL_CONNECT_TIMEOUT): {}.", to.text(),
                 std::strerror(reason));
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
}

Socket Socket::accept() const {
    Socket made(accept4(file_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!made) return made;
    const int on = 1;
    setsockopt(made.file_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return made;
}

Endpoint Socket::local() const {
    sockaddr_in name{};
    socklen_t length = sizeof name;
    getsockname(file_, reinterpret_cast<sockaddr *>(&name), &length);
    return {name.sin_addr.s_addr, ntohs(name.sin_port)};
}

void Socket::send(const void *data, size_t bytes, Deadline deadline) const {
    for (size_t done = 0; done < bytes;) {
        const ssize_t sent = ::send(file_, static_cast<const std::byte *>(data) + done, bytes - done, MSG_NOSIGNAL);
        if (sent > 0)
            done += static_cast<size_t>(sent);
        else if (errno != EAGAIN && errno != EINTR)
            system_failure("Sending to another rank");
        else if (!ready(POLLOUT, deadline))
            fail(FaultKind::Timeout, "Sending to another rank did not succeed within HCCL_CONNECT_TIMEOUT.");
    }
}

void Socket::receive(void *data, size_t bytes, Deadline deadline) const {
    for (size_t done = 0; done < bytes;) {
        const ssize_t come = recv(file_, static_cast<std::byte *>(data) + done, bytes - done, 0);
        if (come > 0)
            done += static_cast<size_t>(come);
        else if (come == 0)
            fail(FaultKind::RankGone, "Another rank has closed the connection.");
        else if (errno != EAGAIN && errno != EINTR)
            system_failure("Receiving from another rank");
        else if (!ready(POLLIN, deadline))
            fail(FaultKind::Timeout, "Nothing came from another rank within HCCL_CONNECT_TIMEOUT.");
    }
}

}  // namespace vnpu::hccl
