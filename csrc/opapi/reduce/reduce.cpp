// Many values into one: sums, extremes, moments, norms. An empty list of dimensions means all of them.
#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"
#include "opapi/index/positions.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kSummed = kAll;
constexpr DTypes kCompared = kReals | at::kBool;
constexpr DTypes kTruth = kReals | at::kBool;

// Null and empty both mean all dimensions; ATen tells them apart in places.
at::OptionalIntArrayRef all_or(const Ints &dims) {
    return dims.empty() ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(at::IntArrayRef(dims));
}

// A sum-like reduction: its result has the dtype that the caller names.
void check_sum(const Operand &out, const Operand &self, at::IntArrayRef dims, bool keep, at::ScalarType result,
               DTypes dtypes) {
    dtype(self, dtypes);
    reduces(out, self, dims, keep);
    if (kUnsigned.has(result))  // not in the list of any sum's output
        fail(FaultKind::InvalidArgument, "parameter dtype is {}, in which no sum is", c10::toString(result));
    if (!at::canCast(result, out.scalar_type()))
        fail(FaultKind::InvalidArgument, "parameter out has dtype {}, which cannot hold dtype {}",
             c10::toString(out.scalar_type()), c10::toString(result));
    if (self.is_complex() && !c10::isComplexType(result))
        fail(FaultKind::InvalidArgument, "parameter dtype is {}, which cannot hold the complex self",
             c10::toString(result));
}

// The mean, like a norm, is no integer.
void check_average(const Operand &out, const Operand &self, at::IntArrayRef dims, bool keep, at::ScalarType result) {
    check_sum(out, self, dims, keep, result, kReals | kComplex);
    if (!c10::isFloatingType(result) && !c10::isComplexType(result))
        fail(FaultKind::InvalidArgument, "parameter dtype is {}, allowed are floating-point and complex dtypes",
             c10::toString(result));
}

// Something without an identity (max, argmax): there has to be an element to choose.
void check_choose(const Operand &self, at::IntArrayRef dims, DTypes dtypes) {
    dtype(self, dtypes);
    bool empty = dims.empty() && self.numel() == 0;
    for (const int64_t dim : dims) {
        dimension(dim, self);
        empty = empty || (self.dim() > 0 && self.size(dim) == 0);
    }
    if (empty)
        fail(FaultKind::InvalidArgument, "parameter {} is {}: there is nothing to choose from", self.parameter(),
             describe(self));
}

void check_extremes(const Operand &out, const Operand &self, at::IntArrayRef dims, bool keep) {
    check_choose(self, dims, kCompared);
    same_dtype(out, self);
    reduces(out, self, dims, keep);
}

void check_with_positions(const Operand &values, const Operand &indices, const Operand &self, int64_t dim, bool keep,
                          DTypes dtypes) {
    check_choose(self, dim, dtypes);
    same_dtype(values, self);
    dtype(indices, {at::kInt, at::kLong});
    reduces(values, self, dim, keep);
    reduces(indices, self, dim, keep);
}

void check_find(const Operand &out, const Operand &self, int64_t dim, bool keep) {
    check_choose(self, dim, kReals);
    dtype(out, {at::kInt, at::kLong});
    reduces(out, self, dim, keep);
}

void check_spread(const Operand &out, const Operand &self, at::IntArrayRef dims, bool keep) {
    dtype(self, kNative);
    same_dtype(out, self);
    reduces(out, self, dims, keep);
}

void check_truths(const Operand &out, const Operand &self, at::IntArrayRef dims, bool keep) {
    dtype(self, kTruth);
    dtype(out, {at::kBool, at::kByte});
    reduces(out, self, dims, keep);
}

void check_norm(const Operand &out, const Operand &self, const ScalarArgument &order, at::IntArrayRef dims, bool keep,
                at::ScalarType result) {
    require(order);
    if (!at::isFloatingType(result))
        fail(FaultKind::InvalidArgument, "parameter dtype is {}: a norm is a floating-point number",
             c10::toString(result));
    check_sum(out, self, dims, keep, result, kFloats);
    const double p = order.to<double>();
    if (std::isinf(p) || p < 0) check_choose(self, dims, kFloats);
}

