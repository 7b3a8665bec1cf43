// Communicators: how their ranks find each other.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "ascendcl/visible_devices.h"
#include "device/machine.h"
#include "hccl/communicator.h"
#include "hccl/network.h"
#include "hccl/rank_table.h"
#include "hccl/settings.h"
#include "hccl/shared_memory.h"

using namespace vnpu;
using namespace vnpu::hccl;

namespace {

// What the bytes of HcclRootInfo mean here.
struct RootInfo {
    static constexpr uint64_t kMagic = 0x3176'6c63'6368'7576;  // "vuhcclv1"
    uint64_t magic;
    Segment::Address segment;  // of ranks on one machine
    Endpoint root;             // of ranks on several; port 0 on one
};
static_assert(sizeof(RootInfo) <= sizeof(HcclRootInfo));

// Root infos that this process has given out and in which no rank of its own has joined yet.
class Pending {
  public:
    struct Entry {
        Identity id;
        std::shared_ptr<Segment> segment;
        Socket host;
    };
    void keep(Entry entry) {
        const std::lock_guard lock(mutex_);
        entries_.push_back(std::move(entry));
    }
    std::optional<Entry> take(const Identity &id) {
        const std::lock_guard lock(mutex_);
        for (auto it = entries_.begin(); it != entries_.end(); ++it)
            if (it->id == id) {
                Entry found = std::move(*it);
                entries_.erase(it);
                return found;
            }
        return std::nullopt;
    }

