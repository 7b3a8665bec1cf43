// Tensors put together, taken apart and rearranged: cat, stack, split, flip, roll, repeat, unfold.
#include <ATen/Parallel.h>
#include <ATen/WrapDimUtils.h>

#include <algorithm>

#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"

namespace vnpu::opapi {
namespace {

// torch's rule from before zero-size tensors had shapes: a [0] goes with anything.
bool skipped(const at::Tensor &tensor) { return tensor.dim() == 1 && tensor.numel() == 0; }

void check_concatenate(const Operands &tensors, int64_t dim, const Operand &out) {
    require(tensors);
    at::DimVector sizes;
    const Operand *first = nullptr;
    int64_t along = 0;
    for (const Operand &tensor : tensors) {
        dtype(tensor, kAll);
        promotes(out, {&tensor});
        if (skipped(tensor)) continue;
        if (tensor.dim() == 0) fail(FaultKind::InvalidArgument, "parameter tensors holds a tensor of 0 dimensions");
        if (first == nullptr) {
            first = &tensor;
            dimension(dim, tensor);
            along = at::maybe_wrap_dim(dim, tensor.dim());
            sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
            continue;
        }
        bool fits = tensor.dim() == first->dim();
        for (int64_t i = 0; fits && i < tensor.dim(); ++i) fits = i == along || tensor.size(i) == first->size(i);
        if (!fits)
            fail(FaultKind::InvalidArgument, "parameter tensors holds {} and {}, which differ outside dim {}",
                 describe(*first), describe(tensor), dim);
        sizes[static_cast<size_t>(along)] += tensor.size(along);
    }
    shape(out, first == nullptr ? at::IntArrayRef{0} : at::IntArrayRef(sizes));
}

void check_stack(const Operands &tensors, int64_t dim, const Operand &out) {
    require(tensors);
    if (tensors.empty()) fail(FaultKind::InvalidArgument, "parameter tensors is empty");
    const int64_t rank = tensors[0].dim() + 1;
    if (dim < -rank || dim >= rank)
        fail(FaultKind::InvalidArgument, "parameter dim is {}, allowed is [{}, {}]", dim, -rank, rank - 1);
    for (const Operand &tensor : tensors) {
        dtype(tensor, kAll | kUnsigned);
        promotable(tensor, tensors[0]);
        promotes(out, {&tensor});
        shape(tensor, tensors[0].sizes());
    }
    at::DimVector sizes(tensors[0].sizes().begin(), tensors[0].sizes().end());
    sizes.insert(sizes.begin() + at::maybe_wrap_dim(dim, rank), static_cast<int64_t>(tensors.size()));
    shape(out, sizes);
}

// Each tensor cut into chunks along dim, padded with zeros to equal ones; the n-th row of out has the n-th chunk of
// all.
void check_chunk_cat(const Operands &tensors, int64_t dim, int64_t chunks, const Operand &out) {
    require(tensors);
    if (tensors.empty() || chunks < 1)
        fail(FaultKind::InvalidArgument, "parameters tensors and numChunks are {} tensors and {}, at least 1 of each",
             tensors.size(), chunks);
    at::DimVector sizes;
    int64_t row = 0;
    for (const Operand &tensor : tensors) {
        dtype(tensor, kAll);
        same_dtype(tensor, tensors[0]);
        dimension(dim, tensor);
        if (tensor.dim() == 0 || tensor.numel() == 0)
            fail(FaultKind::InvalidArgument, "parameter tensors holds {}, which has nothing to cut", describe(tensor));
        const auto along = static_cast<size_t>(at::maybe_wrap_dim(dim, tensor.dim()));
        const at::IntArrayRef before = tensor.sizes().slice(0, along);
        if (&tensor == &tensors[0]) sizes.assign(before.begin(), before.end());
        if (before != at::IntArrayRef(sizes))
            fail(FaultKind::InvalidArgument, "parameter tensors holds {} and {}, which differ before dim {}",
                 describe(tensors[0]), describe(tensor), dim);
        const int64_t inner = tensor.numel() / c10::multiply_integers(before) / tensor.size(dim);
        row += (tensor.size(dim) + chunks - 1) / chunks * inner;
    }
    sizes.push_back(chunks);
    sizes.push_back(row);
    shape(out, sizes);
}

void check_split(const Operand &self, const Ints &lengths, int64_t dim, const Operands &out) {
    dimension(dim, self);
    if (self.dim() == 0) fail(FaultKind::InvalidArgument, "parameter self has 0 dimensions");
    const int64_t along = at::maybe_wrap_dim(dim, self.dim());
    if (lengths.size() != out.size())
        fail(FaultKind::InvalidArgument, "parameter splitSize has {} lengths, out has {} tensors", lengths.size(),
             out.size());
    at::DimVector sizes(self.sizes().begin(), self.sizes().end());
    int64_t sum = 0;
    for (size_t i = 0; i < out.size(); ++i) {
        sum += sizes[static_cast<size_t>(along)] = lengths[i];
        shape(out[i], sizes);
        promotes(out[i], {&self});
    }
    if (sum > self.size(along))
        fail(FaultKind::InvalidArgument, "parameter splitSize adds up to {}, dim {} has {}", sum, dim,
             self.size(along));
}

void split(const at::Tensor &self, const Ints &lengths, int64_t dim, Operands &out) {
    int64_t start = 0;
    for (size_t i = 0; i < out.size(); start += lengths[i++]) out[i].copy_(self.narrow(dim, start, lengths[i]));
}

void check_flips_once(const Operand &out, const Operand &self, const Ints &dims) {
    dtype(self, kAll);
    same_dtype(out, self);
    same_shape(out, self);
    for (const int64_t dim : dims) dimension(dim, self);
    std::vector<int64_t> places;
    for (const int64_t dim : dims) places.push_back(at::maybe_wrap_dim(dim, self.dim()));
    std::ranges::sort(places);
    if (std::ranges::adjacent_find(places) != places.end())
        fail(FaultKind::InvalidArgument, "parameter dims is {}, which names a dimension twice", show(dims));
}

void check_roll(const Operand &out, const Operand &self, const Ints &shifts, const Ints &dims) {
    dtype(self, kAll | kUnsigned);
    same_dtype(out, self);
    same_shape(out, self);
    // (ops-math: aclnn_roll.cpp, CheckArraySize and what follows it)
    if (dims.empty() && shifts.size() != 1)
        fail(FaultKind::InvalidArgument,
             "The size of shifts must be 1 if the size of dims is 0: parameter shifts has {} values", shifts.size());
    if (!dims.empty() && shifts.size() != dims.size())
        fail(FaultKind::InvalidArgument, "parameter shifts has {} values, dims has {}", shifts.size(), dims.size());
    if (self.numel() == 0) return;
    if (self.dim() == 0 && !dims.empty())
        fail(FaultKind::InvalidArgument, "parameter dims has {} values, allowed are none where x has no dimensions",
             dims.size());
    for (const int64_t dim : dims) dimension(dim, self);
}

void check_repeat_to(const Operand &out, const Operand &self, const Ints &repeats) {
    dtype(self, kAll | kUnsigned);
    same_dtype(out, self);
    const auto rank = static_cast<int64_t>(repeats.size());
    if (rank < self.dim())
        fail(FaultKind::InvalidArgument, "parameter repeats has {} values, self has {} dimensions", rank, self.dim());
    // (ops-math: aclnn_repeat.cpp)
    on_chip(rank <= 8, "repeats size should not be larger than 8: parameter repeats has {} values", rank);
    at::DimVector sizes(repeats.begin(), repeats.end());
    for (int64_t i = 0; i < rank; ++i) {
        if (repeats[static_cast<size_t>(i)] < 0)
            fail(FaultKind::InvalidArgument, "parameter repeats holds {}", repeats[static_cast<size_t>(i)]);
        if (const int64_t own = i - (rank - self.dim()); own >= 0) sizes[static_cast<size_t>(i)] *= self.size(own);
    }
    shape(out, sizes);
}

// Copies self into a view of out that shows each copy once: no temporary.
void repeat(at::Tensor &out, const at::Tensor &self) {
    if (out.numel() == 0) return;
    const int64_t leading = out.dim() - self.dim();
    at::Tensor copies = out, source = self;
    for (int64_t i = 0; i < leading; ++i) source = source.unsqueeze(0);
    for (int64_t i = 0; i < out.dim(); ++i) copies = copies.unfold(i, source.size(i), source.size(i));
    copies.copy_(source.expand_as(copies));
}

void check_repeat_each(const Operand &out, const Operand &self, const Operand &repeats, int64_t output_size) {
    dtype(self, kNative | kIntsAndBool);
    same_dtype(out, self);
    dtype(repeats, {at::kInt, at::kLong});
    rank(repeats, {0, 1});
    if (repeats.numel() != 1 && repeats.numel() != self.numel())
        fail(FaultKind::InvalidArgument, "parameter repeats has {} elements, expected 1 or {}", repeats.numel(),
             self.numel());
    shape(out, {output_size});
}

void check_repeat_along(const Operand &out, const Operand &self, int64_t dim, int64_t length) {
    dtype(self, kNative | kIntsAndBool);
    same_dtype(out, self);
    dimension(dim, self);
    at::DimVector sizes(self.sizes().begin(), self.sizes().end());
    if (self.dim() == 0) sizes.push_back(1);
    sizes[static_cast<size_t>(at::maybe_wrap_dim(dim, std::max<int64_t>(self.dim(), 1)))] = length;
    shape(out, sizes);
}

void check_repeat_by(const Operand &out, const Operand &self, const Operand &repeats, int64_t dim, int64_t length) {
    dtype(repeats, {at::kInt, at::kLong});
    rank(repeats, {0, 1});
    check_repeat_along(out, self, dim, length);
    const int64_t along = self.dim() == 0 ? 1 : self.size(dim);
    if (repeats.numel() != 1 && repeats.numel() != along)
        fail(FaultKind::InvalidArgument, "parameter repeats has {} elements, expected 1 or {}", repeats.numel(), along);
}

at::Tensor each(const at::Tensor &self, const at::Tensor &repeats, int64_t dim) {
    const at::Tensor row = self.dim() == 0 ? self.view({1}) : self;
    return at::repeat_interleave(row, repeats.to(at::kLong), dim);
}

void check_shuffle(const Operand &out, const Operand &self, int64_t groups) {
    dtype(self, kFloats | kIntsAndBool | kComplex);
    same_dtype(out, self);
    same_shape(out, self);
    if (self.dim() < 3 || groups < 1 || self.size(1) % groups != 0)
        fail(FaultKind::InvalidArgument, "parameter groups is {}, self is {}: dim 1 is cut into groups of equal size",
             groups, describe(self));
}

void check_unfold(const Operand &grad_in, const Operand &grad_out, const Ints &sizes, int64_t dim, int64_t size,
                  int64_t step) {
    dtype(grad_out, kNative);
    same_dtype(grad_in, grad_out);
    shape(grad_in, sizes);
    dimension(dim, grad_in);
    fewest_dimensions(grad_in, 1);  // (ops-math: aclnn_unfold_grad.cpp)
    const int64_t length = sizes.empty() ? 1 : grad_in.size(dim);
    if (size < 0 || size > length || step < 1)
        fail(FaultKind::InvalidArgument, "parameters size and step are {} and {}, dim {} has {}", size, step, dim,
             length);
    at::DimVector windows(sizes.begin(), sizes.end());
    if (!sizes.empty())
        windows[static_cast<size_t>(at::maybe_wrap_dim(dim, grad_in.dim()))] = (length - size) / step + 1;
    windows.push_back(size);
    shape(grad_out, windows);
}

void check_sum_repeats(const Operand &out, const Operand &grad, const Operand &repeats, int64_t axis) {
    dtype(grad, kNative);
    same_dtype(out, grad);
    dtype(repeats, {at::kInt, at::kLong});
    rank(repeats, {0, 1});
    dimension(axis, grad);
    if (out.dim() != grad.dim())
        fail(FaultKind::InvalidArgument, "parameter out is {}, expected {} dimensions", describe(out), grad.dim());
    if (repeats.numel() != 1 && repeats.numel() != out.size(axis))
        fail(FaultKind::InvalidArgument,
             "parameter repeats has {} values, expected 1 or {}, the size of out at axis {}", repeats.numel(),
             out.size(axis), axis);
}

// The gradient of repeat_interleave: what came from one element is added up, in fp32.
void sum_repeats(at::Tensor &out, const at::Tensor &grad, const at::Tensor &repeats, int64_t axis) {
    const at::Tensor counts = repeats.reshape({-1}).to(at::kLong).expand({out.size(axis)}).contiguous();
    const at::Tensor source = at::repeat_interleave(counts), wide = grad.to(at::kFloat);
    out.copy_(at::zeros(out.sizes(), wide.options()).index_add_(axis, source, wide));
}

void check_reshape(const Operand &x, const Ints &perm, const Ints &shape_after, const Operand &out) {
    int64_t elements = 1;
    for (const int64_t size : shape_after) elements *= size;
    if (elements != x.numel() || out.numel() != x.numel())
        fail(FaultKind::InvalidArgument, "parameter shape has {} elements and out {}, expected {}", elements,
             out.numel(), x.numel());
    const size_t axes = perm.size();
    std::vector<bool> seen(axes);
    for (const int64_t axis : perm) {
        if (axis < 0 || axis >= static_cast<int64_t>(axes) || seen[static_cast<size_t>(axis)])
            fail(FaultKind::InvalidArgument, "parameter perm is no permutation of {} axes", axes);
        seen[static_cast<size_t>(axis)] = true;
    }
}

void check_as_many_axes(const Ints &perm, int64_t axes) {
    if (static_cast<int64_t>(perm.size()) != axes)
        fail(FaultKind::InvalidArgument, "parameter perm has {} axes, expected {}", perm.size(), axes);
}

// Row by row of the last dimension. ATen's flip has no form that writes into an output.
template <class Element>
void flip_rows(at::Tensor &out, const at::Tensor &self, const std::vector<bool> &flipped) {
    const int64_t last = self.dim() - 1, length = self.size(last), from_step = self.stride(last),
                  to_step = out.stride(last);
    const bool backwards = flipped[static_cast<size_t>(last)];
    const Element *from = static_cast<const Element *>(self.const_data_ptr());
    Element *to = static_cast<Element *>(out.mutable_data_ptr());
    at::parallel_for(0, self.numel() / length, at::internal::GRAIN_SIZE / length + 1, [&](int64_t row, int64_t end) {
        for (; row < end; ++row) {
            int64_t rest = row, read = 0, written = 0;
            for (int64_t dim = last - 1; dim >= 0; --dim) {
                const int64_t size = self.size(dim), i = rest % size;
                read += (flipped[static_cast<size_t>(dim)] ? size - 1 - i : i) * self.stride(dim);
                written += i * out.stride(dim);
                rest /= size;
            }
            const Element *source = from + read;
            Element *target = to + written;
            if (from_step == 1 && to_step == 1) {
                backwards ? std::reverse_copy(source, source + length, target) : std::copy_n(source, length, target);
            } else {
                const int64_t step = backwards ? -from_step : from_step;
                source += backwards ? (length - 1) * from_step : 0;
                for (int64_t i = 0; i < length; ++i) target[i * to_step] = source[i * step];
            }
        }
    });
}

void flip(at::Tensor &out, const at::Tensor &self, const Ints &dims) {
    if (self.numel() == 0) return;
    if (self.dim() == 0) return void(out.copy_(self));
    std::vector<bool> flipped(static_cast<size_t>(self.dim()));
    for (const int64_t dim : dims) flipped[static_cast<size_t>(at::maybe_wrap_dim(dim, self.dim()))] = true;
    switch (self.element_size()) {
        case 1:
            return flip_rows<uint8_t>(out, self, flipped);
        case 2:
            return flip_rows<uint16_t>(out, self, flipped);
        case 4:
            return flip_rows<uint32_t>(out, self, flipped);
        case 8:
            return flip_rows<uint64_t>(out, self, flipped);
        default:  // complex128
            return flip_rows<c10::complex<double>>(out, self, flipped);
    }
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnCat, check_concatenate(tensors, dim, out), at::cat_out(out, tensors.tensors(), dim))
OP(aclnnChunkCat, check_chunk_cat(tensors, dim, numChunks, out),
   at::_chunk_cat_out(out, tensors.tensors(), dim, numChunks))
OP(aclnnStack, check_stack(tensors, dim, out), at::stack_out(out, tensors.tensors(), dim))
OP(aclnnSplitWithSize, check_split(self, splitSize, dim, out), split(self, splitSize, dim, out))
OP(aclnnFlip, check_flips_once(out, self, dims), flip(out, self, dims))
// Through a temporary of the output's size: ATen has no kernel that writes into an output.
OP(aclnnRoll, check_roll(out, x, shifts, dims), if (x.numel() != 0) out.copy_(at::roll(x, shifts, dims)))
OP(aclnnRepeat, check_repeat_to(out, self, repeats), repeat(out, self))
OP(aclnnRepeatInterleave, check_repeat_each(out, self, repeats, outputSize),
   out.copy_(each(self.flatten(), repeats, 0)))
OP(aclnnRepeatInterleaveWithDim, check_repeat_by(out, self, repeats, dim, outputSize),
   out.copy_(each(self, repeats, dim)))
OP(aclnnRepeatInterleaveInt, dtype(self, kNative | kIntsAndBool); same_dtype(out, self);
   shape(out, {outputSize}), out.copy_(at::repeat_interleave(self.flatten(), repeats, 0)))
OP(aclnnRepeatInterleaveIntWithDim, check_repeat_along(out, self, dim, outputSize),
   out.copy_(at::repeat_interleave(self.dim() == 0 ? self.view({1}) : self, repeats, dim)))
OP(aclnnRepeatInterleaveTensor, dtype(repeats, {at::kInt, at::kLong}); rank(repeats, {1});
   shape(out, {outputSize}), out.copy_(at::repeat_interleave(repeats)))
OP(aclnnChannelShuffle, check_shuffle(out, self, groups), out.copy_(at::channel_shuffle(self, groups)))
OP(aclnnUnfoldGrad, check_unfold(gradIn, gradOut, inputSizes, dim, size, step),
   gradIn.copy_(at::unfold_backward(gradOut, inputSizes, dim, size, step)))
OP(aclnnRepeatInterleaveGrad, check_sum_repeats(out, yGrad, repeats, axis), sum_repeats(out, yGrad, repeats, axis))
OP(aclnnConfusionTranspose, check_as_many_axes(perm, transpose_first ? x.dim() : static_cast<int64_t>(shape.size()));
   check_reshape(x, perm, shape, out),
   out.copy_((transpose_first ? x.permute(perm).reshape(shape) : x.reshape(shape).permute(perm)).reshape(out.sizes())))
