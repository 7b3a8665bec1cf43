#include "hccl/network.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "device/fault.h"
#include "hccl/places.h"

namespace vnpu::hccl {
namespace {

int group() {
    const char *number = std::getenv("GROUP_RANK");
    return number == nullptr ? 0 : std::atoi(number);
}

// The root's part: hears every rank, then tells every rank of all. Who comes after a failure is told of it for as long
// as the root's own rank is there, which may itself come last.
void gather(const std::stop_token &stop, const Socket &host, const Identity &id, int ranks, Deadline deadline) {
    std::vector<Introduction> table(static_cast<size_t>(ranks));
    std::vector<Socket> sockets(table.size());
    std::string problem;
    Admission admission(host, id);
    for (int come = 0; come < ranks && problem.empty();) {
        auto guest = admission.next(deadline);
        if (!guest) {
            std::string missing;
            for (size_t rank = 0; rank < table.size(); ++rank)
                if (!sockets[rank]) missing += fmt::format(" {}", rank);
            problem = fmt::format("the others did not come within HCCL_CONNECT_TIMEOUT; missing:{}", missing);
            break;
        }
        const Introduction &says = guest->says;
        if (says.ranks != static_cast<uint32_t>(ranks)) {
            problem = fmt::format("nRanks is {} on rank {}, and {} on the root", says.ranks, says.rank, ranks);
        } else if (says.rank >= table.size()) {
            tell(guest->socket, refused(fmt::format("rank is {}; there are {}", says.rank, ranks)));
            continue;
        } else if (sockets[says.rank]) {
            problem = fmt::format("rank {} has joined twice", says.rank);
        } else {
            table[says.rank] = says;
            sockets[says.rank] = std::move(guest->socket);
            ++come;
            continue;
        }
        sockets.push_back(std::move(guest->socket));  // it is told as well
    }
    const Deadline soon = Clock::now() + std::chrono::seconds(5);
    const Answer answer = problem.empty() ? admitted() : refused(problem);
    tell(sockets, std::as_bytes(std::span(&answer, 1)), soon);
    if (problem.empty()) tell(sockets, std::as_bytes(std::span(table)), soon);
    while (!problem.empty() && !stop.stop_requested())
        if (const auto late = admission.next(Clock::now() + std::chrono::milliseconds(20))) tell(late->socket, answer);
}

// Every rank's introduction, as the root tells it.
std::vector<Introduction> meet(Socket to_root, const Endpoint &root, const Introduction &as, Deadline deadline) {
    const Deadline later = deadline ? Deadline(*deadline + std::chrono::seconds(2)) : std::nullopt;
    introduce(to_root, as, deadline);
    const Answer answer = answered(to_root, root, as, later);
    if (answer.admitted != 1)
        fail(FaultKind::Timeout, "Rank {} of {} could not join: {}.", as.rank, as.ranks, answer.problem.data());
    std::vector<Introduction> table(as.ranks);
    to_root.receive(table.data(), table.size() * sizeof(Introduction), later);
    for (size_t rank = 0; rank < table.size(); ++rank) {
        if (table[rank].id != as.id || table[rank].rank != rank)
            fail(FaultKind::InvalidArgument, "What listens at {} is not the root of this root info.", root.text());
        table[rank].host.back() = '\0';
    }
    return table;
}

}  // namespace

Network::Network(const Identity &id, const Endpoint &root, const Socket *host, int ranks, int rank, int device,
                 Deadline deadline)
    : rank_(rank) {
    std::jthread introduction;
    if (host != nullptr)
        introduction = std::jthread([=](const std::stop_token &stop) { gather(stop, *host, id, ranks, deadline); });
    Socket to_root = Socket::connect(root, deadline);
    const Socket listening = Socket::listen(to_root.local().address);
    const Endpoint mine = listening.local();
    const Introduction as{id,
                          static_cast<uint32_t>(ranks),
                          static_cast<uint32_t>(rank),
                          mine.address,
                          mine.port,
                          getpid(),
                          host_name(),
                          device,
                          group()};
    const auto table = meet(std::move(to_root), root, as, deadline);
    std::vector<Place> places;
    for (const Introduction &each : table)
        places.push_back({fmt::format("{} (group {})", each.host.data(), each.group), each.device});
    check_places(places);
    for (const Introduction &each : table) {
        peers_.push_back(std::make_unique<Peer>());
        peers_.back()->where = fmt::format("process {} on {}", each.process, each.host.data());
    }
    const auto below = [&](size_t peer) {
        return Endpoint{table[peer].address, static_cast<uint16_t>(table[peer].port)};
    };
    const auto numbers = static_cast<size_t>(rank);
    for (size_t peer = 0; peer < numbers; ++peer) {
        peers_[peer]->socket = Socket::connect(below(peer), deadline);
        introduce(peers_[peer]->socket, as, deadline);
    }
    admit(Admission(listening, id), deadline);
    // Behind admit(): those below admit this rank only when they have come that far themselves.
    for (size_t peer = 0; peer < numbers; ++peer) {
        const Answer answer = answered(peers_[peer]->socket, below(peer), as, deadline);
        if (answer.admitted != 1)
            fail(FaultKind::InvalidArgument, "Rank {} did not admit rank {}: {}.", peer, rank, answer.problem.data());
    }
}

// Lets the ranks above this one in.
void Network::admit(Admission admission, Deadline deadline) {
    for (int missing = size() - 1 - rank_; missing > 0;) {
        auto guest = admission.next(deadline);
        if (!guest) fail(FaultKind::Timeout, "{} ranks did not connect to rank {} in time.", missing, rank_);
        const uint32_t number = guest->says.rank;
        if (number <= static_cast<uint32_t>(rank_) || number >= peers_.size() || peers_[number]->socket) {
            tell(guest->socket,
                 refused(fmt::format("rank {} waits for the ranks from {} to {}, each once; this is rank {}", rank_,
                                     rank_ + 1, size() - 1, number)));
            continue;
        }
        tell(guest->socket, admitted());
        peers_[number]->socket = std::move(guest->socket);
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
            if (peer.incoming.leaving != 0)  // it is the last frame: what is longer is not read
                peer.incoming.bytes = std::min<uint32_t>(peer.incoming.bytes, kLongestReason);
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
    const Frame frame{1, static_cast<uint32_t>(std::min(reason.size(), kLongestReason))};
    for (const auto &peer : peers_) {
        if (!peer->socket) continue;
        // In the middle of a frame the reason would be taken for data; then the closed connection must do.
        if (!peer->closed && !peer->deaf && peer->outgoing.bytes == 0 && peer->header_sent == sizeof(Frame)) {
            std::array<char, sizeof(Frame) + kLongestReason> message{};
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
