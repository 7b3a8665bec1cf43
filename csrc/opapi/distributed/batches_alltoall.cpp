// Products of experts between an exchange of experts (among ep ranks) and one of their parts (among tp ranks), which
// CANN has for A3 (ops-transformer: mc2/allto_all_all_gather_batch_mat_mul,
// mc2/batch_mat_mul_reduce_scatter_allto_all). The rows of an expert lie by the ep rank that they are of, then by the
// tp rank.
#include "aclnn_mindspore.h"
#include "opapi/distributed/product.h"

namespace vnpu::opapi {
namespace {

struct Grid {
    const std::string &ep_name, &tp_name;
    int64_t ep, tp;
    bool by_columns;  // what is shared out among the tp ranks, else rows
};

constexpr int64_t kMostInner = 65535, kMostExperts = 512, kMostOwnExperts = 32;

void check_world(const char *parameter, int64_t size) {
    on_chip(size == 2 || size == 4 || size == 8 || size == 16 || size == 32,
            "parameter {} is {}, allowed are 2, 4, 8, 16 and 32", parameter, size);
}

void check_group(const char *parameter, const std::string &name) {
    if (name.empty()) fail(FaultKind::NullArgument, "parameter {} is empty", parameter);
    if (name.size() >= 128)
        fail(FaultKind::InvalidArgument, "parameter {} has {} characters, allowed are 127", parameter, name.size());
}

void check_grid(const Grid &grid, const char *shard, int64_t type) {
    check_group("groupEp", grid.ep_name);
    check_group("groupTp", grid.tp_name);
    on_chip(type == 0 || type == 1, "parameter {} is {}, allowed are 0 and 1", shard, type);
    check_world("epWorldSize", grid.ep);
    check_world("tpWorldSize", grid.tp);
}

void check_same(const char *parameter, int64_t said, const std::string &group) {
    const int64_t ranks = ranks_of(group, {}, {2, 4, 8, 16, 32});
    if (ranks != said)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, its group has {} ranks", parameter, said, ranks);
}

void check_groups(const Grid &grid) {
    tiled(grid.ep_name != grid.tp_name, "parameters groupEp and groupTp are both \"{}\"", grid.ep_name);
    check_same("epWorldSize", grid.ep, grid.ep_name);
    check_same("tpWorldSize", grid.tp, grid.tp_name);
}

void check_dtypes(const Operand &x, const Operand &weight, const Operand &bias, const Operand &y) {
    dtype(x, {at::kHalf, at::kBFloat16});
    same_dtype(weight, x);
    same_dtype(y, x);
    if (bias.defined()) dtype(bias, x.scalar_type() == at::kHalf ? at::kHalf : at::kFloat);
    for (const Operand *each : {&x, &weight, &y}) rank(*each, {3});
}

void check_bias(const Operand &bias, int64_t experts, int64_t columns) {
    if (!bias.defined()) return;
    rank(bias, {2, 3});
    if (bias.dim() == 2)
        shape(bias, {experts, columns});
    else
        shape(bias, {experts, 1, columns});
}

// [own experts, inner, columns]
void check_sizes(const Operand &weight, int64_t experts, int64_t rows) {
    on_chip(weight.size(0) >= 1 && weight.size(0) <= kMostOwnExperts && weight.size(1) >= 1 &&
                weight.size(1) <= kMostInner && weight.size(2) >= 1 && weight.size(2) <= kMostInner,
            "parameter weight is {}, allowed are {} experts of {} rows and columns", describe(weight), kMostOwnExperts,
            kMostInner);
    on_chip(experts >= 2 && experts <= kMostExperts, "there are {} experts, allowed are 2 to {}", experts,
            kMostExperts);
    on_chip(rows > 0, "parameter x has no rows");
}

void check_gathered(const Operand &x, const Operand &weight, const Operand &bias, const Grid &grid, int64_t shard,
                    int64_t activation, const Operand &y, const Operand &gathered, const Operand &product) {
    check_dtypes(x, weight, bias, y);
    check_grid(grid, "xShardType", shard);
    on_chip(activation >= 0 && activation <= 4, "parameter actType is {}, allowed are 0 to 4", activation);
    const int64_t own = weight.size(0), inner = weight.size(1), columns = weight.size(2),
                  rows = x.size(1) * grid.ep * (grid.by_columns ? 1 : grid.tp);
    shape(x, {own * grid.ep, x.size(1), grid.by_columns ? inner / grid.tp : inner});
    if (grid.by_columns && inner % grid.tp != 0)
        fail(FaultKind::InvalidArgument, "parameter weight is {}, expected a multiple of {} rows", describe(weight),
             grid.tp);
    shape(y, {own, rows, columns});
    check_bias(bias, own, columns);
    for (const Operand *each : {&gathered, &product})
        if (each->defined()) same_dtype(*each, x);
    if (gathered.defined()) shape(gathered, {own, rows, inner});
    if (product.defined()) shape(product, {own, rows, columns});
    check_sizes(weight, x.size(0), x.size(1));
    if (product.defined() && activation == 0)
        fail(FaultKind::InvalidArgument, "parameter y3OutOptional is given where actType is 0");
    check_groups(grid);
}

// Of [ranks * n, ...] one tensor of n behind another, back as they came from the ranks.
at::Tensor exchanged(const Group &ranks, const at::Tensor &mine) {
    const at::Tensor come = at::empty(mine.sizes(), mine.options());
    ranks.exchange(mine.contiguous().chunk(ranks.size()), come.chunk(ranks.size()));
    return come;
}

at::Tensor product_of(const at::Tensor &x, const at::Tensor &weight) {
    return at::bmm(widened(x), widened(weight)).to(x.scalar_type());
}

at::Tensor with_bias(const at::Tensor &x, const at::Tensor &bias) {
    if (!bias.defined()) return x;
    return (widened(x) + widened(bias).reshape({x.size(0), 1, x.size(2)})).to(x.scalar_type());
}

at::Tensor active(const at::Tensor &x, int64_t activation) {
    const at::Tensor wide = widened(x);
    switch (activation) {
        case 1:
            return at::gelu(wide, "tanh");
        case 2:
            return at::silu(wide);
        case 3:
            return at::relu(wide);
        case 4:
            return wide * (wide * 1.702).sigmoid();
        default:
            return wide;
    }
}

void gather_and_multiply(const Group &ep, const Group &tp, const Grid &grid, const at::Tensor &x,
                         const at::Tensor &weight, const at::Tensor &bias, int64_t activation, at::Tensor &y,
                         at::Tensor &gathered, at::Tensor &product) {
    // [ep, own experts, rows, columns], then with the tp ranks before that
    const at::Tensor come = exchanged(ep, x).unflatten(0, {grid.ep, -1});
    const at::Tensor all = tp.all_gather(come.contiguous()).unflatten(0, {grid.tp, grid.ep});
    const at::Tensor ordered = grid.by_columns ? all.permute({2, 1, 3, 0, 4}).flatten(3, 4).flatten(1, 2)
                                               : all.permute({2, 1, 0, 3, 4}).flatten(1, 3);
    const at::Tensor made = with_bias(product_of(ordered, weight), bias);
    if (gathered.defined()) gathered.copy_(ordered);
    if (product.defined()) product.copy_(made);
    y.copy_(active(made, activation));
}

void check_scattered(const Operand &x, const Operand &weight, const Operand &bias, const Grid &grid, int64_t shard,
                     const Operand &out) {
    check_dtypes(x, weight, bias, out);
    check_grid(grid, "yShardType", shard);
    const int64_t own = x.size(0), columns = weight.size(2), parts = grid.ep * (grid.by_columns ? 1 : grid.tp);
    shape(weight, {own, x.size(2), columns});
    if (x.size(1) % parts != 0 || (grid.by_columns && columns % grid.tp != 0))
        fail(FaultKind::InvalidArgument, "parameters x and weight are {} and {}, of which {} is no multiple of {}",
             describe(x), describe(weight), x.size(1) % parts != 0 ? x.size(1) : columns,
             x.size(1) % parts != 0 ? parts : grid.tp);
    const int64_t mine = grid.by_columns ? columns / grid.tp : columns;
    shape(out, {own * grid.ep, x.size(1) / parts, mine});
    check_bias(bias, own, mine);
    check_sizes(weight, out.size(0), out.size(1));
    check_groups(grid);
}

void multiply_and_scatter(const Group &ep, const Group &tp, const Grid &grid, const at::Tensor &x,
                          const at::Tensor &weight, const at::Tensor &bias, at::Tensor &out) {
    const at::Tensor made = product_of(x, weight);
    // [tp, own experts, rows of all ep ranks, columns]
    const at::Tensor parts = grid.by_columns
                                 ? made.unflatten(2, {grid.tp, -1}).permute({2, 0, 1, 3})
                                 : made.unflatten(1, {grid.ep, grid.tp, -1}).permute({2, 0, 1, 3, 4}).flatten(2, 3);
    at::Tensor mine = at::empty(parts[0].sizes(), parts.options());
    tp.reduce_scatter(mine, parts.contiguous());
    const at::Tensor whole = with_bias(mine, bias);
    out.copy_(exchanged(ep, whole.unflatten(1, {grid.ep, -1}).transpose(0, 1).flatten(0, 1)));
}

}  // namespace
}  // namespace vnpu::opapi

#define GRID(TYPE) Grid{groupEp, groupTp, epWorldSize, tpWorldSize, TYPE == 0}
#define GROUPS(NAME) Group(NAME, groupEp), Group(NAME, groupTp)

RANKS_OP(aclnnAlltoAllAllGatherBatchMatMul, optional(biasOptional, y2OutOptional, y3OutOptional);
         check_a3_only("aclnnAlltoAllAllGatherBatchMatMul");
         check_gathered(x, weight, biasOptional, GRID(xShardType), xShardType, actType, y1Out, y2OutOptional,
                        y3OutOptional),
         gather_and_multiply(GROUPS("aclnnAlltoAllAllGatherBatchMatMul"), GRID(xShardType), x, weight, biasOptional,
                             actType, y1Out, y2OutOptional, y3OutOptional))
RANKS_OP(aclnnBatchMatMulReduceScatterAlltoAll, optional(biasOptional);
         check_a3_only("aclnnBatchMatMulReduceScatterAlltoAll");
         check_scattered(x, weight, biasOptional, GRID(yShardType), yShardType, out),
         multiply_and_scatter(GROUPS("aclnnBatchMatMulReduceScatterAlltoAll"), GRID(yShardType), x, weight,
                              biasOptional, out))
