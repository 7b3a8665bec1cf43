// Reading and writing at indices: index, gather, scatter, select, take, masks. An index past the end is found by the
// kernel, so it surfaces at the next synchronisation with the operator's name.
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>

#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/unsigned.h"
#include "opapi/index/positions.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kIndex{at::kInt, at::kLong};

int64_t length(const at::Tensor &self, int64_t dim) { return self.dim() == 0 ? 1 : self.size(dim); }

// ATen's gather and scatter want int64: an int32 index is copied.
at::Tensor wide(const at::Tensor &index) { return index.scalar_type() == at::kInt ? index.to(at::kLong) : index; }

// Those that count from the end, as -1, become those from the start; what lies before the first stays.
at::Tensor from_the_start(const at::Tensor &index, int64_t length) {
    if (index.numel() == 0 || index.min().item<int64_t>() >= 0) return index;
    return at::where(index.lt(0).logical_and(index.ge(-length)), index + length, index);
}

// torch_npu writes `None` as an empty tensor of self's dtype, MindSpore as one with nine dimensions. An empty index
// would make the result empty, and then nothing is called; so an empty tensor among others is a None.
bool no_index(const Operand &index) {
    return !index.defined() || (index.numel() == 0 && (index.dim() == 1 || index.dim() == 9));
}

c10::List<std::optional<at::Tensor>> subscripts(const Operands &indices) {
    c10::List<std::optional<at::Tensor>> list;
    list.reserve(indices.size());
    for (const Operand &index : indices) {
        const bool none = no_index(index);
        // ATen's short ways to fill at a mask want it to be bool.
        if (none)
            list.push_back(std::optional<at::Tensor>());
        else
            list.push_back(index.scalar_type() == at::kByte ? index.to(at::kBool) : at::Tensor(index));
    }
    return list;
}

// All empty: an index_put at no place.
bool no_place(const Operands &indices) {
    for (const Operand &index : indices)
        if (index.numel() != 0) return false;
    return true;
}

void check_subscripted(const Operand &self, const Operands &indices) {
    require(indices);
    int64_t used = 0;
    for (const Operand &index : indices) {
        if (index.defined() && index.numel() != 0) dtype(index, kIndex | at::kBool);
        const bool mask = index.defined() && index.scalar_type() == at::kBool;
        used += mask && index.numel() != 0 ? std::max<int64_t>(index.dim(), 1) : 1;
    }
    if (used == 0) fail(FaultKind::InvalidArgument, "parameter indices is empty: at least one subscript is needed");
    if (used > self.dim())
        fail(FaultKind::InvalidArgument, "parameter indices has {} subscripts, {} has {} dimensions", used,
             self.parameter(), self.dim());
}

// The shape of self[indices] by NumPy's rules: the subscripts' broadcast shape stands where they stand, or in front
// if a None lies between them. Unknown where one of them is a mask.
std::optional<at::DimVector> subscripted_shape(const Operand &self, const Operands &indices) {
    at::DimVector common, kept, before;
    int64_t dim = 0, blocks = 0;
    bool masked = false, inside = false;
    for (const Operand &index : indices) {
        if (no_index(index)) {
            kept.push_back(self.size(dim++));
            inside = false;
            continue;
        }
        if (!inside && blocks++ == 0) before = kept;
        inside = true;
        if (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte) {
            for (int64_t i = 0; i < index.dim(); ++i, ++dim)
                if (index.size(i) != self.size(dim))
                    fail(FaultKind::InvalidArgument, "parameter {} has the mask {}, which does not fit {} of {}",
                         index.parameter(), describe(index), describe(self), self.parameter());
            dim += index.dim() == 0;
            masked = true;
            continue;
        }
        if (self.size(dim++) == 0 && index.numel() > 0)
            fail(FaultKind::InvalidArgument, "parameter {} is {}: there is nothing to index", self.parameter(),
                 describe(self));
        try {
            common = at::infer_size_dimvector(common, index.sizes());
        } catch (const c10::Error &) {
            fail(FaultKind::InvalidArgument, "parameter {} has {}, which does not broadcast with the others",
                 index.parameter(), describe(index));
        }
    }
    if (masked) return std::nullopt;
    for (; dim < self.dim(); ++dim) kept.push_back(self.size(dim));
    if (blocks > 1) before.clear();
    at::DimVector sizes = before;
    sizes.append(common.begin(), common.end());
    sizes.append(kept.begin() + static_cast<std::ptrdiff_t>(before.size()), kept.end());
    return sizes;
}