  private:
    std::mutex mutex_;
    std::vector<Entry> entries_;
};

Pending &pending() {
    static auto *all = new Pending;  // never destroyed: programs end without having used every root info
    return *all;
}

// torchrun says how many ranks there are, and how many of them are on this machine.
bool on_several_machines() {
    const char *world = std::getenv("WORLD_SIZE"), *local = std::getenv("LOCAL_WORLD_SIZE");
    return world != nullptr && local != nullptr && std::atoi(world) > std::atoi(local);
}

void make_root_info(HcclRootInfo *rootInfo) {
    HcclRootInfo &out = acl::required(rootInfo, "rootInfo");
    auto segment = Segment::create();
    Socket host = on_several_machines() ? Socket::listen(own_address()) : Socket();
    const RootInfo info{RootInfo::kMagic, segment->address(), host ? host.local() : Endpoint{}};
    out = {};
    std::memcpy(out.internal, &info, sizeof info);
    pending().keep({info.segment.id, std::move(segment), std::move(host)});
}

RootInfo read_root_info(const HcclRootInfo *rootInfo) {
    RootInfo info{};
    std::memcpy(&info, acl::required(rootInfo, "rootInfo").internal, sizeof info);
    if (info.magic != RootInfo::kMagic)
        fail(
            FaultKind::InvalidArgument,
            "rootInfo is not one that HcclGetRootInfo of the virtual NPU has made: do all ranks run on virtual NPUs of "
            "the same version?");
    return info;
}

void check_rank(uint32_t ranks, uint32_t rank) {
    if (ranks == 0 || ranks > 1024)
        fail(FaultKind::InvalidArgument, "nRanks is {}; the virtual NPU allows 1 to 1024.", ranks);
    if (rank >= ranks) fail(FaultKind::InvalidArgument, "rank is {}; there are {}.", rank, ranks);
}

// One or more letters, digits and `others`.
bool word(std::string_view text, std::string_view others) {
    return !text.empty() && std::ranges::all_of(text, [&](char one) {
        return (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z') || (one >= '0' && one <= '9') ||
               others.find(one) != std::string_view::npos;
    });
}

// Whether each of the parts between separators is as it should be.
template <class Right>
bool each(std::string_view text, char separator, Right &&right) {
    for (size_t end = text.find(separator); end != std::string_view::npos; end = text.find(separator)) {
        if (!right(text.substr(0, end))) return false;
        text.remove_prefix(end + 1);
    }
    return right(text);
}

// Of all operators or of each its algorithm on each level, as the variable HCCL_ALGO has them: "level0:NA;level1:ring",
// "allreduce=level0:NA;level1:NHR/others=level1:ring". The virtual NPU has algorithms of its own and follows none.
void check_algorithms(std::string_view text) {
    if (each(text, '/', [](std::string_view rule) {
            const size_t equals = rule.find('=');
            const bool named = equals != std::string_view::npos;
            if (named && !word(rule.substr(0, equals), "_")) return false;
            return each(named ? rule.substr(equals + 1) : rule, ';', [](std::string_view level) {
                return level.starts_with("level") && level.size() > 6 && level[5] >= '0' && level[5] <= '9' &&
                       level[6] == ':' && word(level.substr(7), "_-");
            });
        }))
        return;
    fail(FaultKind::InvalidArgument,
         "hcclAlgo is \"{}{}\"; it names an algorithm for each level, as in \"level0:NA;level1:ring\".",
         text.substr(0, 60), text.size() > 60 ? "..." : "");
}

Options options(const HcclCommConfig *config, const Identity &id) {
    Options made{.name = fmt::format("hccl_{:016x}", id[0]),
                 .buffer = config == nullptr ? buffer_size() : buffer_size(config->hcclBufferSize),
                 .shared_buffer = {},
                 .limit = exec_timeout()};
    if (config == nullptr) return made;
    if (config->hcclAlgo[0] != '\0')
        check_algorithms({config->hcclAlgo, strnlen(config->hcclAlgo, HCCL_COMM_ALGO_MAX_LENGTH)});
    made.shared_buffer.assign(config->hcclBufferName, strnlen(config->hcclBufferName, BUFFER_NAME_MAX_LENGTH));
    if (config->hcclCommName[0] != '\0')
        made.name = std::string(config->hcclCommName, strnlen(config->hcclCommName, COMM_NAME_MAX_LENGTH));
    if (config->hcclExecTimeOut > 0) made.limit = std::chrono::seconds(config->hcclExecTimeOut);
    return made;
}

int current_physical_device() { return acl::physical_device(Machine::instance().current().index()); }

HcclComm join(std::unique_ptr<Transport> transport, const Identity &id, const HcclCommConfig *config) {
    return communicators.add(std::make_shared<Communicator>(std::move(transport), Machine::instance().current().index(),
                                                            options(config, id)));
}

HcclComm join(const std::shared_ptr<Segment> &segment, uint32_t ranks, uint32_t rank, const HcclCommConfig *config,
              Deadline deadline) {
    segment->lay_out(static_cast<int>(ranks));
    auto transport = std::make_unique<SharedMemory>(segment, static_cast<int>(rank), current_physical_device());
    transport->connect(deadline);
    return join(std::move(transport), segment->address().id, config);
}

Deadline connect_deadline() { return Clock::now() + connect_timeout(); }

// Before the rank takes its place among the others, which it keeps when joining fails. Fault NoDevice, InvalidArgument.
void need(const HcclCommConfig *config) {
    Machine::instance().current();
    options(config, {});
}

void join_root(uint32_t ranks, const HcclRootInfo *rootInfo, uint32_t rank, const HcclCommConfig *config,
               HcclComm *comm) {
    HcclComm &out = acl::required(comm, "comm");
    check_rank(ranks, rank);
    const Interruptible waiting;
    need(config);
    const RootInfo info = read_root_info(rootInfo);
    const Identity &id = info.segment.id;
    if (info.root.port == 0) {
        const auto segment = Segment::open(info.segment);
        out = join(segment, ranks, rank, config, connect_deadline());
        pending().take(id);
    } else {
        const auto mine = pending().take(id);
        out = join(std::make_unique<Network>(id, info.root, mine ? &mine->host : nullptr, static_cast<int>(ranks),
                                             static_cast<int>(rank), current_physical_device(), connect_deadline()),
                   id, config);
    }
}

// All ranks of one process: one after another takes its place, then none has to wait.
void join_all(uint32_t count, const int32_t *devices, HcclComm *comms) {
    acl::not_null(devices, "devices");
    acl::not_null(comms, "comms");
    check_rank(count, 0);
    options(nullptr, {});
    const auto segment = Segment::create();
    segment->lay_out(static_cast<int>(count));
    std::vector<std::unique_ptr<SharedMemory>> transports;
    for (uint32_t rank = 0; rank < count; ++rank) {
        Machine::instance().device(devices[rank]);
        const int device = acl::physical_device(devices[rank]);
        transports.push_back(std::make_unique<SharedMemory>(segment, static_cast<int>(rank), device));
    }
    for (uint32_t rank = 0; rank < count; ++rank) {
        transports[rank]->connect(connect_deadline());
        comms[rank] = communicators.add(std::make_shared<Communicator>(std::move(transports[rank]), devices[rank],
                                                                       options(nullptr, segment->address().id)));
    }
}

// Every member of a part asks the parent's segment for the part's; the first of them makes it.
HcclComm join_part(Communicator &parent, std::span<const uint32_t> members, uint64_t part, uint32_t rank,
                   const HcclCommConfig *config) {
    auto *transport = dynamic_cast<SharedMemory *>(&parent.transport());
    if (transport == nullptr)
        fail(FaultKind::Unsupported,
             "Part of a communicator between machines: make it from a root info of its own (HcclCommInitRootInfo).");
    for (const uint32_t member : members) check_rank(static_cast<uint32_t>(parent.size()), member);
    if (rank >= members.size() || members[rank] != static_cast<uint32_t>(parent.rank()))
        fail(FaultKind::InvalidArgument, "subCommRankId is {}, but rankIds does not have this rank, {}, there.", rank,
             parent.rank());
    need(config);
    const Deadline deadline = connect_deadline();
    const auto segment = transport->segment()->part(members, part, deadline);
    return join(segment, static_cast<uint32_t>(members.size()), rank, config, deadline);
}

void join_table(const char *path, uint32_t rank, const HcclCommConfig *config, HcclComm *comm) {
    HcclComm &out = acl::required(comm, "comm");
    acl::not_null(path, "clusterInfo");
    need(config);
    const Deadline deadline = connect_deadline();
    const RankTable table(path);
    check_rank(table.ranks(), rank);
    const Interruptible waiting;
    const auto segment = table.meet(rank, deadline);
    out = join(segment.get(), table.ranks(), rank, config, deadline);
}

}  // namespace

HcclResult HcclGetRootInfo(HcclRootInfo *rootInfo) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(rootInfo) { make_root_info(rootInfo); });
}

HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo *rootInfo, uint32_t rank, HcclComm *comm) {
    return static_cast<HcclResult>(
        VNPU_COLLECTIVE_API(nRanks, rootInfo, rank, comm) { join_root(nRanks, rootInfo, rank, nullptr, comm); });
}

HcclResult HcclCommInitRootInfoConfig(uint32_t nRanks, const HcclRootInfo *rootInfo, uint32_t rank,
                                      const HcclCommConfig *config, HcclComm *comm) {
    return static_cast<HcclResult>(
        VNPU_COLLECTIVE_API(nRanks, rootInfo, rank, config, comm) { join_root(nRanks, rootInfo, rank, config, comm); });
}

HcclResult HcclGetRootInfoScalable(HcclRootInfo *rootInfo) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(rootInfo) { make_root_info(rootInfo); });
}

// Several roots spread the load of connecting thousands of ranks; here the first serves them all.
HcclResult HcclCommInitRootInfoScalable(uint32_t nRanks, uint32_t nRoot, const HcclRootInfo *rootInfoList,
                                        uint32_t rank, uint32_t nExtRoot, const HcclCommConfig *config,
                                        HcclComm *comm) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(nRanks, nRoot, rootInfoList, rank, nExtRoot, config, comm) {
        if (nRoot == 0 || nExtRoot != 0)
            fail(FaultKind::InvalidArgument, "nRoot is {} and nExtRoot {}; at least 1 and exactly 0 are allowed.",
                 nRoot, nExtRoot);
        join_root(nRanks, rootInfoList, rank, config, comm);
    });
}

HcclResult HcclCommInitAll(uint32_t ndev, int32_t *devices, HcclComm *comms) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(ndev, devices, comms) { join_all(ndev, devices, comms); });
}

HcclResult HcclCommInitClusterInfo(const char *clusterInfo, uint32_t rank, HcclComm *comm) {
    return static_cast<HcclResult>(
        VNPU_COLLECTIVE_API(clusterInfo, rank, comm) { join_table(clusterInfo, rank, nullptr, comm); });
}

HcclResult HcclCommInitClusterInfoConfig(const char *clusterInfo, uint32_t rank, HcclCommConfig *config,
                                         HcclComm *comm) {
    return static_cast<HcclResult>(
        VNPU_COLLECTIVE_API(clusterInfo, rank, config, comm) { join_table(clusterInfo, rank, config, comm); });
}

// A rank that is not a member calls it too, with no ranks and this number, and gets no communicator.
HcclResult HcclCreateSubCommConfig(HcclComm *comm, uint32_t rankNum, uint32_t *rankIds, uint64_t subCommId,
                                   uint32_t subCommRankId, HcclCommConfig *config, HcclComm *subComm) {
    return static_cast<HcclResult>(
        VNPU_COLLECTIVE_API(comm, rankNum, rankIds, subCommId, subCommRankId, config, subComm) {
            constexpr uint64_t kNotMember = 0xFFFFFFFF;
            const auto parent = communicators.find(acl::required(comm, "comm"));
            HcclComm &out = acl::required(subComm, "subComm");
            out = nullptr;
            if (rankIds == nullptr && subCommId == kNotMember) return;
            acl::not_null(rankIds, "rankIds");
            out = join_part(*parent, {rankIds, rankNum}, subCommId, subCommRankId, config);
        });
}
