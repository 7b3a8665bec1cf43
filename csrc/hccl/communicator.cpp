#include "hccl/communicator.h"

#include <cstring>
#include <functional>
#include <list>

#include "device/dry.h"
#include "device/live_memory.h"
#include "device/machine.h"
#include "device/perform.h"
#include "device/timeline.h"

namespace vnpu::hccl {
namespace {

// How long what is queued may stand still once the program has destroyed the communicator.
constexpr auto kReleasedLimit = std::chrono::seconds(5);

// What a rank tells a peer before any data: the call, and how much will go between the two.
struct Announcement {
    uint64_t sequence, count, to_reader, from_reader;
    int32_t kind, type, op, root;
    std::array<char, 16> name;  // without "Hccl"
    // On the virtual clock a collective begins when the last of its ranks comes to it. Whether a rank looks at that
    // clock is its own affair: a profiler may watch one rank and not another.
    int64_t virtual_time;
    std::array<std::byte, kGrain - sizeof(int64_t)> reserved;
};
static_assert(sizeof(Announcement) == 2 * kGrain);

// Of messages: two ranks may have exchanged others with others.
constexpr uint64_t kNoSequence = 0;

Announcement announcement(const Call &call, uint64_t sequence, uint64_t to_reader, uint64_t from_reader) {
    Announcement made{sequence, call.count, to_reader, from_reader, call.kind, call.type,
                      call.op,  call.root,  {},        0,           {}};
    std::strncpy(made.name.data(), call.name + std::strlen("Hccl"), made.name.size() - 1);
    return made;
}

std::string describe(const Announcement &said) {
    std::string text = fmt::format("Hccl{}", said.name.data());
    if (said.sequence != kNoSequence) text += fmt::format(" #{}", said.sequence);
    text += " (";
    if (said.count != 0) text += fmt::format("count {}, ", said.count);
    if (said.type >= 0) text += fmt::format("{}, ", name_of(static_cast<HcclDataType>(said.type)));
    if (said.op >= 0) text += fmt::format("{}, ", name_of(static_cast<HcclReduceOp>(said.op)));
    if (said.root >= 0) text += fmt::format("root {}, ", said.root);
    if (text.back() == '(') return text.substr(0, text.size() - 2);
    return text.substr(0, text.size() - 2) + ")";
}

// What differs, in words; empty when nothing does.
std::string difference(const Announcement &mine, const Announcement &theirs) {
    std::string text;
    const auto compare = [&](const char *what, auto here, auto there) {
        if (here != there) text += fmt::format("{}{}", text.empty() ? "" : ", ", what);
    };
    compare("collective", mine.kind, theirs.kind);
    compare("sequence number", mine.sequence, theirs.sequence);
    compare("count", mine.count, theirs.count);
    compare("data type", mine.type, theirs.type);
    compare("reduction", mine.op, theirs.op);
    compare("root", mine.root, theirs.root);
    if (text.empty() && mine.from_reader != theirs.to_reader)
        text =
            fmt::format("bytes between the two: it sends {}, {} are expected here", theirs.to_reader, mine.from_reader);
    if (text.empty() && mine.to_reader != theirs.from_reader)
        text =
            fmt::format("bytes between the two: {} are sent here, it expects {}", mine.to_reader, theirs.from_reader);
    return text;
}

void check(const Announcement &mine, const Announcement &theirs, int peer) {
    const std::string differs = difference(mine, theirs);
    if (!differs.empty())
        fail(FaultKind::RanksDisagree, "rank {} called {}, this rank {}; what differs: {}.", peer, describe(theirs),
             describe(mine), differs);
}

bool floating(HcclDataType type) noexcept {
    return std::string_view(name_of(type)).find("float") != std::string_view::npos;
}

double bytes_sent(const Plan &plan) {
    double sent = 0;
    for (const Round &round : plan.rounds)
        for (const Piece &piece : round.sends) sent += static_cast<double>(piece.bytes);
    for (const Message &message : plan.messages)
        if (message.send) sent += static_cast<double>(message.piece.bytes);
    return sent;
}

// In dry mode ranks still agree on what they do, and exchange no results. Integers that are not many are none: sizes of
// tensors, pickled objects.
void leave_out(Plan &plan) {
    uint64_t bytes = 0;
    for (const Range &range : plan.ranges) bytes += range.bytes;
    const bool integers = plan.call.type >= 0 && !floating(static_cast<HcclDataType>(plan.call.type));
    if (integers && bytes <= dry::kCarried) {
        const AddressSpace &space = Machine::instance().space();
        for (const Range &range : plan.ranges) dry::uploaded(space.unalias(range.view), range.bytes);
        return;
    }
    plan.copies.clear();
    plan.rounds.clear();
    for (Message &message : plan.messages) message.piece.bytes = 0;
    for (const Range &range : plan.ranges) dry::computed(Machine::instance().space().unalias(range.view), range.bytes);
}

class CollectiveTask final : public Task {
  public:
    CollectiveTask(const char *name, Work work, int ranks, const CollectiveSeen &seen, std::function<void()> body)
        : name_(name), work_(work), ranks_(ranks), seen_(seen), body_(std::move(body)) {}
    const char *label() const noexcept override { return name_; }
    void run() override { body_(); }
    void describe(Description &what) override {
        what.work = work_;
        what.ranks = ranks_;
        describe_collective(seen_);
    }

