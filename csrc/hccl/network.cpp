#include "hccl/network.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "device/fault.h"

namespace vnpu::hccl {
namespace {

// What a rank tells the root, and the root all ranks.
struct Entry {
    Identity id;
    uint32_t ranks, rank, address, port;
    int64_t process;
    std::array<char, 64> host;
};

struct Answer {
    uint32_t complete;
    std::array<char, 1024> problem;  // why it is not
};

std::array<char, 64> host_name() {
    std::array<char, 64> name{};
    gethostname(name.data(), name.size() - 1);
    return name;
}

// The root's part: hears every rank, then tells every rank of all.
void introduce(const Socket &host, const Identity &id, int ranks, Deadline deadline) {
    std::vector<Entry> table(static_cast<size_t>(ranks));
    std::vector<Socket> sockets(table.size());
    Answer answer{1, {}};
    const auto complain = [&](const std::string &text) {
        answer.complete = 0;
        std::strncpy(answer.problem.data(), text.c_str(), answer.problem.size() - 1);
    };
    std::vector<Socket> refused;
    for (int come = 0; come < ranks && answer.complete == 1;) {
        Socket socket = host.accept(deadline);
        if (!socket) {
            std::string missing;
            for (size_t rank = 0; rank < sockets.size(); ++rank)
                if (!sockets[rank]) missing += fmt::format(" {}", rank);
            complain(fmt::format("the others did not come within HCCL_CONNECT_TIMEOUT; missing:{}", missing));
            break;
        }
        Entry entry{};
        try {
            socket.receive(&entry, sizeof entry, Clock::now() + std::chrono::seconds(5));
        } catch (const Fault &) {
            continue;  // not one of ours
        }
        if (entry.id != id || entry.rank >= sockets.size()) continue;
        if (entry.ranks != static_cast<uint32_t>(ranks) || sockets[entry.rank]) {
            complain(entry.ranks != static_cast<uint32_t>(ranks)
                         ? fmt::format("nRanks is {} on rank {}, and {} on the root", entry.ranks, entry.rank, ranks)
                         : fmt::format("rank {} has joined twice", entry.rank));
            refused.push_back(std::move(socket));
            break;
        }
        table[entry.rank] = entry;
        sockets[entry.rank] = std::move(socket);
        ++come;
    }
    for (Socket &socket : refused) sockets.push_back(std::move(socket));
    for (const Socket &socket : sockets) {
        if (!socket) continue;
        try {
            const Deadline soon = Clock::now() + std::chrono::seconds(5);
            socket.send(&answer, sizeof answer, soon);
            if (answer.complete == 1) socket.send(table.data(), table.size() * sizeof(Entry), soon);
        } catch (const Fault &) {
            continue;  // it has gone: the others will find out when they connect to it
        }
    }
}

}  // namespace

Network::Network(const Identity &id, const Endpoint &root, const Socket *host, int ranks, int rank, Deadline deadline)
    : rank_(rank) {
    std::jthread introduction;
    if (host != nullptr) introduction = std::jthread([=] { introduce(*host, id, ranks, deadline); });
    std::vector<Entry> table(static_cast<size_t>(ranks));
    Socket listening;
    {
        const Socket to_root = Socket::connect(root, deadline);
        listening = Socket::listen(to_root.local().address);
        const Endpoint mine = listening.local();
        const Entry entry{
            id,         static_cast<uint32_t>(ranks), static_cast<uint32_t>(rank), mine.address, mine.port, getpid(),
            host_name()};
        to_root.send(&entry, sizeof entry, deadline);
        Answer answer{};
        const Deadline later = deadline ? Deadline(*deadline + std::chrono::seconds(2)) : std::nullopt;
        to_root.receive(&answer, sizeof answer, later);
        if (answer.complete != 1)
            fail(FaultKind::Timeout, "Rank {} of {} could not join: {}.", rank, ranks, answer.problem.data());
        to_root.receive(table.data(), table.size() * sizeof(Entry), later);
    }
    for (const Entry &entry : table) {
        peers_.push_back(std::make_unique<Peer>());
        peers_.back()->where = fmt::format("process {} on {}", entry.process, entry.host.data());
    }
    const Entry &mine = table[static_cast<size_t>(rank)];
    for (size_t peer = 0; peer < static_cast<size_t>(rank); ++peer) {
        peers_[peer]->socket =
            Socket::connect({table[peer].address, static_cast<uint16_t>(table[peer].port)}, deadline);
        peers_[peer]->socket.send(&mine, sizeof mine, deadline);
    }
    for (int missing = ranks - 1 - rank; missing > 0;) {
        Socket socket = listening.accept(deadline);
        if (!socket) fail(FaultKind::Timeout, "{} ranks did not connect to rank {} in time.", missing, rank);
        Entry entry{};
        socket.receive(&entry, sizeof entry, deadline);
        if (entry.id != id || entry.rank >= peers_.size() || peers_[entry.rank]->socket) continue;  // not one of ours
        peers_[entry.rank]->socket = std::move(socket);
        --missing;
    }
}

Network::~Network() { leave({}); }

void Network::push(Peer &peer) noexcept {
    while (!peer.closed && !peer.deaf && peer.socket) {
        const void *data = reinterpret_cast<const std::byte *>(&peer.outgoing) + peer.header_sent;
        size_t bytes = sizeof(Frame) - peer.header_sent;
        if (bytes == 0 && peer.outgoing.bytes == 0) {  // a new frame: all that there is
            const size_t there = peer.out.ring.bytes().size();
            if (there == 0) return;
            peer.outgoing = {0, static_cast<uint32_t>(there)};
            peer.header_sent = 0;
            continue;
        }
        if (bytes == 0) {
            data = peer.out.ring.bytes().data();
            bytes = peer.outgoing.bytes;
        }
        const bool header = peer.header_sent < sizeof(Frame);
        const ssize_t sent = ::send(peer.socket.file(), data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            peer.deaf = errno != EAGAIN && errno != EINTR;
            return;
        }
        if (header) {
            peer.header_sent += static_cast<size_t>(sent);
        } else {
            peer.out.ring.take(static_cast<size_t>(sent));
            peer.outgoing.bytes -= static_cast<uint32_t>(sent);
        }
    }
}

void Network::pull(Peer &peer) noexcept {
    while (!peer.closed && peer.socket) {
        std::array<char, 1024> text{};
        void *to = nullptr;
        size_t bytes = 0;
        const bool header = peer.header < sizeof(Frame);
        if (header) {
            to = reinterpret_cast<std::byte *>(&peer.incoming) + peer.header;
            bytes = sizeof(Frame) - peer.header;
        } else if (peer.incoming.leaving != 0) {
            to = text.data();
            bytes = std::min<size_t>(peer.incoming.bytes, text.size());
        } else {
            const auto room = peer.in.ring.room();
            to = room.data();
            bytes = std::min<size_t>(room.size(), peer.incoming.bytes);
        }
        if (bytes == 0) return;  // the ring is full
        const ssize_t come = recv(peer.socket.file(), to, bytes, MSG_DONTWAIT);
        if (come <= 0) {
            peer.closed = come == 0 || (errno != EAGAIN && errno != EINTR);
            return;
        }
        if (header) {
            peer.header += static_cast<size_t>(come);
            if (peer.header < sizeof(Frame)) continue;
        } else {
            if (peer.incoming.leaving != 0)
                peer.reason.append(text.data(), static_cast<size_t>(come));
            else
                peer.in.ring.commit(static_cast<size_t>(come));
            peer.incoming.bytes -= static_cast<uint32_t>(come);
        }
        if (peer.incoming.bytes != 0) continue;
        if (peer.incoming.leaving != 0) {
            peer.closed = true;
            if (peer.reason.empty()) peer.reason = "left";
        }
        peer.header = 0;
    }
}

void Network::notify(int peer) noexcept { pump(*peers_[static_cast<size_t>(peer)]); }

void Network::wait(const Condition &condition, Clock::time_point until) {
    std::vector<pollfd> entries;
    for (const auto &peer : peers_) {
        if (!peer->socket || peer->closed) continue;
        pump(*peer);
        const short events = static_cast<short>((peer->in.ring.room().empty() ? 0 : POLLIN) |
                                                (peer->out.ring.empty() || peer->deaf ? 0 : POLLOUT));
        if (!peer->closed && events != 0) entries.push_back({peer->socket.file(), events, 0});
    }
    if (condition.holds()) return;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    poll(entries.data(), entries.size(), static_cast<int>(std::max<int64_t>(left, 0)));
    for (const auto &peer : peers_)
        if (peer->socket) pump(*peer);
}

std::string Network::absence(int peer) {
    const Peer &other = *peers_[static_cast<size_t>(peer)];
    if (!other.closed) return {};
    if (other.reason.empty())
        return fmt::format("rank {} ({}) died: its connection was closed without a word", peer, other.where);
    if (other.reason == "left")
        return fmt::format(
            "rank {} ({}) has left the communicator: its process ended in an error or destroyed the group, so look at "
            "its log",
            peer, other.where);
    return fmt::format("rank {} has failed before: {}", peer, other.reason);
}

std::string Network::condition(int peer) {
    return fmt::format("rank {} ({}) is connected, and running or stopped", peer,
                       peers_[static_cast<size_t>(peer)]->where);
}

// What is in the rings is dropped: after a failure it is of no use, and otherwise every collective has seen it off.
void Network::leave(std::string_view reason) noexcept {
    if (std::exchange(left_, true)) return;
    const Frame frame{1, static_cast<uint32_t>(std::min<size_t>(reason.size(), 1000))};
    for (const auto &peer : peers_) {
        if (!peer->socket) continue;
        // In the middle of a frame the reason would be taken for data; then the closed connection must do.
        if (!peer->closed && !peer->deaf && peer->outgoing.bytes == 0 && peer->header_sent == sizeof(Frame)) {
            std::array<char, sizeof(Frame) + 1000> message{};
            std::memcpy(message.data(), &frame, sizeof frame);
            reason.copy(message.data() + sizeof frame, frame.bytes);
            ::send(peer->socket.file(), message.data(), sizeof frame + frame.bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        shutdown(peer->socket.file(), SHUT_WR);
    }
}

void Network::restore(Deadline) {
    fail(FaultKind::Unsupported, "A communicator between machines cannot be resumed: destroy it and make another.");
}

}  // namespace vnpu::hccl
