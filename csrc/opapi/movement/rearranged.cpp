// Views that a program wants as tensors of their own: MindSpore's graphs ask for them, torch_npu makes views instead.
#include "aclnn_mindspore.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

// Fault InvalidArgument where `dims` is no order of the dimensions.
void check_permute(const Operand &out, const Operand &self, const Ints &dims) {
    require(self);
    std::vector<int64_t> sizes;
    std::vector<bool> seen(static_cast<size_t>(self.dim()));
    for (const int64_t dim : dims) {
        dimension(dim, self);
        const auto place = static_cast<size_t>(at::maybe_wrap_dim(dim, self.dim()));
        if (place >= seen.size() || seen[place])
            fail(FaultKind::InvalidArgument, "parameter dims is {}, no order of {} dimensions", show(dims), self.dim());
        seen[place] = true;
        sizes.push_back(self.size(dim));
    }
    if (dims.size() != seen.size())
        fail(FaultKind::InvalidArgument, "parameter dims is {}, no order of {} dimensions", show(dims), self.dim());
    shape(out, sizes);
    same_dtype(out, self);
}

// -1 in `size` keeps the dimension.
std::vector<int64_t> expanded(const Operand &self, const Ints &size) {
    std::vector<int64_t> sizes = size;
    const auto before = static_cast<int64_t>(size.size()) - self.dim();
    if (before < 0) fail(FaultKind::InvalidArgument, "parameter size is {} for {} dimensions", show(size), self.dim());
    for (int64_t i = 0; i < self.dim(); ++i) {
        int64_t &wanted = sizes[static_cast<size_t>(before + i)];
        if (wanted == -1) wanted = self.size(i);
        if (self.size(i) != 1 && self.size(i) != wanted)
            fail(FaultKind::InvalidArgument, "parameter self has shape {}, which does not expand to {}", describe(self),
                 show(size));
    }
    return sizes;
}

void check_slice(const Operand &out, const Operand &self, int64_t dim, int64_t start, int64_t end, int64_t step) {
    dimension(dim, self);
    if (self.dim() == 0) fail(FaultKind::InvalidArgument, "parameter self has no dimension to slice");
    if (step < 1) fail(FaultKind::InvalidArgument, "parameter step is {}, allowed are 1 and more", step);
    shape(out, self.slice(dim, start, end, step).sizes());
    same_dtype(out, self);
}

int64_t diagonal_length(int64_t rows, int64_t columns, int64_t diagonal) {
    return std::max<int64_t>(0,
                             diagonal >= 0 ? std::min(rows, columns - diagonal) : std::min(rows + diagonal, columns));
}

void check_diagonal(const Operand &out, const Operand &self, int64_t diagonal) {
    rank(self, {1, 2});
    if (self.dim() == 1) {
        const int64_t side = self.size(0) + std::abs(diagonal);
        shape(out, {side, side});
    } else {
        shape(out, diagonal_length(self.size(0), self.size(1), diagonal));
    }
    same_dtype(out, self);
}

void check_split(const Operands &out, const Operand &self, uint64_t size, int64_t dim) {
    dimension(dim, self);
    if (self.dim() == 0) fail(FaultKind::InvalidArgument, "parameter self has no dimension to split");
    if (size == 0) fail(FaultKind::InvalidArgument, "parameter splitSections is 0");
    const auto parts = self.split(static_cast<int64_t>(size), dim);
    if (parts.size() != out.size())
        fail(FaultKind::InvalidArgument, "parameter out has {} tensors, expected {}", out.size(), parts.size());
    for (size_t i = 0; i < parts.size(); ++i) shape(out[i], parts[i].sizes());
}

// The last dimension of `indices` holds positions in the first dimensions of `self`.
void check_gather(const Operand &out, const Operand &self, const Operand &indices) {
    require(self);
    require(indices);
    dtype(indices, {at::kInt, at::kLong});
    const int64_t depth = indices.dim() == 0 ? 0 : indices.size(-1);
    if (indices.dim() == 0 || depth > self.dim())
        fail(FaultKind::InvalidArgument, "parameter indices has shape {} for self of {}", describe(indices),
             describe(self));
    std::vector<int64_t> sizes(indices.sizes().begin(), indices.sizes().end() - 1);
    sizes.insert(sizes.end(), self.sizes().begin() + depth, self.sizes().end());
    shape(out, sizes);
    same_dtype(out, self);
}

