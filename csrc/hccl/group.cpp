#include "hccl/group.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "device/bytes.h"

using namespace vnpu;
using namespace vnpu::hccl;

namespace {

struct Collective {
    uint64_t bytes;  // 0 where the ranks may have different counts
    std::function<void()> begin;
};

// What one communicator has to do at the end.
struct Grouped {
    explicit Grouped(std::shared_ptr<Communicator> comm) : comm(std::move(comm)) {}
    std::shared_ptr<Communicator> comm;
    std::vector<HcclSendRecvItem> messages;
    aclrtStream message_stream = nullptr;
    std::vector<Collective> collectives;
    std::set<aclrtStream> streams;  // of the collectives
};

constinit thread_local int depth = 0;
// In the order of the communicators' first calls; null outside of groups, so that a thread ends without a destructor.
constinit thread_local std::vector<Grouped> *pending = nullptr;

Grouped &work_of(const std::shared_ptr<Communicator> &comm) {
    if (pending == nullptr) pending = new std::vector<Grouped>;
    for (Grouped &each : *pending)
        if (each.comm == comm) return each;
    return pending->emplace_back(comm);
}

void succeeded(HcclResult result) {
    if (result != HCCL_SUCCESS) throw acl::Error(result, "What HcclGroupEnd began has failed.");
}

// First the messages, then the collectives, the largest first; those whose counts differ between ranks keep their order
// behind them (hcomm: hccl_group.cc). There a failure of one goes unnoticed; here it is the call's.
void begin(Grouped &work) {
    if (!work.messages.empty())
        succeeded(HcclBatchSendRecv(work.messages.data(), static_cast<uint32_t>(work.messages.size()), work.comm.get(),
                                    work.message_stream));
    std::ranges::stable_sort(work.collectives, std::greater<>(), &Collective::bytes);
    for (const Collective &each : work.collectives) each.begin();
}

}  // namespace

bool hccl::in_group() noexcept { return depth > 0; }

void hccl::keep(const std::shared_ptr<Communicator> &comm, const HcclSendRecvItem &item, aclrtStream stream) {
    Grouped &work = work_of(comm);
    if (work.messages.empty()) work.message_stream = stream;
    work.messages.push_back(item);
}

void hccl::keep(const std::shared_ptr<Communicator> &comm, const Call &call, aclrtStream stream,
                std::function<void()> begin) {
    Grouped &work = work_of(comm);
    const size_t element = call.type < 0 ? 0 : size_of(static_cast<HcclDataType>(call.type));
    work.collectives.push_back({bytes::product(call.count, element, "count"), std::move(begin)});
    work.streams.insert(stream);
}

// These are libhcomm's, and no header of torch_npu's wheel has them: it looks them up from CANN 9.0.0 on.
extern "C" {

[[gnu::visibility("default")]] HcclResult HcclGroupStart() {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API() { ++depth; });
}

// Waits for the collectives, not for the messages.
[[gnu::visibility("default")]] HcclResult HcclGroupEnd() {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API() {
        if (depth == 0) throw acl::Error(HCCL_E_NOT_SUPPORT, "HcclGroupEnd was called without HcclGroupStart.");
        if (--depth > 0) return;
        const std::unique_ptr<std::vector<Grouped>> all(std::exchange(pending, nullptr));
        if (all == nullptr) return;
        for (Grouped &work : *all) begin(work);
        for (const Grouped &work : *all)
            for (const aclrtStream stream : work.streams)
                if (aclrtSynchronizeStream(stream) != ACL_SUCCESS) succeeded(HCCL_E_RUNTIME);
    });
}

[[gnu::visibility("default")]] HcclResult HcclGroupStatusGet(bool *isGroupEnabled) {
    return static_cast<HcclResult>(
        VNPU_COLLECTIVE_API(isGroupEnabled) { acl::required(isGroupEnabled, "isGroupEnabled") = in_group(); });
}
}
