#include "hccl/exchange.h"

#include <cstring>
#include <memory>
#include <numeric>
#include <set>

#include "device/abort.h"
#include "device/fault.h"
#include "device/machine.h"
#include "device/sum_order.h"

namespace vnpu::hccl {
namespace {

// A reader starts on a large message after this much of it.
constexpr size_t kStep = 128 << 10;
// A sleeper looks this often whether those it waits for are alive.
constexpr auto kLook = std::chrono::milliseconds(50);

// Something that moves bytes through one or more rings.
class Flow {
  public:
    virtual ~Flow() = default;
    virtual bool done() const noexcept = 0;
    virtual bool ready() const noexcept = 0;  // whether advance() would move anything
    virtual void advance() = 0;
    virtual int peer() const noexcept = 0;  // whom it waits for
};

// The pieces of one direction to or from one peer.
class Lane : public Flow {
  public:
    Lane(Transport &transport, int peer) : transport_(transport), peer_(peer) {}
    void add(const Piece &piece) { pieces_.push_back(&piece); }
    bool done() const noexcept override { return at_ == pieces_.size(); }
    int peer() const noexcept override { return peer_; }

  protected:
    const Piece &piece() const { return *pieces_[at_]; }
    // Counts bytes of the piece that moved, padding included.
    void moved(size_t bytes) {
        offset_ += bytes;
        transport_.notify(peer_);
        if (offset_ < padded(piece().bytes)) return;
        const Piece &whole = piece();
        offset_ = 0;
        ++at_;
        if (whole.arrived) whole.arrived();
    }
    // How much of the piece itself, then of its padding, fits into `room`.
    size_t next(size_t room) const {
        const size_t end = offset_ < piece().bytes ? piece().bytes : padded(piece().bytes);
        return std::min({room, end - offset_, kStep});
    }
    bool payload() const { return offset_ < piece().bytes; }

    Transport &transport_;
    const int peer_;
    size_t offset_ = 0;

  private:
    std::vector<const Piece *> pieces_;
    size_t at_ = 0;
};

class Sending final : public Lane {
  public:
    using Lane::Lane;
    bool ready() const noexcept override { return !transport_.to(peer_).room().empty(); }
    void advance() override {
        while (!done()) {
            Ring &ring = transport_.to(peer_);
            const auto room = ring.room();
            const size_t bytes = next(room.size());
            if (bytes == 0) return;
            if (payload()) std::memcpy(room.data(), piece().at + offset_, bytes);
            ring.commit(bytes);
            moved(bytes);
        }
    }
};

class Receiving final : public Lane {
  public:
    using Lane::Lane;
    bool ready() const noexcept override { return !transport_.from(peer_).bytes().empty(); }
    void advance() override {
        while (!done()) {
            Ring &ring = transport_.from(peer_);
            const auto come = ring.bytes();
            const size_t bytes = next(come.size());
            if (bytes == 0) return;
            if (payload()) std::memcpy(piece().at + offset_, come.data(), bytes);
            ring.take(bytes);
            moved(bytes);
        }
    }
};

// Waits until the peer has taken everything.
class Settling final : public Flow {
  public:
    Settling(Transport &transport, const Flow &sending) : transport_(transport), sending_(sending) {}
    bool done() const noexcept override { return sending_.done() && transport_.to(peer()).empty(); }
    bool ready() const noexcept override { return false; }
    void advance() override {}
    int peer() const noexcept override { return sending_.peer(); }

  private:
    Transport &transport_;
    const Flow &sending_;
};

class Folding final : public Flow {
  public:
    Folding(Transport &transport, const Fold &fold)
        : transport_(transport),
          fold_(fold),
          ranks_(order_of(transport.size())),
          wide_(std::make_unique_for_overwrite<std::byte[]>(kElements * fold.reduction->wide)) {}
    bool done() const noexcept override { return start_ == padded_end(); }
    int peer() const noexcept override { return rank(); }
    bool ready() const noexcept override {
        return rank() == transport_.rank() || transport_.from(rank()).bytes().size() >= fold_.reduction->element;
    }

    void advance() override {
        while (!done()) {
            if (start_ == fold_.bytes) {
                if (!skip_padding()) return;
            } else if (rank() == transport_.rank()) {
                combine(fold_.own + start_, chunk());
                next_rank();
            } else {
                Ring &ring = transport_.from(rank());
                const auto come = ring.bytes();
                const size_t element = fold_.reduction->element;
                const size_t bytes = std::min(come.size(), chunk() - offset_) / element * element;
                if (bytes == 0) return;
                combine(come.data(), bytes);
                ring.take(bytes);
                transport_.notify(rank());
                offset_ += bytes;
                if (offset_ == chunk()) next_rank();
            }
        }
    }

  private:
    static constexpr size_t kElements = 8192;  // at once: what the first-level caches hold

    static std::vector<int64_t> order_of(int ranks) {
        if (const std::optional<uint64_t> seed = Machine::instance().settings().sum_order)
            return sum_order(*seed, ranks);
        std::vector<int64_t> order(static_cast<size_t>(ranks));
        std::iota(order.begin(), order.end(), 0);
        return order;
    }