void check_read(const Operand &out, const Operand &self, const Operands &indices) {
    dtype(self, kAll);
    same_dtype(out, self);
    check_subscripted(self, indices);
    if (out.numel() == 0) return;  // an empty index looks like None
    if (const auto sizes = subscripted_shape(self, indices)) shape(out, *sizes);
}

// Each subscript that is an index counts from either end of its dimension.
void read_subscripted(at::Tensor &out, const at::Tensor &self, const Operands &indices) {
    c10::List<std::optional<at::Tensor>> list = subscripts(indices);
    if (bugs_hidden()) {
        int64_t dim = 0;
        for (size_t i = 0; i < list.size(); ++i) {
            const std::optional<at::Tensor> index = list.get(i);
            if (index && index->scalar_type() == at::kBool) {
                dim += std::max<int64_t>(index->dim(), 1);
                continue;
            }
            if (index) list.set(i, index->clamp(-self.size(dim), self.size(dim) - 1));
            ++dim;
        }
    }
    noticing("out of bounds", kAnyMemory, [&] { at::index_out(out, self, list); });
}

// How many places a mask has is found by the kernel; what lies behind its dimensions is known.
void check_fits_behind(const Operand &values, const Operand &self, const Operand &mask) {
    const at::IntArrayRef behind = self.sizes().slice(static_cast<size_t>(mask.dim()));
    const size_t rank = values.sizes().size(), shared = std::min(rank, behind.size());
    if (rank > behind.size() + 1 || !at::is_expandable_to(values.sizes().slice(rank - shared), behind))
        fail(FaultKind::InvalidArgument, "parameter {} is {}, which does not fit the places of the mask {} in {}",
             values.parameter(), describe(values), describe(mask), describe(self));
}

void check_write(const Operand &self, const Operands &indices, const Operand &values) {
    dtype(self, kAll);
    same_dtype(values, self);
    check_subscripted(self, indices);
    if (no_place(indices)) return;
    const auto sizes = subscripted_shape(self, indices);
    if (sizes && !at::is_expandable_to(values.sizes(), *sizes))
        fail(FaultKind::InvalidArgument, "parameter {} is {}, which does not broadcast to the {} places of indices",
             values.parameter(), describe(values), c10::multiply_integers(*sizes));
    if (!sizes && indices.size() == 1) check_fits_behind(values, self, indices.front());
}

// `index` selects along `dim` of `self`: the same rank, no longer than self elsewhere.
void check_along(const Operand &index, const Operand &self, int64_t dim, const char *why) {
    dtype(index, kIndex);
    dimension(dim, self);
    if (std::max<int64_t>(index.dim(), 1) != std::max<int64_t>(self.dim(), 1))
        fail(FaultKind::InvalidArgument, "parameter {} has {} dimensions, expected {}, as many as {}",
             index.parameter(), index.dim(), self.dim(), self.parameter());
    if (index.dim() == 0 || self.dim() == 0 || index.numel() == 0) return;
    if (self.size(dim) == 0)
        fail(FaultKind::InvalidArgument, "parameter {} is {}: there is nothing to index along dim {}", self.parameter(),
             describe(self), dim);
    for (int64_t i = 0; i < self.dim(); ++i)
        if (i != at::maybe_wrap_dim(dim, self.dim()) && index.size(i) > self.size(i))
            fail(FaultKind::InvalidArgument, "parameter {} is {}, larger than {} {} outside dim {}: {}",
                 index.parameter(), describe(index), self.parameter(), describe(self), dim, why);
}

