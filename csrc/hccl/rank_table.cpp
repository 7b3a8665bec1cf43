#include "hccl/rank_table.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>

#include "device/fault.h"

namespace vnpu::hccl {
namespace {

uint32_t occurrences(const std::string &text, const std::string &key) {
    uint32_t count = 0;
    for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + key.size())) ++count;
    return count;
}

struct Name {
    sockaddr_un address{};
    socklen_t length;
    // An abstract name starts with a zero byte.
    explicit Name(const std::string &name)
        : length(static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())) {
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path + 1, name.data(), name.size());
    }
    const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&address); }
};

int make_socket() {
    const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (made < 0) fail(FaultKind::HostOutOfMemory, "socket failed: {}.", std::strerror(errno));
    return made;
}

}  // namespace

RankTable::RankTable(const std::string &path) {
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    ranks_ = occurrences(text, "\"rank_id\"");
    if (ranks_ == 0) fail(FaultKind::InvalidArgument, "The rank table {} cannot be read or names no rank_id.", path);
    if (occurrences(text, "\"server_id\"") > 1)
        fail(FaultKind::Unsupported,
             "The rank table {} names several servers; the virtual NPU reads tables of one. Unset RANK_TABLE_FILE: the "
             "ranks find each other without it.",
             path);
    name_ = fmt::format("vnpu-hccl-{}-{:016x}", getuid(), std::hash<std::string>()(path + '\n' + text));
}

RankTable::Meeting::Meeting(std::shared_ptr<Segment> segment, int socket) : segment_(std::move(segment)) {
    if (socket < 0) return;
    teller_ = std::thread([socket, address = segment_->address()] {
        for (int peer = accept(socket, nullptr, nullptr); peer >= 0; peer = accept(socket, nullptr, nullptr)) {
            send(peer, &address, sizeof address, MSG_NOSIGNAL);  // a peer that has gone needs it no more
            close(peer);
        }
        close(socket);
    });
    socket_ = std::make_shared<int>(socket);
}

RankTable::Meeting::~Meeting() {
    if (!teller_.joinable()) return;
    shutdown(*socket_, SHUT_RDWR);  // ends accept()
    teller_.join();
}

RankTable::Meeting RankTable::meet(uint32_t rank, Deadline deadline) const {
    const Name name(name_);
    if (rank == 0) {
        const int socket = make_socket();
        if (bind(socket, name.get(), name.length) != 0 || listen(socket, 128) != 0) {
            const std::string reason = std::strerror(errno);
            close(socket);
            fail(FaultKind::InvalidArgument,
                 "Rank 0 of this rank table is running already on this machine, or cannot be reached: {}.", reason);
        }
        return {Segment::create(), socket};
    }
    for (;;) {
        const int socket = make_socket();
        Segment::Address address{};
        const bool told = connect(socket, name.get(), name.length) == 0 &&
                          recv(socket, &address, sizeof address, 0) == sizeof address;
        close(socket);
        if (told) return {Segment::open(address), -1};
        if (deadline && Clock::now() >= *deadline)
            fail(FaultKind::Timeout, "Rank 0 of the rank table has not come within HCCL_CONNECT_TIMEOUT.");
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it has not started yet
    }
}

}  // namespace vnpu::hccl
