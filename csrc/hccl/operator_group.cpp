#include "hccl/operator_group.h"

#include "device/live_memory.h"
#include "device/machine.h"
#include "hccl/communicator.h"
#include "hccl/rounds.h"

namespace vnpu::hccl {
namespace {

// Ranks that are threads of one process have one name on several devices.
std::shared_ptr<Communicator> named(const std::string &name) {
    const int running = running_device();
    const int device = running == kAnyDevice ? Machine::instance().current().index() : running;
    for (const auto &each : communicators.all())
        if (each->device() == device && each->options().name == name) return each;
    fail(FaultKind::TilingRefused, "parameter group is \"{}\", which is no communicator on device {}", name, device);
}

}  // namespace

OperatorGroup::OperatorGroup(const std::string &name) : comm_(named(name)) {
    if (!comm_->performs())
        fail(FaultKind::Unsupported,
             "Communicator {} is one between machines: the virtual NPU has operators with communication on one machine "
             "only.",
             name);
}

int OperatorGroup::rank() const noexcept { return comm_->rank(); }
int OperatorGroup::size() const noexcept { return comm_->size(); }
uint64_t OperatorGroup::buffer_size() const noexcept { return comm_->options().buffer; }
void OperatorGroup::take_buffers() const { comm_->take_buffers(); }

void OperatorGroup::perform(Plan &plan, const char *operation, const char *name, HcclCMDType kind, uint64_t count,
                            int32_t type) const {
    plan.call = {.name = name, .kind = kind, .count = count, .type = type, .within = operation};
    comm_->perform(plan);
}

void OperatorGroup::exchange(const char *operation, std::span<const Part> out, std::span<const Part> in) const {
    Plan plan;
    Round &round = plan.rounds.emplace_back();
    for (int peer = 0; peer < size(); ++peer) {
        const Part &to = out[static_cast<size_t>(peer)], &from = in[static_cast<size_t>(peer)];
        if (peer == rank()) {
            plan.copies.push_back({from.at, to.at, std::min(to.bytes, from.bytes)});
        } else {
            round.sends.push_back({peer, to.at, to.bytes});
            round.receives.push_back({peer, from.at, from.bytes});
        }
    }
    perform(plan, operation, "HcclAlltoAllV", HCCL_CMD_ALLTOALLV, 0, -1);
}

void OperatorGroup::all_reduce(const char *operation, void *at, uint64_t count, HcclDataType type) const {
    Plan plan;
    const auto place = static_cast<std::byte *>(at);
    plan.rounds = hccl::all_reduce(rank(), size(), place, place, count, reduction(type, HCCL_REDUCE_SUM));
    perform(plan, operation, "HcclAllReduce", HCCL_CMD_ALLREDUCE, count, type);
}

void OperatorGroup::reduce_scatter(const char *operation, void *from, void *to, uint64_t count,
                                   HcclDataType type) const {
    Plan plan;
    const Reduction &how = reduction(type, HCCL_REDUCE_SUM);
    const auto part = [&](int peer) {
        return static_cast<std::byte *>(from) + static_cast<uint64_t>(peer) * count * how.element;
    };
    Round &round = plan.rounds.emplace_back();
    for (int peer = 0; peer < size(); ++peer)
        if (peer != rank()) round.sends.push_back({peer, part(peer), count * how.element});
    round.fold = Fold{&how, part(rank()), static_cast<std::byte *>(to), count * how.element};
    perform(plan, operation, "HcclReduceScatter", HCCL_CMD_REDUCE_SCATTER, count, type);
}

void OperatorGroup::barrier(const char *operation) const {
    Plan plan;
    perform(plan, operation, "HcclBarrier", HCCL_CMD_BARRIER, 0, -1);
}

}  // namespace vnpu::hccl