void check_gather(const Operand &out, const Operand &self, int64_t dim, const Operand &index) {
    dtype(self, kReals | at::kBool | kUnsigned);
    same_dtype(out, self);
    check_along(index, self, dim, "nothing to gather from");
    same_shape(out, index);
}

void check_scatter(const Operand &out, const Operand &self, int64_t dim, const Operand &index, const Operand &src) {
    dtype(self, kAll);
    same_dtype(out, self);
    same_dtype(src, self);
    same_shape(out, self);
    check_along(index, self, dim, "nowhere to scatter to");
    if (index.dim() == 0 || index.numel() == 0) return;
    if (src.dim() != index.dim())
        fail(FaultKind::InvalidArgument, "parameter src has {} dimensions, expected {}, as many as index", src.dim(),
             index.dim());
    for (int64_t i = 0; i < index.dim(); ++i)
        if (index.size(i) > src.size(i))
            fail(FaultKind::InvalidArgument, "parameter index is {}, larger than src {}", describe(index),
                 describe(src));
}

void check_scatter(const Operand &out, const Operand &self, int64_t dim, const Operand &index,
                   const ScalarArgument &value) {
    require(value);
    dtype(self, kAll);
    same_dtype(out, self);
    same_shape(out, self);
    check_along(index, self, dim, "nowhere to scatter to");
}

// Values meeting at one place are added in float32 and rounded once, as the hardware's sorted accumulation does.
// Half precision therefore works on a float32 copy of the target.
template <class Add>
void accumulate(at::Tensor &out, const at::Tensor &self, Add add) {
    if (!at::isReducedFloatingType(out.scalar_type())) {
        if (!out.is_alias_of(self)) out.copy_(self);
        add(out);
        return;
    }
    at::Tensor exact = self.to(at::kFloat);
    add(exact);
    out.copy_(exact);
}

at::Tensor as_of(const at::Tensor &source, const at::Tensor &target) { return source.to(target.scalar_type()); }

enum class Reduce { Replace, Add, Multiply, Maximum, Minimum, Mean };

// Scatter and ScatterValue know the first three, ScatterReduce all but the first.
Reduce reduction(int64_t reduce, Reduce last) {
    if (reduce < 0 || reduce > static_cast<int64_t>(last))
        fail(FaultKind::InvalidArgument,
             "parameter reduce is {}, allowed is [0, {}] (0 replace, 1 add, 2 multiply, 3 maximum, 4 minimum, 5 mean)",
             reduce, static_cast<int>(last));
    return static_cast<Reduce>(reduce);
}

// All that the first phase lets pass on a 910B, whose torch_npu does the rest on the CPU (ops-nn: aclnn_scatter.cpp).
void check_adds_floats(const Operand &self, int64_t reduce, bool include_self) {
    const bool adds = reduction(reduce, Reduce::Mean) == Reduce::Add && include_self;
    on_chip(!chip_is(Generation::k910B) || (adds && self.scalar_type() == at::kFloat),
            "scatter_reduce only supports dtype=float32, reduce=sum, include_self=true: parameter {} is {}, reduce {}, "
            "includeSelf {}",
            self.parameter(), describe(self), reduce, include_self);
}

std::string_view torch_name(Reduce reduce) {
    switch (reduce) {
        case Reduce::Add:
            return "sum";
        case Reduce::Multiply:
            return "prod";
        case Reduce::Maximum:
            return "amax";
        case Reduce::Minimum:
            return "amin";
        default:
            return "mean";
    }
}

void scatter(at::Tensor &out, const at::Tensor &self, int64_t dim, const at::Tensor &index, const at::Tensor &src,
             int64_t reduce) {
    const at::Tensor places = wide(index);
    if (reduce == static_cast<int64_t>(Reduce::Replace)) {
        out.copy_(self);
        out.scatter_(dim, places, src);
        return;
    }
    const auto how = reduce == static_cast<int64_t>(Reduce::Add) ? Reduce::Add : Reduce::Multiply;
    accumulate(out, self, [&](at::Tensor &to) {
        to.scatter_reduce_(dim, places, as_of(src, to), torch_name(how), true);  // ATen deprecates scatter_ with a name
    });
}

