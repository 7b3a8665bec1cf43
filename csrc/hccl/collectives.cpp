// The collectives: what each sends to whom. All go directly from rank to rank; a reduction is a fold in the order of
// the ranks, so results are the same on every rank and in every run, whatever HcclSetConfig says of determinism.
#include <cstring>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "device/bytes.h"
#include "device/live_memory.h"
#include "device/machine.h"
#include "hccl/communicator.h"
#include "hccl/group.h"
#include "hccl/rounds.h"

using namespace vnpu;
using namespace vnpu::hccl;

namespace {

class Draft {
  public:
    Draft(HcclComm comm, const char *name, HcclCMDType kind) : comm_(communicators.find(comm)) {
        plan_.call.name = name;
        plan_.call.kind = kind;
        plan_.collective = kind != HCCL_CMD_SEND && kind != HCCL_CMD_RECEIVE && kind != HCCL_CMD_BATCH_SEND_RECV;
    }

    int rank() const { return comm_->rank(); }
    int size() const { return comm_->size(); }
    // What the ranks have to agree on; -1: the collective has no such parameter.
    void says(uint64_t count, int32_t type, int32_t op = -1, int32_t root = -1) {
        plan_.call.count = count;
        plan_.call.type = type;
        plan_.call.op = op;
        plan_.call.root = root;
    }
    // The kernels' view of `count` elements at a device address, from `offset` elements on.
    std::byte *elements(const void *address, uint64_t offset, uint64_t count, HcclDataType type, const char *name) {
        if (count == 0) return nullptr;
        acl::not_null(address, name);
        const uint64_t size = bytes::product(count, size_of(type), name);
        const uintptr_t start =
            bytes::sum(reinterpret_cast<uintptr_t>(address), bytes::product(offset, size_of(type), name), name);
        if (start % size_of(type) != 0)
            fail(FaultKind::InvalidArgument, "{} ({:#x}) is not where a {} can lie: its {} bytes must be aligned.",
                 name, start, name_of(type), size_of(type));
        std::byte *view = live_range(reinterpret_cast<const void *>(start), size, name, comm_->device());
        plan_.ranges.push_back({view, size, name});
        return view;
    }
    Round &round() { return plan_.rounds.emplace_back(); }
    void rounds(std::vector<Round> all) { plan_.rounds = std::move(all); }
    void copy(std::byte *to, const std::byte *from, size_t bytes) {
        if (to != from) plan_.copies.push_back({to, from, bytes});
    }
    void message(bool send, int peer, std::byte *at, size_t bytes, uint64_t count, HcclDataType type) {
        plan_.messages.push_back(
            {send,
             {peer, at, bytes},
             {.name = send ? "HcclSend" : "HcclRecv", .kind = HCCL_CMD_SEND, .count = count, .type = type}});
    }
    // Sends what lies in the output from a copy that the output does not overwrite.
    void keep_apart(std::vector<Piece> &sends, const std::byte *out, size_t bytes) {
        for (Piece &piece : sends) {
            if (piece.at >= out + bytes || out >= piece.at + piece.bytes) continue;
            std::byte *copy = plan_.kept.emplace_back(std::make_unique_for_overwrite<std::byte[]>(piece.bytes)).get();
            plan_.copies.push_back({copy, piece.at, piece.bytes});
            piece.at = copy;
        }
    }
    int peer(uint32_t rank, const char *name) const {
        if (rank >= static_cast<uint32_t>(size()))
            fail(FaultKind::InvalidArgument, "{} is {}; the communicator has ranks 0 to {}.", name, rank, size() - 1);
        return static_cast<int>(rank);
    }
    void submit(aclrtStream stream) {
        Communicator::submit(comm_, *Machine::instance().stream(stream), std::move(plan_));
    }
    // The same; between HcclGroupStart and HcclGroupEnd of this thread, at the end of it.
    void submit_grouped(aclrtStream stream) {
        if (!in_group()) return submit(stream);
        auto queue = Machine::instance().stream(stream);
        const auto plan = std::make_shared<Plan>(std::move(plan_));
        keep(comm_, plan->call, stream,
             [comm = comm_, queue = std::move(queue), plan] { Communicator::submit(comm, *queue, std::move(*plan)); });
    }
    const std::shared_ptr<Communicator> &communicator() const { return comm_; }

