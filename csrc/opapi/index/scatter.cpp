// Rows that are taken from a table, and blocks that are written into each tensor of a list: nothing is computed.
#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/unsigned.h"
#include "opapi/index/positions.h"

namespace vnpu::opapi {
namespace {

// ops-nn: aclnn_gather_v3.cpp, whose other forms are Ascend 950's.
void check_rows(const Operand &self, int64_t dim, const Operand &index, int64_t batch_dims, int64_t mode,
                const Operand &out) {
    require(self);
    require(index);
    at::DimVector sizes;
    if (self.dim() > 0) {
        sizes.assign(index.sizes().begin(), index.sizes().end());
        sizes.append(self.sizes().begin() + 1, self.sizes().end());
    }
    if (dim != 0 || batch_dims != 0 || mode != 1)
        fail(FaultKind::InvalidArgument, "dim is {}, batchDims {} and mode {}: CANN offers 0, 0 and 1 on this chip",
             dim, batch_dims, mode);
    shape(out, sizes);
}

void rows(const at::Tensor &self, const at::Tensor &index, at::Tensor &out) {
    const at::Tensor table = moved(self.dim() > 0 ? self : self.reshape({1}));
    reading(index, 0, table.size(0), [&](const at::Tensor &places) {
        const at::Tensor taken = table.index_select(0, places.to(at::kLong).reshape({-1}));
        moved(out).copy_(taken.reshape(out.sizes()));
    });
}

// updates[i] goes into variable i along `axis`, which counts the dimensions of updates (ops-nn:
// scatter_list_tiling.cpp).
void check_list(const Operands &variables, const Operand &indices, const Operand &updates, const Operand &mask,
                const std::string &reduce, int64_t axis) {
    for (const Operand *each : {&indices, &updates}) require(*each);
    if (!reduce.empty() && reduce != "update")
        fail(FaultKind::InvalidArgument, "parameter reduceOptional is \"{}\", allowed is update", reduce);
    tiled(!variables.empty() && variables.front().dim() >= 1, "parameter varRef has no tensor of 1 dimension or more");
    const int64_t along = axis < 0 ? axis + updates.dim() : axis, count = updates.dim() > 0 ? updates.size(0) : 0;
    tiled(updates.dim() >= 2 && along > 0 && along < updates.dim(),
          "parameter axis is {}, which is not between the first of updates, {}, and its last", axis, describe(updates));
    tiled(static_cast<int64_t>(variables.size()) == count, "parameter varRef has {} tensors, expected {} as updates",
          variables.size(), count);
    tiled(indices.dim() == 1 || (indices.dim() == 2 && indices.size(1) == 2),
          "parameter indice is {}, expected [{}] or [{}, 2]", describe(indices), count, count);
    tiled(indices.size(0) == count, "parameter indice is {}, expected {} rows", describe(indices), count);
    if (mask.defined())
        tiled(mask.dim() == 1 && mask.size(0) == count, "parameter maskOptional is {}, expected [{}]", describe(mask),
              count);
    for (const Operand &variable : variables) {
        same_dtype(variable, updates);
        bool fits = variable.dim() + 1 == updates.dim();
        for (int64_t i = 1; fits && i < updates.dim(); ++i)
            fits = i == along ? updates.size(i) <= variable.size(i - 1) : updates.size(i) == variable.size(i - 1);
        tiled(fits, "parameter varRef has {}, which does not take a row of updates, {}", describe(variable),
              describe(updates));
    }
}

// A row of indices is where the block begins and, where it has two numbers, how much of it counts.
void scatter_list(Operands &variables, const at::Tensor &indices, const at::Tensor &updates, const at::Tensor &mask,
                  int64_t axis) {
    const int64_t along = at::maybe_wrap_dim(axis, updates.dim());
    const at::Tensor places = indices.to(at::kLong).reshape({updates.size(0), -1});
    for (int64_t i = 0; i < updates.size(0); ++i) {
        if (mask.defined() && mask[i].item().toLong() == 0) continue;
        at::Tensor target = moved(variables[static_cast<size_t>(i)]);
        const int64_t start = places[i][0].item().toLong();
        const int64_t length =
            std::min(places.size(1) == 2 ? places[i][1].item().toLong() : updates.size(along), updates.size(along));
        if (length <= 0) continue;
        TORCH_CHECK_INDEX(start >= 0 && start + length <= target.size(along - 1), "index ", start,
                          " is out of bounds for axis ", axis, " of size ", target.size(along - 1));
        target.narrow(along - 1, start, length).copy_(moved(updates)[i].narrow(along - 1, 0, length));
    }
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnGatherV3, check_rows(self, dim, index, batchDims, mode, out), rows(self, index, out))
OP(aclnnScatterList, check_list(varRef, indice, updates, maskOptional, reduceOptional, axis),
   scatter_list(varRef, indice, updates, maskOptional, axis))