void scatter(at::Tensor &out, const at::Tensor &self, int64_t dim, const at::Tensor &index, const at::Scalar &value,
             int64_t reduce) {
    const at::Tensor places = wide(index);
    if (reduce == static_cast<int64_t>(Reduce::Replace)) {
        out.copy_(self);
        out.scatter_(dim, places, value);
        return;
    }
    const std::string_view name = reduce == static_cast<int64_t>(Reduce::Add) ? "add" : "multiply";
    accumulate(out, self, [&](at::Tensor &to) { to.scatter_(dim, places, value, name); });
}

void scatter_reduce(at::Tensor &out, const at::Tensor &self, int64_t dim, const at::Tensor &index,
                    const at::Tensor &src, int64_t reduce, bool include_self) {
    const Reduce how = static_cast<Reduce>(reduce);
    if (how == Reduce::Replace) return scatter(out, self, dim, index, src, reduce);
    accumulate(out, self, [&](at::Tensor &to) {
        to.scatter_reduce_(dim, wide(index), as_of(src, to), torch_name(how), include_self);
    });
}

void put(at::Tensor &self, const Operands &indices, const at::Tensor &values, bool add, bool unsafe) {
    if (no_place(indices)) return;
    if (add)
        accumulate(self, self, [&](at::Tensor &to) {
            at::_index_put_impl_(to, subscripts(indices), as_of(values, to), true, unsafe);
        });
    else
        at::_index_put_impl_(self, subscripts(indices), values, false, unsafe);
}

// A number as the row that CANN takes it for: ATen wants self and source to have as many dimensions.
at::Tensor row(const at::Tensor &tensor) { return tensor.dim() == 0 ? tensor.view({1}) : tensor; }

void index_copy(at::Tensor &to, int64_t dim, const at::Tensor &index, const at::Tensor &source) {
    if (to.numel() != 0) row(to).index_copy_(dim, row(wide(index)), row(source));
}

void index_add(at::Tensor &out, const at::Tensor &self, int64_t dim, const at::Tensor &index, const at::Tensor &source,
               const at::Scalar &alpha) {
    accumulate(out, self, [&](at::Tensor &to) {
        if (to.numel() != 0) row(to).index_add_(dim, row(index), row(as_of(source, to)), alpha);
    });
}

void check_select(const Operand &out, const Operand &self, int64_t dim, const Operand &index) {
    dtype(self, kAll | kUnsigned);
    same_dtype(out, self);
    dtype(index, kIndex);
    rank(index, {0, 1});
    dimension(dim, self);
    if (self.dim() == 0 && index.numel() > 1)
        fail(FaultKind::InvalidArgument, "parameter index is {}, expected at most one index into a number",
             describe(index));
    at::DimVector sizes(self.sizes().begin(), self.sizes().end());
    if (self.dim() > 0) sizes[static_cast<size_t>(at::maybe_wrap_dim(dim, self.dim()))] = index.numel();
    shape(out, sizes);
}

// Slices of `source` go to `self` along `dim`.
void check_slices(const Operand &out, const Operand &self, int64_t dim, const Operand &index, const Operand &source) {
    dtype(self, kAll);
    same_dtype(out, self);
    same_dtype(source, self);
    same_shape(out, self);
    dtype(index, kIndex);
    rank(index, {0, 1});
    dimension(dim, self);
    at::DimVector sizes(self.sizes().begin(), self.sizes().end());
    if (self.dim() > 0) sizes[static_cast<size_t>(at::maybe_wrap_dim(dim, self.dim()))] = index.numel();
    // One number is a slice of a row or of a number (ops-nn: aclnn_index_add.cpp, aclnn_index_copy.cpp).
    if (self.dim() < 2 && source.dim() == 0) {
        if (index.numel() != 1)
            fail(FaultKind::InvalidArgument,
                 "When source is scalar, index should have one element: parameter index has {} elements",
                 index.numel());
        return;
    }
    if (self.dim() == 0) sizes.push_back(index.numel());
    shape(source, sizes);
}