    int rank() const noexcept { return static_cast<int>(ranks_[turn_]); }
    size_t chunk() const { return std::min(kElements * fold_.reduction->element, fold_.bytes - start_); }
    size_t padded_end() const { return padded(fold_.bytes); }

    void combine(const std::byte *with, size_t bytes) {
        const size_t element = fold_.reduction->element;
        (turn_ == 0 ? fold_.reduction->load : fold_.reduction->combine)(
            wide_.get() + offset_ / element * fold_.reduction->wide, with, bytes / element);
    }

    void next_rank() {
        offset_ = 0;
        if (++turn_ < ranks_.size()) return;
        turn_ = 0;
        fold_.reduction->store(fold_.out + start_, wide_.get(), chunk() / fold_.reduction->element);
        start_ += chunk();
    }

    // The padding of every peer's message. Returns whether that is over.
    bool skip_padding() {
        const size_t all = padded_end() - fold_.bytes;
        for (; turn_ < ranks_.size(); ++turn_, offset_ = 0) {
            while (rank() != transport_.rank() && offset_ < all) {
                Ring &ring = transport_.from(rank());
                const size_t bytes = std::min(ring.bytes().size(), all - offset_);
                if (bytes == 0) return false;
                ring.take(bytes);
                transport_.notify(rank());
                offset_ += bytes;
            }
        }
        turn_ = 0;
        start_ = padded_end();
        return true;
    }

    Transport &transport_;
    const Fold &fold_;
    const std::vector<int64_t> ranks_;  // in the order in which they are added
    const std::unique_ptr<std::byte[]> wide_;
    size_t start_ = 0;   // of the chunk
    size_t turn_ = 0;    // of the rank that comes next in the chunk
    size_t offset_ = 0;  // how much of that part has come
};

class Flows final : public Transport::Condition {
  public:
    explicit Flows(Transport &transport) : transport_(transport) {}

    template <class Direction>
    void add_lanes(const std::vector<Piece> &pieces) {
        std::vector<Direction *> lanes(static_cast<size_t>(transport_.size()));
        for (const Piece &piece : pieces) {
            if (piece.bytes == 0) continue;
            Direction *&lane = lanes[static_cast<size_t>(piece.peer)];
            if (lane == nullptr) lane = &add<Direction>(transport_, piece.peer);
            lane->add(piece);
        }
    }
    template <class Kind, class... Args>
    Kind &add(Args &&...args) {
        auto made = std::make_unique<Kind>(std::forward<Args>(args)...);
        Kind &flow = *made;
        all_.push_back(std::move(made));
        return flow;
    }
    void settle() {
        const size_t lanes = all_.size();
        for (size_t i = 0; i < lanes; ++i)
            if (dynamic_cast<Sending *>(all_[i].get()) != nullptr) add<Settling>(transport_, *all_[i]);
    }

    bool done() const noexcept {
        return std::all_of(all_.begin(), all_.end(), [](const auto &flow) { return flow->done(); });
    }
    bool holds() const noexcept override {
        return done() ||
               std::any_of(all_.begin(), all_.end(), [](const auto &flow) { return !flow->done() && flow->ready(); });
    }
    void advance() {
        for (const auto &flow : all_)
            if (!flow->done()) flow->advance();
    }
    std::set<int> awaited() const {
        std::set<int> peers;
        for (const auto &flow : all_)
            if (!flow->done()) peers.insert(flow->peer());
        return peers;
    }

  private:
    Transport &transport_;
    std::vector<std::unique_ptr<Flow>> all_;
};

[[noreturn]] void time_out(Transport &transport, const std::set<int> &awaited, const Limit &limit) {
    std::string who;
    for (const int peer : awaited) who += (who.empty() ? "" : "; ") + transport.condition(peer);
    fail(FaultKind::RankSilent,
         "nothing came for {:g} s ({}): {}. A rank that is running has not called this collective: look for one that "
         "some ranks skip, or for a rank that is slower than the time-out.",
         std::chrono::duration<double>(*limit.span).count(), limit.reason, who);
}

}  // namespace

void exchange(Transport &transport, const Round &round, const Patience &patience) {
    Flows flows(transport);
    flows.add_lanes<Sending>(round.sends);
    if (round.settle || !transport.carries_itself()) flows.settle();
    flows.add_lanes<Receiving>(round.receives);
    if (round.fold && round.fold->bytes != 0) flows.add<Folding>(transport, *round.fold);
    for (Clock::time_point moved = Clock::now();;) {
        flows.advance();
        if (flows.done()) return;
        transport.wait(flows, Clock::now() + kLook);
        const Clock::time_point now = Clock::now();
        if (flows.holds()) {
            moved = now;
            continue;
        }
        const std::set<int> awaited = flows.awaited();
        std::string gone;
        for (const int peer : awaited)
            if (gone.empty()) gone = transport.absence(peer);
        if (flows.holds()) continue;  // the last that it sent
        if (!gone.empty()) fail(FaultKind::RankGone, "{}.", gone);
        refuse_aborted();
        const Limit limit = patience();
        if (limit.span && now >= moved + *limit.span) time_out(transport, awaited, limit);
    }
}

}  // namespace vnpu::hccl
