// What matrix products before and behind an all-to-all have in common, on 910B and A3 (ops-transformer:
// mc2/allto_all_matmul and mc2/matmul_allto_all, op_api and op_tiling/arch22).
#pragma once

#include <fmt/ranges.h>

#include "opapi/distributed/product.h"

namespace vnpu::opapi::alltoall {

struct Sides {
    const Operand &x1, &x2, &bias;
    bool transposed;  // x2 is [n, k]
    int64_t inner() const { return unpacked_size(x2, transposed ? 1 : 0); }
    int64_t columns() const { return unpacked_size(x2, transposed ? 0 : 1); }
    // int4 comes as eight to an int32, along the last dimension.
    static int64_t unpacked_size(const at::Tensor &tensor, int64_t dim) {
        return tensor.size(dim) * (dim == 1 && tensor.scalar_type() == at::kInt ? 8 : 1);
    }
};

// What moves the data, which the second versions are told.
inline void check_engine(const std::string &mode) {
    const char *const allowed = is_a3() ? "ai_cpu" : "aiv";
    on_chip(mode == allowed, "parameter commMode is \"{}\", allowed is {}", mode, allowed);
}

inline void check_axes(const Ints &axes, int64_t from, int64_t to) {
    on_chip(!axes.given || (axes.size() == 2 && axes[0] == from && axes[1] == to),
            "parameter alltoAllAxesOptional is [{}], allowed are null and [{}, {}]", fmt::join(axes, ", "), from, to);
}

inline void check_sides(const Sides &sides, bool transposed_x1, const Operand &output) {
    for (const Operand *tensor : {&sides.x1, &sides.x2, &output}) rank(*tensor, {2});
    on_chip(sides.x2.is_contiguous(), "parameter x2 is {} and not contiguous", describe(sides.x2));
    on_chip(!transposed_x1, "parameter transposeX1 is true, allowed is false");
    on_chip(sides.x1.size(1) > 0 && sides.x2.numel() > 0,
            "parameters x1 and x2 are {} and {}, of which none may be empty", describe(sides.x1), describe(sides.x2));
    if (sides.bias.defined()) shape(sides.bias, {sides.columns()});
}

// Every rank's columns of its rows that are this rank's, side by side.
inline at::Tensor rows_together(const Group &ranks, const at::Tensor &mine) {
    const at::Tensor come = at::empty(mine.sizes(), mine.options());
    const auto blocks = come.chunk(ranks.size());
    ranks.exchange(mine.contiguous().chunk(ranks.size()), blocks);
    return at::cat(blocks, 1);
}

// Every rank's rows of the columns that are this rank's, one behind another, into `output`.
inline void columns_together(const Group &ranks, const at::Tensor &mine, at::Tensor &output) {
    const at::Tensor come = at::empty(output.sizes(), output.options());
    ranks.exchange(mine.chunk(ranks.size(), 1), come.chunk(ranks.size()));
    output.copy_(come);
}

// In the first phase of a product behind the exchange.
inline void check_rows_together(const Sides &sides, const std::string &group, int64_t most, const Operand &output,
                                const Operand &gathered) {
    const int64_t ranks = ranks_of(group, {2, 4, 8}, {2, 4, 8, 16});
    const int64_t inner = Sides::unpacked_size(sides.x1, 1) * ranks;
    tiled(sides.x1.size(0) > 0 || is_a3(), "parameter x1 is {}, which is empty", describe(sides.x1));
    tiled(inner <= most, "parameter x1 is {}, allowed are {} elements in the rows of {} ranks", describe(sides.x1),
          most, ranks);
    if (sides.x1.size(0) % ranks != 0 || sides.inner() != inner)
        fail(
            FaultKind::TilingRefused,
            "parameters x1 and x2 are {} and {}, expected a multiple of {} rows, the ranks of the group, and {} to sum "
            "over",
            describe(sides.x1), describe(sides.x2), ranks, inner);
    const int64_t rows = sides.x1.size(0) / ranks;
    if (output.size(0) != rows || output.size(1) != sides.columns())
        fail(FaultKind::TilingRefused, "parameter output is {}, expected [{}, {}]", describe(output), rows,
             sides.columns());
    if (gathered.defined() && gathered.numel() != 0) shape(gathered, {rows, sides.x1.size(1) * ranks});
}

// The same of one before it.
inline void check_columns_together(const Sides &sides, const std::string &group, const Operand &output) {
    on_chip(sides.x1.size(0) > 0, "parameter x1 is {}, which is empty", describe(sides.x1));
    if (sides.x1.size(1) != sides.inner())
        fail(FaultKind::InvalidArgument, "parameter x2 is {}, expected {} to sum over, the last size of x1",
             describe(sides.x2), sides.x1.size(1));
    on_chip(sides.x1.size(1) <= 65535, "parameter x1 is {}, allowed are 65535 elements in a row", describe(sides.x1));
    const int64_t ranks = ranks_of(group, {2, 4, 8}, {2, 4, 8, 16});
    if (output.size(0) != sides.x1.size(0) * ranks || output.size(1) * ranks != sides.columns())
        fail(FaultKind::TilingRefused, "parameter output is {}, expected [{}, {} / {}]", describe(output),
             sides.x1.size(0) * ranks, sides.columns(), ranks);
}

inline at::Tensor oriented(const at::Tensor &x2, bool transposed) { return transposed ? x2.t() : x2; }

}  // namespace vnpu::opapi::alltoall