// Products and exponentials lose accuracy when each step is rounded to half precision: ATen does, the hardware does
// not. Such operands are widened first (a temporary of their size).
at::ScalarType wide(at::ScalarType dtype) { return at::isReducedFloatingType(dtype) ? at::kFloat : dtype; }

void sum_into(at::Tensor &out, const at::Tensor &self, at::OptionalIntArrayRef dims, bool keep, at::ScalarType result) {
    if (out.scalar_type() == result)
        at::sum_out(out, self, dims, keep, result);
    else
        out.copy_(at::sum(self, dims, keep, result));
}

void mean_into(at::Tensor &out, const at::Tensor &self, at::OptionalIntArrayRef dims, bool keep,
               at::ScalarType result) {
    if (out.scalar_type() == result)
        at::mean_out(out, self, dims, keep, result);
    else
        out.copy_(at::mean(self, dims, keep, result));
}

// ATen's result of bytes is a byte, any other a bool.
bool written_by_aten(const at::Tensor &truth, const at::Tensor &self) {
    return truth.scalar_type() == (self.scalar_type() == at::kByte ? at::kByte : at::kBool);
}

void all_into(at::Tensor &out, const at::Tensor &self, at::OptionalIntArrayRef dims, bool keep) {
    written_by_aten(out, self) ? at::all_out(out, self, dims, keep) : out.copy_(at::all(self, dims, keep));
}

void any_into(at::Tensor &out, const at::Tensor &self, at::OptionalIntArrayRef dims, bool keep) {
    written_by_aten(out, self) ? at::any_out(out, self, dims, keep) : out.copy_(at::any(self, dims, keep));
}

void norm_into(at::Tensor &out, const at::Tensor &self, const at::Scalar &order, at::OptionalIntArrayRef dims,
               bool keep, at::ScalarType result) {
    if (out.scalar_type() == result && self.scalar_type() == result)
        at::linalg_vector_norm_out(out, self, order, dims, keep, result);
    else
        out.copy_(at::linalg_vector_norm(self.to(result), order, dims, keep, result));
}

void check_median(const Operand &out, const Operand &self) {
    dtype(self, kNative | kInts);
    same_dtype(out, self);
    shape(out, {});
    check_choose(self, {}, kNative | kInts);
}

void check_kth(const Operand &values, const Operand &indices, const Operand &self, int64_t k, int64_t dim, bool keep) {
    check_with_positions(values, indices, self, dim, keep, kNative | kInts);
    const int64_t length = self.dim() == 0 ? 1 : self.size(dim);
    if (k < 1 || k > length) fail(FaultKind::InvalidArgument, "parameter k is {}, allowed is [1, {}]", k, length);
}

void check_histogram(const Operand &out, const Operand &self, int64_t bins) {
    dtype(self, {at::kHalf, at::kFloat, at::kInt, at::kLong, at::kShort, at::kChar, at::kByte});
    if (bins < 1) fail(FaultKind::InvalidArgument, "parameter bins is {}, allowed are 1 and more", bins);
    shape(out, {bins});
}

void check_count(const Operand &out, const Operand &self, Operand &weights, int64_t minlength) {
    optional(weights);
    dtype(self, kInts);
    rank(self, {1});
    if (weights.defined()) shape(weights, self.sizes());
    rank(out, {1});
    if (out.size(0) < minlength)
        fail(FaultKind::InvalidArgument, "parameter out has {} elements, minlength is {}", out.size(0), minlength);
}

void check_trace(const Operand &out, const Operand &self) {
    dtype(self, kAll);
    rank(self, {2});
    shape(out, {});
}