  private:
    const std::shared_ptr<Communicator> comm_;
    Plan plan_;
};

// Counts and displacements, in elements, of what goes to or comes from each rank.
struct Parts {
    const uint64_t *counts, *offsets;
    Parts(const void *counts, const void *offsets, const char *counts_name, const char *offsets_name)
        : counts(static_cast<const uint64_t *>(counts)), offsets(static_cast<const uint64_t *>(offsets)) {
        acl::not_null(counts, counts_name);
        acl::not_null(offsets, offsets_name);
    }
};

// Parts that lie one behind another.
struct OwnParts {
    std::vector<uint64_t> counts, offsets;
    void append(uint64_t count) {
        offsets.push_back(counts.empty() ? 0 : bytes::sum(offsets.back(), counts.back(), "count"));
        counts.push_back(count);
    }
    operator Parts() const { return {counts.data(), offsets.data(), "counts", "offsets"}; }
};

struct EvenParts : OwnParts {
    EvenParts(int ranks, uint64_t count) {
        for (int i = 0; i < ranks; ++i) append(count);
    }
};

struct Buffer {
    const void *address;
    HcclDataType type;
};

void send_parts(Draft &draft, Round &round, const void *from, const Parts &parts, HcclDataType type) {
    for (int peer = 0; peer < draft.size(); ++peer)
        if (peer != draft.rank())
            round.sends.push_back({peer, draft.elements(from, parts.offsets[peer], parts.counts[peer], type, "sendBuf"),
                                   parts.counts[peer] * size_of(type)});
}

void receive_parts(Draft &draft, Round &round, const void *to, const Parts &parts, HcclDataType type) {
    for (int peer = 0; peer < draft.size(); ++peer)
        if (peer != draft.rank())
            round.receives.push_back({peer,
                                      draft.elements(to, parts.offsets[peer], parts.counts[peer], type, "recvBuf"),
                                      parts.counts[peer] * size_of(type)});
}

void send_to_all(Draft &draft, Round &round, std::byte *from, size_t bytes) {
    for (int peer = 0; peer < draft.size(); ++peer)
        if (peer != draft.rank()) round.sends.push_back({peer, from, bytes});
}

void all_gather(Draft &draft, const void *from, uint64_t count, const void *to, const Parts &parts, HcclDataType type) {
    const int rank = draft.rank();
    if (parts.counts[rank] != count)
        fail(FaultKind::InvalidArgument, "sendCount is {}, but recvCounts[{}], this rank's own, is {}.", count, rank,
             parts.counts[rank]);
    std::byte *mine = draft.elements(from, 0, count, type, "sendBuf");
    draft.copy(draft.elements(to, parts.offsets[rank], count, type, "recvBuf"), mine, count * size_of(type));
    Round &round = draft.round();
    send_to_all(draft, round, mine, count * size_of(type));
    receive_parts(draft, round, to, parts, type);
}

void reduce_scatter(Draft &draft, const void *from, const Parts &parts, const void *to, uint64_t count,
                    HcclDataType type, HcclReduceOp op) {
    const int rank = draft.rank();
    if (parts.counts[rank] != count)
        fail(FaultKind::InvalidArgument, "recvCount is {}, but sendCounts[{}], this rank's own, is {}.", count, rank,
             parts.counts[rank]);
    const Reduction &how = reduction(type, op);
    Round &round = draft.round();
    send_parts(draft, round, from, parts, type);
    round.fold = Fold{&how, draft.elements(from, parts.offsets[rank], count, type, "sendBuf"),
                      draft.elements(to, 0, count, type, "recvBuf"), count * how.element};
    draft.keep_apart(round.sends, round.fold->out, round.fold->bytes);
}

void all_to_all(Draft &draft, const Buffer &from, const Parts &out, const Buffer &to, const Parts &in) {
    const auto rank = static_cast<size_t>(draft.rank());
    const size_t bytes = bytes::product(out.counts[rank], size_of(from.type), "sendCounts");
    if (bytes != bytes::product(in.counts[rank], size_of(to.type), "recvCounts"))
        fail(FaultKind::InvalidArgument, "Rank {} sends {} elements of {} to itself and expects {} of {}.", rank,
             out.counts[rank], name_of(from.type), in.counts[rank], name_of(to.type));
    Round &round = draft.round();
    send_parts(draft, round, from.address, out, from.type);
    receive_parts(draft, round, to.address, in, to.type);
    for (const Piece &piece : round.receives) draft.keep_apart(round.sends, piece.at, piece.bytes);
    std::byte *mine = draft.elements(to.address, in.offsets[rank], in.counts[rank], to.type, "recvBuf");
    draft.keep_apart(round.sends, mine, bytes);
    draft.copy(mine, draft.elements(from.address, out.offsets[rank], out.counts[rank], from.type, "sendBuf"), bytes);
}

// Point to point: messages, which only their two ranks know of.
void deliver(Draft draft, std::span<const HcclSendRecvItem> items, aclrtStream stream) {
    std::vector<Piece> out, in;  // from this rank to itself: the n-th send goes to the n-th receive
    for (const HcclSendRecvItem &item : items) {
        if (item.sendRecvType != HCCL_SEND && item.sendRecvType != HCCL_RECV)
            fail(FaultKind::InvalidArgument, "sendRecvType is {}; it is 0 (send) or 1 (receive).",
                 static_cast<int>(item.sendRecvType));
        const bool send = item.sendRecvType == HCCL_SEND;
        const int peer = draft.peer(item.remoteRank, "remoteRank");
        std::byte *at = draft.elements(item.buf, 0, item.count, item.dataType, "buf");
        const size_t bytes = item.count * size_of(item.dataType);
        if (peer == draft.rank())
            (send ? out : in).push_back({peer, at, bytes});
        else
            draft.message(send, peer, at, bytes, item.count, item.dataType);
    }
    bool match = out.size() == in.size();
    for (size_t i = 0; match && i < out.size(); ++i) {
        match = out[i].bytes == in[i].bytes;
        draft.copy(in[i].at, out[i].at, out[i].bytes);
    }
    if (!match)
        fail(FaultKind::InvalidArgument,
             "What rank {} sends to itself and what it receives from itself do not match: {} and {} messages, or of "
             "other sizes.",
             draft.rank(), out.size(), in.size());
    draft.submit(stream);
}

// The same for one; between HcclGroupStart and HcclGroupEnd it becomes part of a batch.
void deliver_grouped(Draft draft, const HcclSendRecvItem &item, aclrtStream stream) {
    if (!in_group()) return deliver(std::move(draft), {&item, 1}, stream);
    draft.peer(item.remoteRank, "remoteRank");
    draft.elements(item.buf, 0, item.count, item.dataType, "buf");
    keep(draft.communicator(), item, stream);
}

}  // namespace

