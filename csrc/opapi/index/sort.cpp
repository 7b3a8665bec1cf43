// Order: sort, topk, unique, searching, and running extremes and sums.
#include <ATen/WrapDimUtils.h>

#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/unsigned.h"
#include "opapi/index/positions.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kSorted = kReals | at::kBool;
constexpr DTypes kSearched{at::kDouble, at::kFloat, at::kHalf, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong};
constexpr DTypes kIndex{at::kInt, at::kLong};
constexpr int64_t kFlattened = 1000;  // UniqueConsecutive's dim for "no dim"

void check_sort(const Operand &values, const Operand &indices, const Operand &self, int64_t dim) {
    dtype(self, kSorted);
    same_dtype(values, self);
    dtype(indices, at::kLong);
    same_shape(values, self);
    same_shape(indices, self);
    dimension(dim, self);
}

void check_choose(const Operand &values, const Operand &indices, const Operand &self, int64_t k, int64_t dim) {
    dtype(self, kReals);
    same_dtype(values, self);
    dtype(indices, at::kLong);
    dimension(dim, self);
    at::DimVector sizes(self.sizes().begin(), self.sizes().end());
    const int64_t length = self.dim() == 0 ? 1 : self.size(dim);
    if (k < 0 || k > length) fail(FaultKind::InvalidArgument, "parameter k is {}, allowed is [0, {}]", k, length);
    if (self.dim() > 0) sizes[static_cast<size_t>(at::maybe_wrap_dim(dim, self.dim()))] = k;
    shape(values, sizes);
    shape(indices, sizes);
}

void check_room(const Operand &out, int64_t elements) {
    if (out.numel() < elements)
        fail(FaultKind::InvalidArgument, "parameter {} has {} elements, up to {} are needed", out.parameter(),
             out.numel(), elements);
}

void check_nonzero(const Operand &self, const Operand &out) {
    dtype(self, kSorted | kUnsigned);
    dtype(out, at::kLong);
    check_room(out, self.numel() * self.dim());
}

void check_unique(const Operand &self, const Operand &values, const Operand *inverse, const Operand *counts) {
    dtype(self, kSorted | kComplex | kUnsigned);
    same_dtype(values, self);
    check_room(values, self.numel());
    for (const Operand *out : {inverse, counts}) {
        if (out == nullptr) continue;
        dtype(*out, kIndex);
    }
}

void fill(Operand &out, const at::Tensor &result, bool wanted) {
    if (wanted) out.publish(result);
}

void check_search(const Operand &boundaries, const Operand *self, bool out_int32, const Operand *sorter,
                  const Operand &out) {
    dtype(boundaries, kSearched | at::kBFloat16);
    if (self != nullptr) {
        same_dtype(*self, boundaries);
        same_shape(out, *self);
        if (boundaries.dim() > 1 &&
            boundaries.sizes().slice(0, static_cast<size_t>(boundaries.dim()) - 1) !=
                self->sizes().slice(0, static_cast<size_t>(std::max<int64_t>(self->dim(), 1)) - 1))
            fail(FaultKind::InvalidArgument, "parameters {} {} and {} {} differ in a leading dimension",
                 boundaries.parameter(), describe(boundaries), self->parameter(), describe(*self));
    } else {
        rank(boundaries, {1});
        shape(out, {});
    }
    if (boundaries.dim() == 0)
        fail(FaultKind::InvalidArgument, "parameter {} has 0 dimensions", boundaries.parameter());
    dtype(out, {out_int32 ? at::kInt : at::kLong});
    if (sorter != nullptr && sorter->defined()) {
        dtype(*sorter, at::kLong);
        same_shape(*sorter, boundaries);
    }
}

void check_run(const Operand &out, const Operand &self, int64_t dim, at::ScalarType result, DTypes dtypes) {
    dtype(self, dtypes);
    same_shape(out, self);
    dimension(dim, self);
    dtype(out, {result});
}

void check_extremes(const Operand &values, const Operand &indices, const Operand &self, int64_t dim) {
    dtype(self, kSorted);
    same_dtype(values, self);
    same_shape(values, self);
    dtype(indices, kIndex);
    same_shape(indices, self);
    dimension(dim, self);
}

// A product in half precision is made in float32 and rounded at each place it is written.
void running_product(at::Tensor &out, const at::Tensor &in, int64_t dim, at::ScalarType result) {
    if (at::isReducedFloatingType(result))
        out.copy_(at::cumprod(in, dim, at::kFloat));
    else
        at::cumprod_out(out, in, dim, result);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnSort, check_sort(valuesOut, indicesOut, self, dim),
   at::sort_out(valuesOut, indicesOut, self, stable, dim, descending))