void check_fill(const Operand &out, const Operand &self, int64_t dim) {
    dtype(self, kReals | at::kBool);
    same_dtype(out, self);
    same_shape(out, self);
    dimension(dim, self);
}

// CANN knows these indices beforehand (ops-nn: aclnn_index_fill_tensor.cpp).
void check_fill_at(const Operand &self, int64_t dim, const Ints &index) {
    if (self.numel() == 0) return;
    const int64_t size = self.dim() == 0 ? 1 : self.size(dim);
    for (const int64_t place : index)
        if (place < -size || place >= size)
            fail(FaultKind::InvalidArgument,
                 "parameter index has the value {}, which is out of range: it should be smaller than {}", place, size);
}

void fill_at(at::Tensor &out, int64_t dim, const at::Tensor &index, const at::Scalar &value) {
    if (out.numel() != 0) out.index_fill_(dim, index, value);
}

void check_take(const Operand &out, const Operand &self, const Operand &index) {
    dtype(self, kAll | kUnsigned);
    same_dtype(out, self);
    dtype(index, kIndex);
    same_shape(out, index);
    if (self.numel() == 0 && index.numel() != 0)
        fail(FaultKind::InvalidArgument, "IndexError: take(): tried to take from an empty tensor: parameter self is {}",
             describe(self));
}

void check_put(const Operand &self, const Operand &index, const Operand &source) {
    dtype(self, kAll);
    dtype(index, kIndex);
    same_dtype(source, self);
    if (source.numel() != index.numel())
        fail(FaultKind::InvalidArgument, "parameter source has {} elements, expected {}, as many as index",
             source.numel(), index.numel());
    if (self.numel() == 0 && index.numel() != 0)
        fail(FaultKind::InvalidArgument, "Can not put elements into an empty tensor: parameter {} is {}",
             self.parameter(), describe(self));
}

// The result holds at most as many elements as the broadcast of both has.
void check_mask_fits(const Operand &self, const Operand &mask, const Operand &out) {
    dtype(mask, {at::kBool, at::kByte});
    int64_t most = 1;
    try {
        for (const int64_t size : at::infer_size_dimvector(self.sizes(), mask.sizes())) most *= size;
    } catch (const c10::Error &) {
        fail(FaultKind::InvalidArgument, "parameter mask is {}, which does not broadcast with self {}", describe(mask),
             describe(self));
    }
    if (out.numel() < most)
        fail(FaultKind::InvalidArgument, "parameter out has {} elements, up to {} are needed", out.numel(), most);
}

void check_mask(const Operand &self, const Operand &mask) {
    dtype(mask, {at::kBool, at::kByte});
    expands(self, mask);
}

void check_masked_fill(const Operand &self, const Operand &mask, const Operand &value) {
    check_mask(self, mask);
    if (value.numel() != 1)
        fail(FaultKind::InvalidArgument, "parameter value has {} elements, allowed is 1", value.numel());
}

// updates of shape [batch, ..., e, ...] replace e places along `axis` of data from indices[batch] on.
void check_update_rows(const Operand &data, const Operand &indices, const Operand &updates, int64_t axis) {
    dtype(data, {at::kChar, at::kByte, at::kHalf, at::kFloat, at::kInt, at::kBFloat16});
    same_dtype(updates, data);
    dtype(indices, kIndex);
    rank(indices, {1, 2});
    matrices(data);
    dimension(axis, data);
    if (updates.dim() != data.dim())
        fail(FaultKind::InvalidArgument, "parameter updates has {} dimensions, expected {}, as many as data",
             updates.dim(), data.dim());
    const int64_t along = at::maybe_wrap_dim(axis, data.dim());
    if (along == 0) fail(FaultKind::InvalidArgument, "parameter axis is {}: the first dimension is the batch's", axis);
    for (int64_t i = indices.dim(); i < data.dim(); ++i)
        if (i != along && updates.size(i) != data.size(i))
            fail(FaultKind::InvalidArgument, "parameter updates is {}, data is {}: they differ outside axis {}",
                 describe(updates), describe(data), axis);
    if (updates.size(along) > data.size(along) || indices.size(0) != updates.size(0))
        fail(FaultKind::InvalidArgument, "parameter updates is {}, which does not fit data {} at indices {}",
             describe(updates), describe(data), describe(indices));
}

