#include "calls.h"

// No header of torch_npu's wheel has these (csrc/hccl/group.cpp).
extern "C" {
HcclResult HcclGroupStart();
HcclResult HcclGroupEnd();
HcclResult HcclGroupStatusGet(bool *isGroupEnabled);
}

namespace random_calls {
namespace {

constexpr uint32_t kRanks = 2;  // of the largest communicator that is made here

HcclDataType type(Draw &draw) { return draw.choice<HcclDataType>(16); }
HcclReduceOp reduction(Draw &draw) { return draw.choice<HcclReduceOp>(4); }
uint32_t rank(Draw &draw) { return draw.once_in(8) ? static_cast<uint32_t>(draw.number()) : 0; }
size_t elements(Draw &draw) { return draw.some_size(); }

// Counts and displacements, one of each for every rank; HcclAlltoAllVC takes the square of it.
struct Parts {
    std::array<uint64_t, kRanks * kRanks> counts, offsets;
    explicit Parts(Draw &draw) {
        for (uint64_t &count : counts) count = elements(draw);
        for (uint64_t &offset : offsets) offset = draw.once_in(3) ? draw.size() : 0;
    }
};

HcclCommConfig config(Draw &draw) {
    HcclCommConfig value{};
    HcclCommConfigInit(&value);
    value.hcclExecTimeOut = draw.below(2);
    return value;
}

// A process keeps a root info until a rank of its own has joined, so each one is used in the end; first with mistakes.
int join_alone(Draw &draw, HcclResult (*get)(HcclRootInfo *)) {
    HcclRootInfo info;
    if (const HcclResult failure = get(draw.once_in(16) ? nullptr : &info); failure != HCCL_SUCCESS) return failure;
    HcclRootInfo broken = info;
    broken.internal[draw.below(64)] ^= 1;
    const HcclCommConfig wanted = config(draw);
    if (draw.once_in(8)) HcclCommInitRootInfo(1, &broken, 0, draw.communicator_made());
    if (draw.once_in(8)) HcclCommInitRootInfoConfig(draw.below(3), &info, rank(draw), &wanted, nullptr);
    aclrtSetDevice(0);
    HcclComm made = nullptr;
    const HcclResult result = draw.once_in(2) ? HcclCommInitRootInfoConfig(1, &info, 0, &wanted, &made)
                                              : HcclCommInitRootInfoScalable(1, 1, &info, 0, 0, &wanted, &made);
    draw.pools().communicators.keep({made, 0}, draw.random());
    return result;
}

int join_all(Draw &draw) {
    std::array<int32_t, kRanks> devices = {draw.device(), draw.device()};
    std::array<HcclComm, kRanks> made{};
    const auto count = static_cast<uint32_t>(draw.below(kRanks + 1));
    const HcclResult result = HcclCommInitAll(count, draw.given(devices.data()) == nullptr ? nullptr : devices.data(),
                                              draw.once_in(16) ? nullptr : made.data());
    for (HcclComm comm : made)
        if (comm != nullptr) draw.pools().communicators.keep({comm, 0}, draw.random());
    return result;
}

int join_part(Draw &draw) {
    std::array<uint32_t, kRanks> members = {rank(draw), rank(draw)};
    HcclCommConfig wanted = config(draw);
    return HcclCreateSubCommConfig(draw.given(draw.communicator()), 1, draw.once_in(8) ? nullptr : members.data(),
                                   draw.below(4), 0, &wanted, draw.communicator_made());
}

int batch(Draw &draw) {
    std::array<HcclSendRecvItem, 2> items{};
    for (HcclSendRecvItem &item : items)
        item = {draw.choice<HcclSendRecvType>(2), draw.device_memory(), elements(draw), type(draw), rank(draw)};
    return HcclBatchSendRecv(draw.once_in(16) ? nullptr : items.data(), static_cast<uint32_t>(draw.below(3)),
                             draw.communicator(), draw.stream());
}

// What is begun in a group is kept until its end, when its memory, stream and communicator may be gone.
int group(Draw &draw) {
    if (const HcclResult failure = HcclGroupStart(); failure != HCCL_SUCCESS) return failure;
    for (uint64_t calls = draw.below(4); calls > 0; --calls) {
        const HcclComm comm = draw.communicator();
        HcclAllReduce(draw.device_memory(), draw.device_memory(), elements(draw), type(draw), reduction(draw), comm,
                      draw.stream());
        HcclSend(draw.device_memory(), elements(draw), type(draw), rank(draw), comm, draw.stream());
        if (draw.once_in(8)) HcclCommDestroy(comm);
    }
    return HcclGroupEnd();
}

}  // namespace

std::vector<Call> collective_calls() {
    return {
        {"HcclGetRootInfo", [](Draw &draw) -> int { return join_alone(draw, HcclGetRootInfo); }},
        {"HcclCommInitRootInfo",
         [](Draw &draw) -> int {
             return HcclCommInitRootInfo(static_cast<uint32_t>(draw.number()), draw.out<HcclRootInfo>(), rank(draw),
                                         draw.communicator_made());
         }},
        {"HcclCommInitRootInfoConfig",
         [](Draw &draw) -> int {
             const HcclCommConfig wanted = config(draw);
             return HcclCommInitRootInfoConfig(1, draw.out<HcclRootInfo>(), rank(draw), &wanted,
                                               draw.communicator_made());
         }},
        {"HcclGetRootInfoScalable", [](Draw &draw) -> int { return join_alone(draw, HcclGetRootInfoScalable); }},
        {"HcclCommInitRootInfoScalable",
         [](Draw &draw) -> int {
             const HcclCommConfig wanted = config(draw);
             return HcclCommInitRootInfoScalable(1, static_cast<uint32_t>(draw.below(2)), draw.out<HcclRootInfo>(), 0,
                                                 static_cast<uint32_t>(draw.below(2)), &wanted,
                                                 draw.communicator_made());
         }},
        {"HcclCommInitAll", join_all},
        {"HcclCreateSubCommConfig", join_part},
        CALL(HcclCommInitClusterInfo, draw.text(), rank(draw), draw.communicator_made()),
        {"HcclCommInitClusterInfoConfig",
         [](Draw &draw) -> int {
             HcclCommConfig wanted = config(draw);
             return HcclCommInitClusterInfoConfig(draw.text(), rank(draw), &wanted, draw.communicator_made());
         }},
        CALL(HcclCommDestroy, draw.communicator()),
        RARELY(HcclCommResume, draw.communicator()),
        CALL(HcclGetCommName, draw.communicator(), draw.out<char>()),
        CALL(HcclGetRankSize, draw.communicator(), draw.out<uint32_t>()),
        CALL(HcclGetRankId, draw.communicator(), draw.out<uint32_t>()),
        CALL(HcclGetCommAsyncError, draw.communicator(), draw.out<HcclResult>()),
        PLAIN(HcclGetErrorString, draw.choice<HcclResult>(30)),
        PLAIN(HcclGetCommConfigCapability),
        CALL(HcclSetConfig, draw.choice<HcclConfig>(2), HcclConfigValue{draw.number()}),
        CALL(HcclGetConfig, draw.choice<HcclConfig>(2), draw.out<HcclConfigValue>()),

        CALL(HcclAllReduce, draw.device_memory(), draw.device_memory(), elements(draw), type(draw), reduction(draw),
             draw.communicator(), draw.stream()),
        CALL(HcclReduce, draw.device_memory(), draw.device_memory(), elements(draw), type(draw), reduction(draw),
             rank(draw), draw.communicator(), draw.stream()),
        CALL(HcclBroadcast, draw.device_memory(), elements(draw), type(draw), rank(draw), draw.communicator(),
             draw.stream()),
        CALL(HcclScatter, draw.device_memory(), draw.device_memory(), elements(draw), type(draw), rank(draw),
             draw.communicator(), draw.stream()),
        CALL(HcclAllGather, draw.device_memory(), draw.device_memory(), elements(draw), type(draw), draw.communicator(),
             draw.stream()),
        {"HcclAllGatherV",
         [](Draw &draw) -> int {
             const Parts parts(draw);
             return HcclAllGatherV(draw.device_memory(), elements(draw), draw.device_memory(), parts.counts.data(),
                                   parts.offsets.data(), type(draw), draw.communicator(), draw.stream());
         }},
        CALL(HcclReduceScatter, draw.device_memory(), draw.device_memory(), elements(draw), type(draw), reduction(draw),
             draw.communicator(), draw.stream()),
        {"HcclReduceScatterV",
         [](Draw &draw) -> int {
             const Parts parts(draw);
             return HcclReduceScatterV(draw.device_memory(), parts.counts.data(), parts.offsets.data(),
                                       draw.device_memory(), elements(draw), type(draw), reduction(draw),
                                       draw.communicator(), draw.stream());
         }},
        CALL(HcclAlltoAll, draw.device_memory(), elements(draw), type(draw), draw.device_memory(), elements(draw),
             type(draw), draw.communicator(), draw.stream()),
        {"HcclAlltoAllV",
         [](Draw &draw) -> int {
             const Parts out(draw), in(draw);
             return HcclAlltoAllV(draw.device_memory(), out.counts.data(), out.offsets.data(), type(draw),
                                  draw.device_memory(), in.counts.data(), in.offsets.data(), type(draw),
                                  draw.communicator(), draw.stream());
         }},
        {"HcclAlltoAllVC",
         [](Draw &draw) -> int {
             const Parts matrix(draw);
             return HcclAlltoAllVC(draw.device_memory(), matrix.counts.data(), type(draw), draw.device_memory(),
                                   type(draw), draw.communicator(), draw.stream());
         }},
        CALL(HcclBarrier, draw.communicator(), draw.stream()),
        CALL(HcclSend, draw.device_memory(), elements(draw), type(draw), rank(draw), draw.communicator(),
             draw.stream()),
        CALL(HcclRecv, draw.device_memory(), elements(draw), type(draw), rank(draw), draw.communicator(),
             draw.stream()),
        {"HcclBatchSendRecv", batch},

        {"HcclGroupStart", group},
        CALL(HcclGroupEnd),  // outside of a group
        CALL(HcclGroupStatusGet, draw.out<bool>()),
    };
}

}  // namespace random_calls