  private:
    const char *const name_;
    const Work work_;
    const int ranks_;
    const CollectiveSeen seen_;
    const std::function<void()> body_;
};

HcclResult result_of(FaultKind kind) {
    switch (kind) {
        case FaultKind::Timeout:
        case FaultKind::RankSilent:
            return HCCL_E_TIMEOUT;
        case FaultKind::InvalidArgument:
        case FaultKind::RanksDisagree:
        case FaultKind::SharedDevice:
            return HCCL_E_PARA;
        default:
            return HCCL_E_REMOTE;
    }
}

}  // namespace

Handles<Communicator> communicators("communicator");

Communicator::Communicator(std::unique_ptr<Transport> transport, int device, Options options)
    : collectives_{.transport = std::move(transport)},
      operators_{.transport = collectives_.transport->operators()},
      device_(device),
      options_(std::move(options)) {}

Communicator::~Communicator() { collectives_.transport->leave({}); }

Limit Communicator::limit() const {
    const Limit usual{options_.limit, "HCCL_EXEC_TIMEOUT"};
    if (!released_.load() || (usual.span && *usual.span < kReleasedLimit)) return usual;
    return {kReleasedLimit, "after HcclCommDestroy"};
}

void Communicator::submit(const std::shared_ptr<Communicator> &self, Stream &stream, Plan plan) {
    if (stream.device() != self->device_)
        fail(FaultKind::InvalidArgument, "The stream is one of device {}, the communicator is on device {}.",
             stream.device(), self->device_);
    self->take_buffers();
    const char *name = plan.call.name;
    Queue &queue = self->collectives_;
    const uint64_t sequence = (plan.collective ? queue.issued : queue.messages).fetch_add(1) + 1;
    const Work work{Unit::Collective, 0, bytes_sent(plan)};
    const bool message = !plan.collective && plan.messages.size() == 1;
    const CollectiveSeen seen{&self->options_.name, sequence,       plan.call.count,
                              self->rank(),         plan.call.type, message ? plan.messages.front().piece.peer : -1};
    if (dry::on()) [[unlikely]]
        leave_out(plan);
    stream.submit(std::make_unique<CollectiveTask>(name, work, self->size(), seen,
                                                   [self, sequence, plan = std::make_shared<Plan>(std::move(plan))] {
                                                       self->run(self->collectives_, *plan, sequence);
                                                   }));
}

void Communicator::perform(const Plan &plan) { run(operators_, plan, operators_.issued.fetch_add(1) + 1); }

// Before the first operation, not when the communicator is made; one rank alone needs none (hcomm:
// hccl_communicator_host.cc).
void Communicator::take_buffers() {
    if (size() == 1) return;
    const std::lock_guard lock(buffers_mutex_);
    if (buffers_ == nullptr)
        buffers_ = Buffers::take(Machine::instance().device(device_), options_.buffer, options_.shared_buffer);
}

void Communicator::run(Queue &queue, const Plan &plan, uint64_t sequence) {
    const std::lock_guard lock(queue.running);
    Transport &transport = *queue.transport;
    if (const std::string before = failure_text(); !before.empty())
        fail(FaultKind::RankGone, "#{} cannot run: {}", sequence, before);
    try {
        for (const Range &range : plan.ranges) still_live(range.view, range.bytes, range.name, device_);
        if (plan.collective) agree(transport, plan, sequence);
        for (const Copy &copy : plan.copies)
            if (copy.bytes != 0) std::memmove(copy.to, copy.from, copy.bytes);
        for (const Round &round : plan.rounds) exchange(transport, round, [this] { return limit(); });
        deliver(transport, plan.messages);
    } catch (const Fault &fault) {
        const std::string where = plan.call.within == nullptr ? "" : fmt::format(", within {},", plan.call.within);
        const std::string text = fmt::format("{} #{} of communicator {}{} failed on rank {} of {}: {}", plan.call.name,
                                             sequence, options_.name, where, rank(), size(), fault.what());
        {
            const std::lock_guard failure_lock(failure_mutex_);
            failure_ = result_of(fault.kind());
            failure_text_ = text;
        }
        transport.leave(text);
        throw Fault(fault.kind(), text);
    }
    transport.finished(++queue.finished);
}

// Every rank tells every other what it is about to do; nobody touches data before all mean the same.
void Communicator::agree(Transport &transport, const Plan &plan, uint64_t sequence) {
    const auto ranks = static_cast<size_t>(size());
    std::vector<Announcement> mine(ranks), theirs(ranks);
    std::vector<uint64_t> out(ranks), in(ranks);
    for (const Round &round : plan.rounds) {
        for (const Piece &piece : round.sends) out[static_cast<size_t>(piece.peer)] += piece.bytes;
        for (const Piece &piece : round.receives) in[static_cast<size_t>(piece.peer)] += piece.bytes;
        if (round.fold)
            for (uint64_t &bytes : in) bytes += round.fold->bytes;
    }
    Round round;
    for (int peer = 0; peer < size(); ++peer) {
        if (peer == rank()) continue;
        const auto i = static_cast<size_t>(peer);
        mine[i] = announcement(plan.call, sequence, out[i], in[i]);
        if (observing()) [[unlikely]]
            mine[i].virtual_time = current_worker()->virtual_time();
        round.sends.push_back({peer, reinterpret_cast<std::byte *>(&mine[i]), sizeof(Announcement)});
        round.receives.push_back({peer, reinterpret_cast<std::byte *>(&theirs[i]), sizeof(Announcement),
                                  [&, i, peer] { check(mine[i], theirs[i], peer); }});
    }
    exchange(transport, round, [this] { return limit(); });
    if (observing()) [[unlikely]]
        for (const Announcement &rank : theirs) current_worker()->reach(rank.virtual_time);
}

// Each message behind its header. A send is over when the receiver has taken it, as on hardware: one that nobody
// receives does not go unnoticed.
void Communicator::deliver(Transport &transport, const std::vector<Message> &messages) {
    std::vector<Announcement> mine(messages.size()), theirs(messages.size());
    Round round;
    round.settle = true;
    for (size_t i = 0; i < messages.size(); ++i) {
        const auto &[send, piece, call] = messages[i];
        mine[i] = announcement(call, kNoSequence, send ? piece.bytes : 0, send ? 0 : piece.bytes);
        Piece header{piece.peer, reinterpret_cast<std::byte *>(send ? &mine[i] : &theirs[i]), sizeof(Announcement)};
        if (!send) header.arrived = [&, i, peer = piece.peer] { check(mine[i], theirs[i], peer); };
        auto &pieces = send ? round.sends : round.receives;
        pieces.push_back(header);
        pieces.push_back(piece);
    }
    exchange(transport, round, [this] { return limit(); });
}

void Communicator::resume(Deadline deadline) {
    const Interruptible waiting;
    const std::scoped_lock lock(collectives_.running, operators_.running);
    collectives_.transport->restore(deadline);
    for (Queue *queue : {&collectives_, &operators_}) {
        queue->issued.store(0);
        queue->messages.store(0);
        queue->finished = 0;
    }
    const std::lock_guard failure_lock(failure_mutex_);
    failure_ = HCCL_SUCCESS;
    failure_text_.clear();
}

HcclResult Communicator::failure() const {
    const std::lock_guard lock(failure_mutex_);
    return failure_;
}

std::string Communicator::failure_text() const {
    const std::lock_guard lock(failure_mutex_);
    return failure_text_;
}

}  // namespace vnpu::hccl
