#include "hccl/rank_table.h"

#include <pwd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "ascendcl/json.h"
#include "device/fault.h"

namespace vnpu::hccl {
namespace {

using acl::Json;

// What a rank table says, field by field. Its numbers are strings, as in CANN's.
class Fields {
  public:
    explicit Fields(const std::string &path) : path_(path) {}

    template <class... Args>
    [[noreturn]] void refuse(fmt::format_string<Args...> text, Args &&...args) const {
        fail(FaultKind::InvalidArgument, "The rank table {} {}.", path_,
             fmt::format(text, std::forward<Args>(args)...));
    }

    const Json::Object &object(const Json &value, const std::string &where) const {
        if (const auto *found = std::get_if<Json::Object>(&value)) return *found;
        refuse("has no object at {}", where);
    }

    const Json::List &list(const Json::Object &in, const std::string &name, const std::string &where) const {
        const auto found = in.find(name);
        if (found == in.end()) refuse("has no {}", where);
        const auto *values = std::get_if<Json::List>(&found->second);
        if (values == nullptr || values->empty()) refuse("has a {} that is no list of at least one", where);
        return *values;
    }

    std::string text(const Json::Object &in, const std::string &name, const std::string &where) const {
        const auto found = in.find(name);
        if (found == in.end()) refuse("has no {}", where);
        if (const auto *value = std::get_if<std::string>(&found->second)) return *value;
        refuse("has a {} that is no string", where);
    }

    uint32_t number(const Json::Object &in, const std::string &name, const std::string &where) const {
        const std::string value = text(in, name, where);
        uint32_t number = 0;
        const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
        if (error != std::errc() || end != value.data() + value.size())
            refuse("has \"{}\" as {}, which is no number", value, where);
        return number;
    }

  private:
    const std::string &path_;
};

// Number of ranks in the table.
uint32_t ranks_of(const std::string &path, const std::string &content) {
    const Fields fields(path);
    Json document;
    try {
        document = acl::parse_json(content);
    } catch (const Fault &fault) {
        fields.refuse("cannot be read: {}", fault.what());
    }
    const Json::Object &table = fields.object(document, "its top");
    if (table.contains("status") && fields.text(table, "status", "status") != "completed")
        fields.refuse("has not the status \"completed\"");
    const Json::List &servers = fields.list(table, "server_list", "server_list");
    if (table.contains("server_count"))
        if (const uint32_t count = fields.number(table, "server_count", "server_count"); count != servers.size())
            fields.refuse("has {} as server_count and {} in its server_list", count, servers.size());
    if (servers.size() > 1)
        fail(FaultKind::Unsupported,
             "The rank table {} names several servers; the virtual NPU reads tables of one. Unset RANK_TABLE_FILE: the "
             "ranks find each other without it.",
             path);
    const Json::Object &server = fields.object(servers.front(), "server_list[0]");
    fields.text(server, "server_id", "server_list[0].server_id");
    const Json::List &devices = fields.list(server, "device", "server_list[0].device");
    std::vector<bool> there(devices.size());
    std::set<uint32_t> device_ids;
    for (size_t i = 0; i < devices.size(); ++i) {
        const std::string where = fmt::format("server_list[0].device[{}]", i);
        const Json::Object &device = fields.object(devices[i], where);
        const uint32_t rank = fields.number(device, "rank_id", where + ".rank_id");
        if (rank >= there.size()) fields.refuse("has {} as {}.rank_id; there are {}", rank, where, there.size());
        if (there[rank]) fields.refuse("has {} as rank_id twice", rank);
        there[rank] = true;
        const uint32_t device_id = fields.number(device, "device_id", where + ".device_id");
        if (!device_ids.insert(device_id).second) fields.refuse("has {} as device_id twice", device_id);
    }
    return static_cast<uint32_t>(devices.size());
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

// What connects, sends or receives through it waits for a second at most.
int make_socket() {
    const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (made < 0) fail(FaultKind::HostOutOfMemory, "socket failed: {}.", std::strerror(errno));
    const timeval second{1, 0};
    setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
    setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
    return made;
}

// Who is on the other side of a connection: who has connected, or who listens there.
ucred owner(int connection) {
    ucred found{};
    socklen_t length = sizeof found;
    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &found, &length) != 0) found.uid = static_cast<uid_t>(-1);
    return found;
}

std::string user(uid_t number) {
    std::array<char, 4096> room;
    passwd entry{}, *found = nullptr;
    getpwuid_r(number, &entry, room.data(), room.size(), &found);
    return found == nullptr ? fmt::format("user {}", number) : fmt::format("user {} ({})", found->pw_name, number);
}

[[noreturn]] void taken(const std::string &name, const ucred &by) {
    fail(FaultKind::InvalidArgument,
         "The ranks of this rank table meet at the abstract socket @{}, which process {} of {} has taken.", name,
         by.pid, user(by.uid));
}

// Why rank 0 cannot have the name.
[[noreturn]] void refuse_second(const std::string &name, int error) {
    const int socket = make_socket();
    const Name address(name);
    const bool listens = connect(socket, address.get(), address.length) == 0;
    const ucred by = listens ? owner(socket) : ucred{};
    close(socket);
    if (listens && by.uid != getuid()) taken(name, by);
    if (listens)
        fail(FaultKind::InvalidArgument, "Rank 0 of this rank table is running already on this machine: process {}.",
             by.pid);
    fail(FaultKind::InvalidArgument,
         "The ranks of this rank table meet at the abstract socket @{}, which cannot be had: {}.", name,
         std::strerror(error));
}

}  // namespace

RankTable::RankTable(const std::string &path) {
    std::error_code error;
    const bool regular = std::filesystem::is_regular_file(path, error);
    std::ifstream file(path, std::ios::binary);
    if (!regular || !file) fail(FaultKind::InvalidArgument, "The rank table {} cannot be read.", path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    ranks_ = ranks_of(path, text);
    name_ = fmt::format("vnpu-hccl-{}-{:016x}", getuid(), std::hash<std::string>()(path + '\n' + text));
}

RankTable::Meeting::Meeting(std::shared_ptr<Segment> segment, int socket) : segment_(std::move(segment)) {
    if (socket < 0) return;
    teller_ = std::thread([socket, address = segment_->address()] {
        for (;;) {
            const int peer = accept4(socket, nullptr, nullptr, SOCK_CLOEXEC);
            if (peer < 0 && errno == EINVAL) break;  // shut down
            if (peer < 0) {
                if (errno != EAGAIN && errno != EINTR) std::this_thread::sleep_for(std::chrono::milliseconds(10));
                continue;
            }
            if (owner(peer).uid == getuid())  // a peer that has gone needs it no more
                send(peer, &address, sizeof address, MSG_NOSIGNAL | MSG_DONTWAIT);
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
            const int error = errno;
            close(socket);
            refuse_second(name_, error);
        }
        return {Segment::create(), socket};
    }
    for (;;) {
        const int socket = make_socket();
        Segment::Address address{};
        const bool listens = connect(socket, name.get(), name.length) == 0;
        const ucred by = listens ? owner(socket) : ucred{};
        const bool told = listens && by.uid == getuid() && recv(socket, &address, sizeof address, 0) == sizeof address;
        close(socket);
        if (listens && by.uid != getuid()) taken(name_, by);
        if (told) return {Segment::open(address), -1};
        if (deadline && Clock::now() >= *deadline)
            fail(FaultKind::Timeout, "Rank 0 of the rank table has not come within HCCL_CONNECT_TIMEOUT.");
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it has not started yet
    }
}

}  // namespace vnpu::hccl
