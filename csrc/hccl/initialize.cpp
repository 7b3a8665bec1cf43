// Communicators: how ranks find each other, and what a program can ask about one.
#include <sys/types.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "device/machine.h"
#include "hccl/communicator.h"
#include "hccl/settings.h"
#include "hccl/shared_memory.h"

using namespace vnpu;
using namespace vnpu::hccl;

namespace {

// What the bytes of HcclRootInfo mean here.
struct RootInfo {
    static constexpr uint64_t kMagic = 0x3176'6c63'6368'7576;  // "vuhcclv1"
    uint64_t magic;
    Segment::Address segment;
    std::array<char, 40> boot;  // of the machine, by which others know that they are on the same
};
static_assert(sizeof(RootInfo) <= sizeof(HcclRootInfo));

std::array<char, 40> boot_id() {
    std::array<char, 40> id{};
    std::ifstream("/proc/sys/kernel/random/boot_id").read(id.data(), id.size() - 1);
    return id;
}

// Segments whose root info this process has given out and in which its own rank has not yet joined.
struct Pending {
    std::mutex mutex;
    std::vector<std::shared_ptr<Segment>> segments;
    void keep(std::shared_ptr<Segment> segment) {
        const std::lock_guard lock(mutex);
        segments.push_back(std::move(segment));
    }
    void drop(const std::shared_ptr<Segment> &segment) {
        const std::lock_guard lock(mutex);
        std::erase(segments, segment);
    }
};

Pending &pending() {
    static auto *all = new Pending;
    return *all;
}

void make_root_info(HcclRootInfo *rootInfo) {
    HcclRootInfo &out = acl::required(rootInfo, "rootInfo");
    const auto segment = Segment::create();
    const RootInfo info{RootInfo::kMagic, segment->address(), boot_id()};
    out = {};
    std::memcpy(out.internal, &info, sizeof info);
    pending().keep(segment);
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

Options options(const HcclCommConfig *config, const Segment::Address &address) {
    Options made{.name = fmt::format("hccl_{:016x}", address.id[0]), .limit = exec_timeout()};
    if (config == nullptr) return made;
    if (config->hcclCommName[0] != '\0')
        made.name = std::string(config->hcclCommName, strnlen(config->hcclCommName, COMM_NAME_MAX_LENGTH));
    if (config->hcclExecTimeOut > 0) made.limit = std::chrono::seconds(config->hcclExecTimeOut);
    return made;
}

HcclComm join(const std::shared_ptr<Segment> &segment, uint32_t ranks, uint32_t rank, const HcclCommConfig *config) {
    const int device = Machine::instance().current().index();
    segment->lay_out(static_cast<int>(ranks));
    auto transport = std::make_unique<SharedMemory>(segment, static_cast<int>(rank));
    transport->connect(Clock::now() + connect_timeout());
    return add_communicator(
        std::make_shared<Communicator>(std::move(transport), device, options(config, segment->address())));
}

void join_root(uint32_t ranks, const HcclRootInfo *rootInfo, uint32_t rank, const HcclCommConfig *config,
               HcclComm *comm) {
    HcclComm &out = acl::required(comm, "comm");
    check_rank(ranks, rank);
    const auto segment = Segment::open(read_root_info(rootInfo).segment);
    out = join(segment, ranks, rank, config);
    pending().drop(segment);
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

// What is queued runs on, or fails within seconds; the call does not wait for it.
HcclResult HcclCommDestroy(HcclComm comm) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(comm) { remove_communicator(comm)->release(); });
}

HcclResult HcclGetCommName(HcclComm comm, char *commName) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(comm) {
        acl::present(commName, "commName");
        const std::string name = communicator(comm)->options().name;
        std::memcpy(commName, name.c_str(),
                    name.size() + 1);  // shorter than COMM_NAME_MAX_LENGTH, as options() made it
    });
}

HcclResult HcclGetRankSize(HcclComm comm, uint32_t *rankSize) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(comm, rankSize) {
        acl::required(rankSize, "rankSize") = static_cast<uint32_t>(communicator(comm)->size());
    });
}

HcclResult HcclGetRankId(HcclComm comm, uint32_t *rank) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(comm, rank) {
        acl::required(rank, "rank") = static_cast<uint32_t>(communicator(comm)->rank());
    });
}

// torch_npu's watchdog asks this, and then aclGetRecentErrMsg in the same thread for the reason.
HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult *asyncError) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(comm, asyncError) {
        const auto found = communicator(comm);
        HcclResult &out = acl::required(asyncError, "asyncError");
        out = found->failure();
        if (out != HCCL_SUCCESS) acl::set_error(out, found->failure_text());
    });
}

const char *HcclGetErrorString(HcclResult code) {
    constexpr const char *kWords[] = {"success",
                                      "parameter error",
                                      "empty pointer",
                                      "memory error",
                                      "internal error",
                                      "not supported",
                                      "resource not found",
                                      "resource unavailable",
                                      "system call failed",
                                      "timeout",
                                      "cannot open file",
                                      "TCP connect failed",
                                      "RoCE connect failed",
                                      "TCP transfer failed",
                                      "RoCE transfer failed",
                                      "runtime API failed",
                                      "driver API failed",
                                      "profiling API failed",
                                      "CCE API failed",
                                      "network API failed",
                                      "try again",
                                      "remote rank failed",
                                      "communicator is suspending",
                                      "retry failed",
                                      "out of memory"};
    return code >= 0 && code < static_cast<int>(std::size(kWords)) ? kWords[code] : "unknown error";
}

// A feature of HcclCommConfig is there when its number is below the answer. Names and time-outs are followed; buffer
// sizes, algorithms and retries have nothing here that they could change.
uint32_t HcclGetCommConfigCapability() { return HCCL_COMM_CONFIG_RESERVED; }
