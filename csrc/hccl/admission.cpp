#include "hccl/admission.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "device/fault.h"

namespace vnpu::hccl {
namespace {

// Milliseconds for poll(), at most a second.
int patience(Deadline deadline) {
    constexpr std::chrono::milliseconds kLongest{1000};
    if (!deadline) return kLongest.count();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
    return static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), kLongest).count());
}

bool passed(Deadline deadline) { return deadline && Clock::now() >= *deadline; }

}  // namespace

Answer admitted() { return {1, {}}; }

Answer refused(const std::string &problem) {
    Answer answer{};
    problem.copy(answer.problem.data(), answer.problem.size() - 1);
    return answer;
}

bool Admission::hear(Unknown &who) const noexcept {
    auto *const bytes = reinterpret_cast<std::byte *>(&who.says);
    while (who.come < sizeof who.says) {
        const ssize_t come = recv(who.socket.file(), bytes + who.come, sizeof who.says - who.come, MSG_DONTWAIT);
        if (come == 0) return false;
        if (come < 0) return errno == EAGAIN || errno == EINTR;
        who.come += static_cast<size_t>(come);
        if (std::memcmp(bytes, &id_, std::min(who.come, sizeof id_)) != 0) return false;
    }
    who.says.host.back() = '\0';
    return true;
}

std::optional<Admission::Guest> Admission::hear_all() {
    for (auto it = waiting_.begin(); it != waiting_.end();) {
        if (!hear(*it)) {
            it = waiting_.erase(it);
        } else if (it->come == sizeof it->says) {
            Guest guest{std::move(it->socket), it->says};
            waiting_.erase(it);
            return guest;
        } else {
            ++it;
        }
    }
    return std::nullopt;
}

void Admission::let_in() {
    for (int count = 0; count < kAtOnce; ++count) {
        Socket made = listening_.accept();
        if (made) {
            waiting_.push_back({std::move(made)});
            continue;
        }
        if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
        // No descriptor is left for another: a rank may be behind those that say nothing.
        if (waiting_.empty())
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        else
            waiting_.pop_front();
        return;
    }
}

std::optional<Admission::Guest> Admission::next(Deadline deadline) {
    for (;;) {
        if (auto guest = hear_all()) return guest;
        while (waiting_.size() > kWaiting) waiting_.pop_front();
        if (passed(deadline)) return std::nullopt;
        std::vector<pollfd> entries{{listening_.file(), POLLIN, 0}};
        for (const Unknown &who : waiting_) entries.push_back({who.socket.file(), POLLIN, 0});
        poll(entries.data(), entries.size(), patience(deadline));
        if (entries.front().revents != 0) let_in();
    }
}

void introduce(const Socket &to, const Introduction &as, Deadline deadline) {
    try {
        to.send(&as, sizeof as, deadline);
    } catch (const Fault &fault) {
        if (fault.kind() == FaultKind::Timeout) throw;
    }
}

Answer answered(Socket &socket, const Endpoint &to, const Introduction &as, Deadline deadline) {
    for (;;) {
        try {
            Answer answer{};
            socket.receive(&answer, sizeof answer, deadline);
            answer.problem.back() = '\0';
            return answer;
        } catch (const Fault &fault) {
            if (fault.kind() == FaultKind::Timeout || passed(deadline)) throw;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        // It listened a moment ago: where it does not now, it has ended.
        const Clock::time_point soon = Clock::now() + std::chrono::seconds(1);
        socket = Socket::connect(to, deadline ? std::min(*deadline, soon) : soon);
        introduce(socket, as, deadline);
    }
}

void tell(std::span<const Socket> sockets, std::span<const std::byte> bytes, Deadline deadline) {
    std::vector<size_t> sent(sockets.size(), 0);
    for (;;) {
        std::vector<pollfd> entries;
        for (size_t i = 0; i < sockets.size(); ++i) {
            while (sockets[i] && sent[i] < bytes.size()) {
                const auto rest = bytes.subspan(sent[i]);
                const ssize_t done = ::send(sockets[i].file(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
                if (done < 0 && errno == EINTR) continue;
                if (done < 0 && errno == EAGAIN) {
                    entries.push_back({sockets[i].file(), POLLOUT, 0});
                    break;
                }
                sent[i] = done < 0 ? bytes.size() : sent[i] + static_cast<size_t>(done);
            }
        }
        if (entries.empty() || passed(deadline)) return;
        poll(entries.data(), entries.size(), patience(deadline));
    }
}

void tell(const Socket &socket, const Answer &answer) {
    tell({&socket, 1}, std::as_bytes(std::span(&answer, 1)), Clock::now());
}

}  // namespace vnpu::hccl