at::Tensor gathered(const at::Tensor &self, const at::Tensor &indices, bool negative) {
    const at::Tensor where = indices.to(at::kLong);
    c10::List<std::optional<at::Tensor>> places;
    for (int64_t i = 0; i < where.size(-1); ++i) {
        const at::Tensor place = where.select(-1, i);
        if (place.numel() > 0 && !negative && place.min().item<int64_t>() < 0)
            fail(FaultKind::InvalidArgument, "parameter indices holds {}", place.min().item<int64_t>());
        places.push_back(place);
    }
    if (!places.empty()) return at::index(self, places);
    std::vector<int64_t> sizes(where.sizes().begin(), where.sizes().end() - 1);  // whole copies of self
    sizes.insert(sizes.end(), self.sizes().begin(), self.sizes().end());
    return self.expand(sizes);
}

// Two forms, as CANN has them (aclnn_scatter_add_tf.cpp): where the last dimension of `indices` fits as positions in
// the first dimensions of varRef, it is taken so; else each index is one of its first dimension.
bool adds_at_positions(const at::Tensor &var, const at::Tensor &indices, const at::Tensor &updates) {
    const int64_t depth = indices.size(-1);
    if (depth > var.dim()) return false;
    std::vector<int64_t> sizes(indices.sizes().begin(), indices.sizes().end() - 1);
    sizes.insert(sizes.end(), var.sizes().begin() + depth, var.sizes().end());
    return updates.sizes() == at::IntArrayRef(sizes);
}

void check_add(const Operand &var, const Operand &indices, const Operand &updates) {
    require(var);
    require(indices);
    require(updates);
    dtype(var, {at::kFloat, at::kHalf, at::kBFloat16, at::kInt, at::kChar, at::kByte});
    dtype(indices, {at::kInt, at::kLong});
    same_dtype(updates, var);
    for (const Operand *each : {&var, &indices, &updates})
        if (each->dim() < 1 || each->dim() > 8)
            fail(FaultKind::InvalidArgument, "parameter {} is {}, expected 1 to 8 dimensions", each->parameter(),
                 describe(*each));
    std::vector<int64_t> sizes(indices.sizes().begin(), indices.sizes().end());
    sizes.insert(sizes.end(), var.sizes().begin() + 1, var.sizes().end());
    if (updates.sizes() != at::IntArrayRef(sizes) && !adds_at_positions(var, indices, updates))
        fail(FaultKind::InvalidArgument, "parameter updates is {} for varRef of {} and indices of {}",
             describe(updates), describe(var), describe(indices));
}

// In fp32 and rounded once, as the same place may be added to several times.
void add_at(at::Tensor &var, const at::Tensor &indices, const at::Tensor &updates) {
    if (var.numel() == 0 || indices.numel() == 0 || updates.numel() == 0) return;
    const bool positions = adds_at_positions(var, indices, updates);
    const int64_t depth = positions ? indices.size(-1) : 1;
    const at::Tensor places = indices.to(at::kLong).reshape({-1, depth});
    at::Tensor flat = at::zeros({places.size(0)}, at::kLong);
    for (int64_t i = 0; i < depth; ++i) {
        const at::Tensor column = places.select(1, i);
        if (column.lt(0).logical_or(column.ge(var.size(i))).any().item<bool>())
            fail(FaultKind::OutOfBounds, "parameter indices points outside of {}", describe(var));
        flat = flat * var.size(i) + column;
    }
    const at::Tensor rows = widened(updates).reshape({places.size(0), -1});
    var.copy_(widened(var).reshape({-1, rows.size(1)}).index_add(0, flat, rows).reshape(var.sizes()));
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnPermute, check_permute(out, self, dims), out.copy_(self.permute(dims)))
OP(aclnnExpand, shape(out, expanded(self, size)); same_dtype(out, self), out.copy_(self.expand(expanded(self, size))))
OP(aclnnSlice, check_slice(out, self, dim, start, end, step), out.copy_(self.slice(dim, start, end, step)))
OP(aclnnDiag, check_diagonal(out, self, diagonal), out.copy_(at::diag(self, diagonal)))
OP(aclnnSplitTensor, check_split(out, self, splitSections, dim),
   const auto parts = self.split(static_cast<int64_t>(splitSections), dim);
   for (size_t i = 0; i < out.size(); ++i) out[i].copy_(parts[i]))
OP(aclnnGatherNd, check_gather(out, self, indices), out.copy_(gathered(self, indices, negativeIndexSupport)))
OP(aclnnTfScatterAdd, check_add(varRef, indices, updates), add_at(varRef, indices, updates))