HcclResult HcclAllReduce(void *sendBuf, void *recvBuf, uint64_t count, HcclDataType dataType, HcclReduceOp op,
                         HcclComm comm, aclrtStream stream) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(sendBuf, recvBuf, count, dataType, op, comm, stream) {
        Draft draft(comm, "HcclAllReduce", HCCL_CMD_ALLREDUCE);
        draft.says(count, dataType, op);
        const Reduction &how = reduction(dataType, op);
        std::byte *from = draft.elements(sendBuf, 0, count, dataType, "sendBuf");
        std::byte *to = draft.elements(recvBuf, 0, count, dataType, "recvBuf");
        draft.rounds(all_reduce(draft.rank(), draft.size(), from, to, count, how));
        draft.submit_grouped(stream);
    });
}

HcclResult HcclReduce(void *sendBuf, void *recvBuf, uint64_t count, HcclDataType dataType, HcclReduceOp op,
                      uint32_t root, HcclComm comm, aclrtStream stream) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(sendBuf, recvBuf, count, dataType, op, root, comm, stream) {
        Draft draft(comm, "HcclReduce", HCCL_CMD_REDUCE);
        const int to = draft.peer(root, "root");
        draft.says(count, dataType, op, to);
        const Reduction &how = reduction(dataType, op);
        std::byte *from = draft.elements(sendBuf, 0, count, dataType, "sendBuf");
        Round &round = draft.round();
        if (to == draft.rank())
            round.fold = Fold{&how, from, draft.elements(recvBuf, 0, count, dataType, "recvBuf"), count * how.element};
        else
            round.sends.push_back({to, from, count * how.element});
        draft.submit_grouped(stream);
    });
}