// With one index a row, row i starts at indices[i]; with a pair, at (batch, place).
void update_rows(at::Tensor &data, const at::Tensor &indices, const at::Tensor &updates, int64_t axis) {
    const at::Tensor places = indices.to(at::kLong).contiguous();
    const int64_t width = indices.dim() == 2 ? indices.size(1) : 1;
    const int64_t *place = places.const_data_ptr<int64_t>();
    const int64_t along = at::maybe_wrap_dim(axis, data.dim());
    for (int64_t row = 0; row < indices.size(0); ++row, place += width) {
        const int64_t batch = width == 2 ? place[0] : row, start = place[width - 1];
        TORCH_CHECK_INDEX(
            batch >= 0 && batch < data.size(0) && start >= 0 && start + updates.size(along) <= data.size(along),
            "index ", start, " is out of bounds for axis ", axis, " of size ", data.size(along));
        data[batch].narrow(along - 1, start, updates.size(along)).copy_(updates[row]);
    }
}

// indices of shape [..., k] hold places in the first k dimensions of the variable.
void check_update_places(const Operand &variable, const Operand &indices, const Operand &updates) {
    dtype(variable, kNative | kIntsAndBool);
    same_dtype(updates, variable);
    dtype(indices, kIndex);
    if (indices.dim() < 1 || indices.size(-1) > variable.dim())
        fail(FaultKind::InvalidArgument, "parameter indices is {}: its last dimension counts at most the {} of varRef",
             describe(indices), variable.dim());
    at::DimVector sizes(indices.sizes().begin(), indices.sizes().end() - 1);
    for (int64_t i = indices.size(-1); i < variable.dim(); ++i) sizes.push_back(variable.size(i));
    shape(updates, sizes);
}

void update_places(at::Tensor &variable, const at::Tensor &indices, const at::Tensor &updates) {
    c10::List<std::optional<at::Tensor>> list;
    for (int64_t i = 0; i < indices.size(-1); ++i) list.push_back(wide(indices).select(-1, i));
    variable.index_put_(list, updates);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnIndex, check_read(out, self, indices), if (out.numel() != 0) read_subscripted(out, self, indices))
OP(aclnnIndexPutImpl, check_write(selfRef, indices, values), put(selfRef, indices, values, accumulate, unsafe))
// CANN starts no kernel for an empty index (ops-nn: aclnn_index_select.cpp).
OP(aclnnIndexSelect, check_select(out, self, dim, index),
   if (index.numel() != 0) reading(index, 0, length(self, dim), [&, to = moved(out)](const at::Tensor &at) mutable {
       at::index_select_out(to, moved(self), dim, at);
   }))
OP(aclnnIndexAdd, check_slices(out, self, dim, index, source);
   require(alpha), index_add(out, self, dim, index, source, alpha))
// mode only chooses between two algorithms of the hardware.
OP(aclnnIndexAddV2, check_slices(out, self, dim, index, source);
   require(alpha), index_add(out, self, dim, index, source, alpha))
OP(aclnnIndexCopy, check_slices(outRef, selfRef, dim, index, source),
   (outRef.copy_(selfRef), index_copy(outRef, dim, index, source)))
OP(aclnnInplaceIndexCopy, check_slices(selfRef, selfRef, dim, index, source), index_copy(selfRef, dim, index, source))
OP(aclnnIndexFill, check_fill(out, self, dim); dtype(index, kIndex); rank(index, {0, 1});
   require(value), (out.copy_(self), fill_at(out, dim, wide(index), value.as(out.scalar_type()))))
