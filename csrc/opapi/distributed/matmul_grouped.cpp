// Products of each expert's rows with its weights, before or behind an exchange of rows between the ranks that have the
// experts; beside it, where it is asked for, the product of a shared expert that every rank computes for itself.
#include <numeric>

#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/precision.h"
#include "opapi/distributed/group.h"

namespace vnpu::opapi {
namespace {

// Counts for the experts of rank 0, then of rank 1 and so on: as rows lie where they are exchanged.
struct Rows {
    const Ints &sent, &come;
    int64_t ranks;
    int64_t each() const { return static_cast<int64_t>(sent.size()) / std::max<int64_t>(ranks, 1); }
    static int64_t sum(const Ints &counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
    static int64_t of(const Ints &counts, int64_t peer, int64_t each) {
        const auto first = counts.begin() + peer * each;
        return std::accumulate(first, first + each, int64_t{0});
    }
};

struct Shared {
    const Operand &x, &weight, &y;
    bool transposed;
};

at::Tensor oriented(const at::Tensor &weight, bool transposed) { return transposed ? weight.mT() : weight; }

void check_shared(const Shared &shared) {
    const bool given = shared.x.defined();
    on_chip(given == shared.weight.defined() && given == shared.y.defined(),
            "parameters mmXOptional, mmWeightOptional and mmYOptional come together");
    if (!given) return;
    network(shared.x, shared.weight, shared.y);
    for (const Operand *tensor : {&shared.x, &shared.weight, &shared.y}) rank(*tensor, {2});
    const at::Tensor weight = oriented(shared.weight, shared.transposed);
    tiled(weight.size(0) == shared.x.size(1) && shared.x.size(1) > 0 && shared.x.size(1) <= 12288,
          "parameter mmWeightOptional is {}, expected {} rows, of which 12288 are the most", describe(shared.weight),
          shared.x.size(1));
    shape(shared.y, {shared.x.size(0), weight.size(1)});
}

// (ops-transformer: allto_allv_grouped_mat_mul_tiling.cpp, grouped_mat_mul_allto_allv_tiling.cpp)
void check_grouped(const char *operation, const std::string &group, const Rows &rows, const Operand &send_tensor,
                   const Operand &come_tensor, const Operand &x, const Operand &weight, bool transposed, int64_t tokens,
                   const Shared &shared) {
    check_a3_only(operation);
    if (send_tensor.defined() || come_tensor.defined())
        fail(FaultKind::NullArgument,
             "parameters sendCountsTensorOptional and recvCountsTensorOptional are expected to be null");
    network(x, weight);
    rank(x, {2});
    rank(weight, {3});
    same_dtype(weight, x);
    tiled(rows.ranks == 8 || rows.ranks == 16 || rows.ranks == 32 || rows.ranks == 64,
          "parameter epWorldSize is {}, allowed are 8, 16, 32 and 64", rows.ranks);
    const hccl::OperatorGroup ranks(group);
    tiled(ranks.size() == rows.ranks, "parameter epWorldSize is {}, the group has {} ranks", rows.ranks, ranks.size());
    const auto expected = static_cast<size_t>(weight.size(0) * rows.ranks);
    if (rows.sent.size() != expected || rows.come.size() != expected || expected == 0)
        fail(FaultKind::TilingRefused, "there are {} counts to send and {} to receive, expected {}", rows.sent.size(),
             rows.come.size(), expected);
    tiled(expected <= 256, "there are {} experts, allowed are 256", expected);
    for (const Ints *counts : {&rows.sent, &rows.come})
        for (const int64_t count : *counts)
            if (count < 0) fail(FaultKind::InvalidArgument, "a count of rows is {}", count);
    const int64_t inner = weight.size(transposed ? 2 : 1);
    if (inner != x.size(1))
        fail(FaultKind::TilingRefused, "parameter gmmWeight is {}, expected {} rows", describe(weight), x.size(1));
    tiled(x.size(1) < 65536 && weight.numel() / std::max<int64_t>(weight.size(0) * inner, 1) < 65536,
          "parameters gmmX and gmmWeight are {} and {}, allowed are less than 65536 elements in a row", describe(x),
          describe(weight));
    for (int64_t peer = 0; peer < rows.ranks; ++peer)
        for (const Ints *counts : {&rows.sent, &rows.come}) {
            const int64_t bytes = Rows::of(*counts, peer, rows.each()) * x.size(1) * 2;
            tiled(bytes >= 2 << 20 && bytes <= 100 << 20,
                  "rank {} exchanges {} bytes with this one, allowed are 2 to 100 MB", peer, bytes);
        }
    check_shared(shared);
    if (shared.x.defined() && shared.x.size(0) > 0)
        tiled(tokens / shared.x.size(0) >= 2 && tokens / shared.x.size(0) <= 8,
              "parameter mmXOptional is {}, allowed are 2 to 8 experts for each of its tokens: there are {} rows",
              describe(shared.x), tokens);
    ranks.take_buffers();
}

void check_rows_of(const Operand &tensor, int64_t rows, int64_t width) {
    require(tensor);
    if (tensor.dim() != 2 || tensor.size(0) != rows || tensor.size(1) != width)
        fail(FaultKind::TilingRefused, "parameter {} is {}, expected {} rows of {}", tensor.parameter(),
             describe(tensor), rows, width);
}

// Rows by rank and then by expert, from rows by expert and then by rank, or the reverse.
at::Tensor regrouped(const at::Tensor &rows, const Ints &counts, int64_t ranks, bool by_expert) {
    const at::Tensor numbers = at::tensor(at::IntArrayRef(counts), at::kLong).view({ranks, -1});
    const at::Tensor lying = by_expert ? numbers : numbers.t();  // as the rows lie now
    const at::Tensor starts = (lying.reshape({-1}).cumsum(0) - lying.reshape({-1})).view(lying.sizes());
    std::vector<at::Tensor> parts;
    for (int64_t i = 0; i < lying.size(1); ++i)
        for (int64_t j = 0; j < lying.size(0); ++j)
            parts.push_back(rows.narrow(0, starts[j][i].item().toLong(), lying[j][i].item().toLong()));
    return at::cat(parts);
}

at::Tensor exchanged(const Group &ranks, const Rows &rows, const at::Tensor &from) {
    std::vector<at::Tensor> out, in;
    const at::Tensor come = at::empty({Rows::sum(rows.come), from.size(1)}, from.options());
    int64_t start = 0, end = 0;
    for (int64_t peer = 0; peer < rows.ranks; ++peer) {
        const int64_t sent = Rows::of(rows.sent, peer, rows.each()), got = Rows::of(rows.come, peer, rows.each());
        out.push_back(from.narrow(0, start, sent));
        in.push_back(come.narrow(0, end, got));
        start += sent;
        end += got;
    }
    ranks.exchange(out, in);
    return come;
}

// Each expert's rows times its weights; `counts` are by rank and then by expert.
at::Tensor grouped_product(const at::Tensor &x, const at::Tensor &weight, bool transposed, const Ints &counts,
                           int64_t ranks) {
    const at::Tensor by_expert = at::tensor(at::IntArrayRef(counts), at::kLong).view({ranks, -1}).sum(0);
    std::vector<at::Tensor> parts;
    int64_t start = 0;
    for (int64_t expert = 0; expert < weight.size(0); ++expert) {
        const int64_t rows = by_expert[expert].item().toLong();
        parts.push_back(at::mm(widened(x.narrow(0, start, rows)), oriented(widened(weight[expert]), transposed)));
        start += rows;
    }
    return at::cat(parts).to(x.scalar_type());
}

void shared_product(const Shared &shared, at::Tensor &y) {
    if (y.defined()) y.copy_(at::mm(widened(shared.x), oriented(widened(shared.weight), shared.transposed)));
}

void exchange_and_multiply(const Group &ranks, const Rows &rows, const at::Tensor &x, const at::Tensor &weight,
                           bool transposed, at::Tensor &y, at::Tensor &permuted) {
    const at::Tensor sorted = regrouped(exchanged(ranks, rows, x), rows.come, rows.ranks, true);
    if (permuted.defined()) permuted.copy_(sorted);
    y.copy_(grouped_product(sorted, weight, transposed, rows.come, rows.ranks));
}

void multiply_and_exchange(const Group &ranks, const Rows &rows, const at::Tensor &x, const at::Tensor &weight,
                           bool transposed, at::Tensor &y) {
    const at::Tensor made = grouped_product(x, weight, transposed, rows.sent, rows.ranks);
    y.copy_(exchanged(ranks, rows, regrouped(made, rows.sent, rows.ranks, false)));
}

// What carries the rows, of which A3 has one (the operators' CheckAndHandleCommMode).
void check_by_host(const std::string &mode) {
    on_chip(mode == "ai_cpu", "parameter commMode is \"{}\", allowed is ai_cpu", mode);
}

int64_t columns(const Operand &weight, bool transposed) {
    return weight.dim() == 3 ? weight.size(transposed ? 1 : 2) : 0;
}

}  // namespace
}  // namespace vnpu::opapi

#define ROWS \
    Rows { sendCounts, recvCounts, epWorldSize }
#define SHARED \
    Shared { mmXOptional, mmWeightOptional, mmYOptional, transMmWeight }
#define CHECK_GROUPED(NAME, TOKENS)                                                                       \
    check_grouped(NAME, group, ROWS, sendCountsTensorOptional, recvCountsTensorOptional, gmmX, gmmWeight, \
                  transGmmWeight, TOKENS, SHARED)

#define EXCHANGE_FIRST(NAME)                                                                                   \
    on_chip(permuteOutFlag == permuteOutOptional.defined(), "permuteOutFlag is {}, but permuteOutOptional {}", \
            permuteOutFlag, permuteOutOptional.defined() ? "is given" : "is null");                            \
    check_rows_of(gmmX, Rows::sum(sendCounts), gmmX.size(1));                                                  \
    check_rows_of(gmmY, Rows::sum(recvCounts), columns(gmmWeight, transGmmWeight));                            \
    if (permuteOutFlag)                                                                                        \
        check_rows_of(permuteOutOptional, Rows::sum(recvCounts), gmmX.size(1)),                                \
            exchange_and_multiply(Group(NAME, group), ROWS, gmmX, gmmWeight, transGmmWeight, gmmY,             \
                                  permuteOutOptional);                                                         \
    shared_product(SHARED, mmYOptional)
#define EXCHANGE_LAST(NAME)                                                                  \
    check_rows_of(gmmX, Rows::sum(sendCounts), gmmX.size(1));                                \
    check_rows_of(y, Rows::sum(recvCounts), columns(gmmWeight, transGmmWeight)),             \
        multiply_and_exchange(Group(NAME, group), ROWS, gmmX, gmmWeight, transGmmWeight, y); \
    shared_product(SHARED, mmYOptional)

RANKS_OP(aclnnAlltoAllvGroupedMatMul, CHECK_GROUPED("aclnnAlltoAllvGroupedMatMul", Rows::sum(sendCounts));
         EXCHANGE_FIRST("aclnnAlltoAllvGroupedMatMul"))
RANKS_OP(aclnnAlltoAllvGroupedMatMulV2, check_a3_only("aclnnAlltoAllvGroupedMatMulV2"); check_by_host(commMode);
         CHECK_GROUPED("aclnnAlltoAllvGroupedMatMulV2", Rows::sum(sendCounts));
         EXCHANGE_FIRST("aclnnAlltoAllvGroupedMatMulV2"))
RANKS_OP(aclnnGroupedMatMulAlltoAllv, CHECK_GROUPED("aclnnGroupedMatMulAlltoAllv", Rows::sum(recvCounts));
         EXCHANGE_LAST("aclnnGroupedMatMulAlltoAllv"))
RANKS_OP(aclnnGroupedMatMulAlltoAllvV2, check_a3_only("aclnnGroupedMatMulAlltoAllvV2"); check_by_host(commMode);
         CHECK_GROUPED("aclnnGroupedMatMulAlltoAllvV2", Rows::sum(recvCounts));
         EXCHANGE_LAST("aclnnGroupedMatMulAlltoAllvV2"))