HcclResult HcclBroadcast(void *buf, uint64_t count, HcclDataType dataType, uint32_t root, HcclComm comm,
                         aclrtStream stream) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(buf, count, dataType, root, comm, stream) {
        Draft draft(comm, "HcclBroadcast", HCCL_CMD_BROADCAST);
        const int from = draft.peer(root, "root");
        draft.says(count, dataType, -1, from);
        std::byte *at = draft.elements(buf, 0, count, dataType, "buf");
        Round &round = draft.round();
        if (from == draft.rank())
            send_to_all(draft, round, at, count * size_of(dataType));
        else
            round.receives.push_back({from, at, count * size_of(dataType)});
        draft.submit_grouped(stream);
    });
}

HcclResult HcclScatter(void *sendBuf, void *recvBuf, uint64_t recvCount, HcclDataType dataType, uint32_t root,
                       HcclComm comm, aclrtStream stream) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(sendBuf, recvBuf, recvCount, dataType, root, comm, stream) {
        Draft draft(comm, "HcclScatter", HCCL_CMD_SCATTER);
        const int from = draft.peer(root, "root");
        draft.says(recvCount, dataType, -1, from);
        const EvenParts parts(draft.size(), recvCount);
        std::byte *to = draft.elements(recvBuf, 0, recvCount, dataType, "recvBuf");
        Round &round = draft.round();
        if (from == draft.rank()) {
            send_parts(draft, round, sendBuf, parts, dataType);
            draft.copy(to, draft.elements(sendBuf, parts.offsets[root], recvCount, dataType, "sendBuf"),
                       recvCount * size_of(dataType));
        } else {
            round.receives.push_back({from, to, recvCount * size_of(dataType)});
        }
        draft.submit_grouped(stream);
    });
}

HcclResult HcclAllGather(void *sendBuf, void *recvBuf, uint64_t sendCount, HcclDataType dataType, HcclComm comm,
                         aclrtStream stream) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(sendBuf, recvBuf, sendCount, dataType, comm, stream) {
        Draft draft(comm, "HcclAllGather", HCCL_CMD_ALLGATHER);
        draft.says(sendCount, dataType);
        all_gather(draft, sendBuf, sendCount, recvBuf, EvenParts(draft.size(), sendCount), dataType);
        draft.submit_grouped(stream);
    });
}

HcclResult HcclAllGatherV(void *sendBuf, uint64_t sendCount, void *recvBuf, const void *recvCounts,
                          const void *recvDispls, HcclDataType dataType, HcclComm comm, aclrtStream stream) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(sendBuf, sendCount, recvBuf, dataType, comm, stream) {
        Draft draft(comm, "HcclAllGatherV", HCCL_CMD_ALLGATHER_V);
        draft.says(0, dataType);
        all_gather(draft, sendBuf, sendCount, recvBuf, Parts(recvCounts, recvDispls, "recvCounts", "recvDispls"),
                   dataType);
        draft.submit_grouped(stream);
    });
}

HcclResult HcclReduceScatter(void *sendBuf, void *recvBuf, uint64_t recvCount, HcclDataType dataType, HcclReduceOp op,
                             HcclComm comm, aclrtStream stream) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(sendBuf, recvBuf, recvCount, dataType, op, comm, stream) {
        Draft draft(comm, "HcclReduceScatter", HCCL_CMD_REDUCE_SCATTER);
        draft.says(recvCount, dataType, op);
        reduce_scatter(draft, sendBuf, EvenParts(draft.size(), recvCount), recvBuf, recvCount, dataType, op);
        draft.submit_grouped(stream);
    });
}

HcclResult HcclReduceScatterV(void *sendBuf, const void *sendCounts, const void *sendDispls, void *recvBuf,
                              uint64_t recvCount, HcclDataType dataType, HcclReduceOp op, HcclComm comm,
                              aclrtStream stream) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(sendBuf, recvBuf, recvCount, dataType, op, comm, stream) {
        Draft draft(comm, "HcclReduceScatterV", HCCL_CMD_REDUCE_SCATTER_V);
        draft.says(0, dataType, op);
        reduce_scatter(draft, sendBuf, Parts(sendCounts, sendDispls, "sendCounts", "sendDispls"), recvBuf, recvCount,
                       dataType, op);
        draft.submit_grouped(stream);
    });
}