void check_renormalise(const Operand &out, const Operand &self, const ScalarArgument &p, int64_t dim,
                       const ScalarArgument &limit) {
    dtype(self, kNative);
    same_dtype(out, self);
    same_shape(out, self);
    dimension(dim, self);
    require(p);
    require(limit);
    if (self.dim() < 2)
        fail(FaultKind::InvalidArgument, "parameter {} has {} dimensions, allowed are 2 and more", self.parameter(),
             self.dim());
    if (p.to<double>() < 0)
        fail(FaultKind::InvalidArgument, "parameter p is {}, allowed are 0 and more", p.to<double>());
    if (limit.to<double>() < 0)
        fail(FaultKind::InvalidArgument, "parameter maxNorm is {}, allowed are 0 and more", limit.to<double>());
}

// With p = 0 the norm is the number of elements that are not 0; ATen refuses it. CANN refuses a negative p or limit
// only: with one that is no number, the smaller of norm and limit is none either (ops-nn: renorm_dag.h).
void renormalise(at::Tensor &out, const at::Tensor &self, const at::Scalar &p, int64_t dim, const at::Scalar &limit) {
    if (std::isnan(p.toDouble()) || std::isnan(limit.toDouble()))
        return void(out.fill_(std::numeric_limits<double>::quiet_NaN()));
    if (p.toDouble() > 0) return void(out.copy_(at::renorm(widened(self), p, dim, limit)));
    at::DimVector others;
    for (int64_t i = 0; i < self.dim(); ++i)
        if (i != at::maybe_wrap_dim(dim, self.dim())) others.push_back(i);
    const at::Tensor wide = widened(self), norm = wide.ne(0).sum(others, true).to(at::kFloat);
    out.copy_(wide * at::where(norm.gt(limit), limit.toDouble() / (norm + 1e-7), at::ones({})));
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnReduceSum, check_sum(out, self, dims, keepDims, dtype, kSummed),
   sum_into(out, self, all_or(dims), keepDims, dtype))
OP(aclnnReduceNansum, check_sum(out, self, dim, keepDim, dtype, kNative | kIntsAndBool),
   out.copy_(at::nansum(self, all_or(dim), keepDim, dtype)))
OP(aclnnMean, check_average(out, self, dim, keepDim, dtype), mean_into(out, self, all_or(dim), keepDim, dtype))
OP(aclnnProd, check_sum(out, self, {}, false, dtype, kAll), out.copy_(at::prod(widened(self), wide(dtype))))
OP(aclnnProdDim, check_sum(out, self, dim, keepDim, dtype, kAll),
   out.copy_(at::prod(widened(self), dim, keepDim, wide(dtype))))
OP(aclnnAll, check_truths(out, self, dim, keepdim), all_into(out, self, all_or(dim), keepdim))
OP(aclnnAny, check_truths(out, self, dim, keepdim), any_into(out, self, all_or(dim), keepdim))

OP(aclnnMax, check_extremes(out, self, {}, false), at::amax_out(out, self, at::IntArrayRef(), false))
OP(aclnnMin, check_extremes(out, self, {}, false), at::amin_out(out, self, at::IntArrayRef(), false))
OP(aclnnAmax, check_extremes(out, self, dim, keepDim), at::amax_out(out, self, dim, keepDim))
OP(aclnnAmin, check_extremes(out, self, dim, keepDim), at::amin_out(out, self, dim, keepDim))
OP(aclnnAminmax, check_extremes(minOut, self, dim, keepDim);
   check_extremes(maxOut, self, dim, keepDim),
   (at::amin_out(minOut, self, dim, keepDim), at::amax_out(maxOut, self, dim, keepDim)))
OP(aclnnAminmaxAll, check_extremes(minOut, self, {}, false);
   check_extremes(maxOut, self, {}, false), at::aminmax_out(minOut, maxOut, self, std::nullopt, false))
OP(aclnnAminmaxDim, check_extremes(minOut, self, dim, keepDim);
   check_extremes(maxOut, self, dim, keepDim), at::aminmax_out(minOut, maxOut, self, dim, keepDim))
OP(aclnnMaxDim, check_with_positions(out, indices, self, dim, keepdim, kCompared),
   positions(indices, [&](at::Tensor &where) { at::max_out(out, where, self, dim, keepdim); }))