OP(aclnnTopk, check_choose(valuesOut, indicesOut, self, k, dim),
   at::topk_out(valuesOut, indicesOut, self, k, dim, largest, sorted))
// arg5 chooses between two sorting algorithms of the hardware.
OP(aclnnTopkV2, check_choose(values, indices, self, k, dim),
   at::topk_out(values, indices, self, k, dim, largest, sorted))

OP(aclnnNonzero, check_nonzero(self, out); data_dependent(out);
   found_along({{&out}}), out.publish(at::nonzero(moved(self))))
// As Nonzero, but each column is a place.
OP(aclnnNonzeroV2, check_nonzero(self, out); data_dependent(out);
   found_along({{&out, 1}}), out.publish(at::nonzero(moved(self)).t().contiguous()))

OP(aclnnUnique, check_unique(self, valueOut, &inverseOut, nullptr); data_dependent(valueOut, inverseOut);
   found_along({{&valueOut}}), {
       const auto [values, inverse] = at::_unique(self, sorted, returnInverse);
       valueOut.publish(values);
       fill(inverseOut, inverse, returnInverse);
   })
OP(aclnnUnique2, check_unique(self, valueOut, &inverseOut, &countsOut); data_dependent(valueOut, inverseOut, countsOut);
   found_along({{&valueOut}, {&countsOut}}), {
       const auto [values, inverse, counts] = at::_unique2(self, sorted, returnInverse, returnCounts);
       valueOut.publish(values);
       fill(inverseOut, inverse, returnInverse);
       fill(countsOut, counts, returnCounts);
   })
OP(aclnnUniqueDim, check_unique(self, valueOut, &inverseOut, &countsOut); dimension(dim, self);
   data_dependent(valueOut, inverseOut, countsOut); found_along({{&valueOut, dim}, {&countsOut}}), {
       const auto [values, inverse, counts] = at::unique_dim(self, dim, sorted, returnInverse, true);
       valueOut.publish(values);
       fill(inverseOut, inverse, returnInverse);
       countsOut.publish(counts);
   })
OP(aclnnUniqueConsecutive, check_unique(self, valueOut, &inverseOut, &countsOut);
   data_dependent(valueOut, inverseOut, countsOut);
   found_along({{&valueOut, dim == kFlattened ? 0 : dim}, {&countsOut}}), {
       const auto along = dim == kFlattened ? std::nullopt : std::optional<int64_t>(dim);
       const auto [values, inverse, counts] = at::unique_consecutive(self, returnInverse, returnCounts, along);
       valueOut.publish(values);
       fill(inverseOut, inverse, returnInverse);
       fill(countsOut, counts, returnCounts);
   })

OP(aclnnSearchSorted, optional(sorter);
   check_search(sortedSequence, &self, outInt32, &sorter, out),
   at::searchsorted_out(out, sortedSequence, self, outInt32, right, std::nullopt, sorter.maybe()))
OP(aclnnSearchSorteds, optional(sorter); require(self);
   check_search(sortedSequence, nullptr, outInt32, &sorter, out),
   out.copy_(at::searchsorted(sortedSequence, self.get(), outInt32, right, std::nullopt, sorter.maybe())))
OP(aclnnBucketize, rank(boundaries, {1}); dtype(boundaries, kNative | kInts); same_dtype(self, boundaries);
   same_shape(out, self);
   dtype(out, {outInt32 ? at::kInt : at::kLong}), at::bucketize_out(out, self, boundaries, outInt32, right))
OP(aclnnIsInTensorScalar, dtype(element, kAll); require(testElement); same_shape(out, element);
   dtype(out, at::kBool), at::isin_out(out, element, testElement.get(), assumeUnique, invert))
OP(aclnnIsInScalarTensor, dtype(testElements, kAll); require(element); shape(out, {});
   dtype(out, at::kBool), at::isin_out(out, element.get(), testElements, assumeUnique, invert))

OP(aclnnCumsum, check_run(out, self, dim, dtype, kReals | kComplex | at::kBool), at::cumsum_out(out, self, dim, dtype))
OP(aclnnCumprod, require(dim); check_run(out, input, dim.to<int64_t>(), dtype, kReals | at::kBool),
                               running_product(out, input, dim.to<int64_t>(), dtype))
OP(aclnnCummax, check_extremes(valuesOut, indicesOut, self, dim),
   positions(indicesOut, [&](at::Tensor &where) { at::cummax_out(valuesOut, where, self, dim); }))
OP(aclnnCummin, check_extremes(valuesOut, indicesOut, self, dim),
   positions(indicesOut, [&](at::Tensor &where) { at::cummin_out(valuesOut, where, self, dim); }))