HcclResult HcclAlltoAll(const void *sendBuf, uint64_t sendCount, HcclDataType sendType, const void *recvBuf,
                        uint64_t recvCount, HcclDataType recvType, HcclComm comm, aclrtStream stream) {
    return static_cast<HcclResult>(
        VNPU_COLLECTIVE_API(sendBuf, sendCount, sendType, recvBuf, recvCount, recvType, comm, stream) {
            Draft draft(comm, "HcclAlltoAll", HCCL_CMD_ALLTOALL);
            draft.says(sendCount, sendType);
            all_to_all(draft, {sendBuf, sendType}, EvenParts(draft.size(), sendCount), {recvBuf, recvType},
                       EvenParts(draft.size(), recvCount));
            draft.submit_grouped(stream);
        });
}

HcclResult HcclAlltoAllV(const void *sendBuf, const void *sendCounts, const void *sdispls, HcclDataType sendType,
                         const void *recvBuf, const void *recvCounts, const void *rdispls, HcclDataType recvType,
                         HcclComm comm, aclrtStream stream) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(sendBuf, sendType, recvBuf, recvType, comm, stream) {
        Draft draft(comm, "HcclAlltoAllV", HCCL_CMD_ALLTOALLV);
        draft.says(0, sendType);
        all_to_all(draft, {sendBuf, sendType}, Parts(sendCounts, sdispls, "sendCounts", "sdispls"), {recvBuf, recvType},
                   Parts(recvCounts, rdispls, "recvCounts", "rdispls"));
        draft.submit_grouped(stream);
    });
}

// Entry i * ranks + j of the matrix is what rank i sends to rank j; parts lie one behind another.
HcclResult HcclAlltoAllVC(const void *sendBuf, const void *sendCountMatrix, HcclDataType sendType, const void *recvBuf,
                          HcclDataType recvType, HcclComm comm, aclrtStream stream) {
    return static_cast<HcclResult>(
        VNPU_COLLECTIVE_API(sendBuf, sendCountMatrix, sendType, recvBuf, recvType, comm, stream) {
            Draft draft(comm, "HcclAlltoAllVC", HCCL_CMD_ALLTOALLVC);
            draft.says(0, sendType);
            acl::not_null(sendCountMatrix, "sendCountMatrix");
            const auto *matrix = static_cast<const uint64_t *>(sendCountMatrix);
            const auto ranks = static_cast<size_t>(draft.size()), mine = static_cast<size_t>(draft.rank());
            OwnParts out, in;
            for (size_t peer = 0; peer < ranks; ++peer) {
                out.append(matrix[mine * ranks + peer]);
                in.append(matrix[peer * ranks + mine]);
            }
            all_to_all(draft, {sendBuf, sendType}, out, {recvBuf, recvType}, in);
            draft.submit_grouped(stream);
        });
}

HcclResult HcclBarrier(HcclComm comm, aclrtStream stream) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(comm, stream) {
        Draft(comm, "HcclBarrier", HCCL_CMD_BARRIER).submit(stream);  // all ranks agree on the call: that is all
    });
}

HcclResult HcclSend(void *sendBuf, uint64_t count, HcclDataType dataType, uint32_t destRank, HcclComm comm,
                    aclrtStream stream) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(sendBuf, count, dataType, destRank, comm, stream) {
        HcclSendRecvItem item{HCCL_SEND, sendBuf, count, dataType, destRank};
        deliver_grouped(Draft(comm, "HcclSend", HCCL_CMD_SEND), item, stream);
    });
}

HcclResult HcclRecv(void *recvBuf, uint64_t count, HcclDataType dataType, uint32_t srcRank, HcclComm comm,
                    aclrtStream stream) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(recvBuf, count, dataType, srcRank, comm, stream) {
        HcclSendRecvItem item{HCCL_RECV, recvBuf, count, dataType, srcRank};
        deliver_grouped(Draft(comm, "HcclRecv", HCCL_CMD_RECEIVE), item, stream);
    });
}

HcclResult HcclBatchSendRecv(HcclSendRecvItem *sendRecvInfo, uint32_t itemNum, HcclComm comm, aclrtStream stream) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(sendRecvInfo, itemNum, comm, stream) {
        acl::not_null(sendRecvInfo, "sendRecvInfo");
        if (itemNum == 0) fail(FaultKind::InvalidArgument, "itemNum is 0: there is nothing to send or receive.");
        deliver(Draft(comm, "HcclBatchSendRecv", HCCL_CMD_BATCH_SEND_RECV), {sendRecvInfo, itemNum}, stream);
    });
}