OP(aclnnMinDim, check_with_positions(out, indices, self, dim, keepdim, kCompared),
   positions(indices, [&](at::Tensor &where) { at::min_out(out, where, self, dim, keepdim); }))
OP(aclnnArgMax, check_find(out, self, dim, keepdim),
   positions(out, [&](at::Tensor &where) { at::argmax_out(where, self, dim, keepdim); }))
OP(aclnnArgMin, check_find(out, self, dim, keepdim),
   positions(out, [&](at::Tensor &where) { at::argmin_out(where, self, dim, keepdim); }))

// at::Scalar: an int64 would choose the overload whose argument is a bool, unbiased.
OP(aclnnStd, check_spread(out, self, dim, keepdim),
   at::std_out(out, self, all_or(dim), at::Scalar(correction), keepdim))
OP(aclnnVarCorrection, check_spread(out, self, dim, keepdim),
   at::var_out(out, self, all_or(dim), at::Scalar(correction), keepdim))
OP(aclnnVarMean, check_spread(varOut, self, dim, keepdim);
   check_spread(meanOut, self, dim, keepdim),
   at::var_mean_out(varOut, meanOut, self, all_or(dim), at::Scalar(correction), keepdim))
OP(aclnnStdMeanCorrection, check_spread(stdOut, self, dim, keepdim);
   check_spread(meanOut, self, dim, keepdim),
   at::std_mean_out(stdOut, meanOut, self, all_or(dim), at::Scalar(correction), keepdim))
OP(aclnnLinalgVectorNorm, check_norm(out, self, ord, dims, keepDims, dtype),
   norm_into(out, self, ord, all_or(dims), keepDims, dtype))
OP(aclnnNorm, check_norm(out, self, pScalar, dim, keepdim, self.scalar_type()),
   norm_into(out, self, pScalar, all_or(dim), keepdim, self.scalar_type()))
OP(aclnnLogSumExp, dtype(self, kNative | kIntsAndBool); dtype(out, kNative);
   reduces(out, self, dim, keepDim), out.copy_(at::logsumexp(widened(self), dim, keepDim)))

OP(aclnnMedian, check_median(valuesOut, self), valuesOut.copy_(at::median(self)))
OP(aclnnNanMedian, check_median(out, self), out.copy_(at::nanmedian(self)))
OP(aclnnMedianDim, check_with_positions(valuesOut, indicesOut, self, dim, keepDim, kNative | kInts),
   positions(indicesOut, [&](at::Tensor &where) { at::median_out(valuesOut, where, self, dim, keepDim); }))
OP(aclnnNanMedianDim, check_with_positions(valuesOut, indicesOut, self, dim, keepDim, kNative | kInts),
   positions(indicesOut, [&](at::Tensor &where) { at::nanmedian_out(valuesOut, where, self, dim, keepDim); }))
OP(aclnnKthvalue, check_kth(valuesOut, indicesOut, self, k, dim, keepdim),
   positions(indicesOut, [&](at::Tensor &where) { at::kthvalue_out(valuesOut, where, self, k, dim, keepdim); }))

OP(aclnnTrace, check_trace(out, self), sum_into(out, self.diagonal(), std::nullopt, false, out.scalar_type()))
// ATen's histogram has no integers and no half: a float32 copy.
OP(aclnnHistc, check_histogram(out, self, bins), out.copy_(at::histc(self.to(at::kFloat), bins, min.get(), max.get())))
OP(aclnnBincount, check_count(out, self, weights, minlength),
   out.copy_(at::bincount(self, weights.maybe(), out.size(0))))
OP(aclnnRenorm, check_renormalise(out, self, p, dim, maxNorm), renormalise(out, self, p.get(), dim, maxNorm.get()))
OP(aclnnInplaceRenorm, check_renormalise(selfRef, selfRef, p, dim, maxNorm),
   renormalise(selfRef, selfRef, p.get(), dim, maxNorm.get()))