OP(aclnnInplaceIndexFill, check_fill(selfRef, selfRef, dim); dtype(index, kIndex); rank(index, {0, 1});
   require(value), fill_at(selfRef, dim, wide(index), value.as(selfRef.scalar_type())))
OP(aclnnIndexFillTensor, check_fill(out, self, dim); check_fill_at(self, dim, index);
   require(value),
   (out.copy_(self), fill_at(out, dim, at::tensor(at::IntArrayRef(index)), value.as(out.scalar_type()))))
OP(aclnnInplaceIndexFillTensor, check_fill(selfRef, selfRef, dim); check_fill_at(selfRef, dim, index);
   require(value), fill_at(selfRef, dim, at::tensor(at::IntArrayRef(index)), value.as(selfRef.scalar_type())))

// Indices count from the end, too (ops-nn: aclnnGather.md), which ATen's do not.
OP(aclnnGather, check_gather(out, self, dim, index),
   reading(index, -length(self, dim), length(self, dim), [&, to = moved(out)](const at::Tensor &at) mutable {
       at::gather_out(to, moved(self), dim, from_the_start(wide(at), length(self, dim)));
   }))
OP(aclnnScatter, check_scatter(out, self, dim, index, src);
   reduction(reduce, Reduce::Multiply), scatter(out, self, dim, index, src, reduce))
OP(aclnnInplaceScatter, check_scatter(selfRef, selfRef, dim, index, src);
   reduction(reduce, Reduce::Multiply), scatter(selfRef, selfRef, dim, index, src, reduce))
OP(aclnnScatterValue, check_scatter(out, self, dim, index, value);
   reduction(reduce, Reduce::Multiply), scatter(out, self, dim, index, value.as(self.scalar_type()), reduce))
OP(aclnnInplaceScatterValue, check_scatter(selfRef, selfRef, dim, index, value);
   reduction(reduce, Reduce::Multiply), scatter(selfRef, selfRef, dim, index, value.as(selfRef.scalar_type()), reduce))
OP(aclnnScatterAdd, check_scatter(out, self, dim, index, src),
   scatter(out, self, dim, index, src, static_cast<int64_t>(Reduce::Add)))
OP(aclnnScatterReduce, check_scatter(out, self, dim, index, src);
   check_adds_floats(self, reduce, includeSelf), scatter_reduce(out, self, dim, index, src, reduce, includeSelf))
OP(aclnnInplaceScatterReduce, check_scatter(selfRef, selfRef, dim, index, src);
   check_adds_floats(selfRef, reduce, includeSelf),
   scatter_reduce(selfRef, selfRef, dim, index, src, reduce, includeSelf))
OP(aclnnInplaceScatterUpdate, check_update_rows(data, indices, updates, axis),
   update_rows(data, indices, updates, axis))
OP(aclnnScatterNdUpdate, check_update_places(varRef, indices, updates), update_places(varRef, indices, updates))
OP(aclnnTake, check_take(out, self, index),
   reading(index, -self.numel(), self.numel(),
           [&, to = moved(out)](const at::Tensor &at) mutable { at::take_out(to, moved(self), wide(at)); }))
OP(aclnnInplacePut, check_put(selfRef, index, source), selfRef.put_(wide(index), source, accumulate))

OP(aclnnMaskedSelect, dtype(self, kReals | at::kBool); same_dtype(out, self); check_mask_fits(self, mask, out);
   data_dependent(out); found_along({{&out}}), out.publish(at::masked_select(self, mask.to(at::kBool))))
OP(aclnnInplaceMaskedFillScalar, check_mask(selfRef, mask);
   require(value), selfRef.masked_fill_(mask.to(at::kBool), value.as(selfRef.scalar_type())))
OP(aclnnInplaceMaskedFillTensor, check_masked_fill(selfRef, mask, value),
   selfRef.masked_fill_(mask.to(at::kBool), value.reshape({}).to(selfRef.scalar_type())))
OP(aclnnInplaceMaskedScatter, check_mask(selfRef, mask);
   same_dtype(source, selfRef), selfRef.masked_scatter_(mask.to(at::kBool), source))
