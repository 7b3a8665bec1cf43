// Reductions and softmax: along the axes that are reduced. The losses' means are these too.
#include "opapi/reordered/order.h"

namespace vnpu::opapi::reordered {
namespace {

using at::OptionalIntArrayRef;
using at::Scalar;
using at::Tensor;
using Dtype = std::optional<at::ScalarType>;
using Correction = std::optional<Scalar>;
using Pair = std::tuple<Tensor, Tensor>;

template <Tensor (*Function)(const Tensor &, OptionalIntArrayRef, bool, Dtype)>
Tensor total(const Tensor &self, OptionalIntArrayRef dim, bool keepdim, Dtype dtype) {
    const AsIs as_is;
    return Function(shuffled_over(self, dim), dim, keepdim, dtype);
}

template <Tensor &(*Function)(Tensor &, const Tensor &, OptionalIntArrayRef, bool, Dtype)>
Tensor &total_out(const Tensor &self, OptionalIntArrayRef dim, bool keepdim, Dtype dtype, Tensor &out) {
    const AsIs as_is;
    return Function(out, shuffled_over(self, dim), dim, keepdim, dtype);
}

template <class Result, Result (*Function)(const Tensor &, OptionalIntArrayRef, const Correction &, bool)>
Result spread(const Tensor &self, OptionalIntArrayRef dim, const Correction &correction, bool keepdim) {
    const AsIs as_is;
    return Function(shuffled_over(self, dim), dim, correction, keepdim);
}

template <Tensor &(*Function)(Tensor &, const Tensor &, OptionalIntArrayRef, const Correction &, bool)>
Tensor &spread_out(const Tensor &self, OptionalIntArrayRef dim, const Correction &correction, bool keepdim,
                   Tensor &out) {
    const AsIs as_is;
    return Function(out, shuffled_over(self, dim), dim, correction, keepdim);
}

Tensor prod(const Tensor &self, Dtype dtype) {
    const AsIs as_is;
    return at::prod(shuffled_over(self, std::nullopt), dtype);
}

Tensor prod_along(const Tensor &self, int64_t dim, bool keepdim, Dtype dtype) {
    const AsIs as_is;
    return at::prod(shuffled(self, dim), dim, keepdim, dtype);
}

Tensor &prod_out(const Tensor &self, int64_t dim, bool keepdim, Dtype dtype, Tensor &out) {
    const AsIs as_is;
    return at::prod_out(out, shuffled(self, dim), dim, keepdim, dtype);
}

Tensor norm(const Tensor &self, const Correction &p, at::IntArrayRef dim, bool keepdim) {
    const AsIs as_is;
    return at::norm(shuffled_over(self, dim), p, dim, keepdim);
}

Tensor &norm_out(const Tensor &self, const Correction &p, at::IntArrayRef dim, bool keepdim, Tensor &out) {
    const AsIs as_is;
    return at::norm_out(out, shuffled_over(self, dim), p, dim, keepdim);
}

Tensor vector_norm(const Tensor &self, const Scalar &ord, OptionalIntArrayRef dim, bool keepdim, Dtype dtype) {
    const AsIs as_is;
    return at::linalg_vector_norm(shuffled_over(self, dim), ord, dim, keepdim, dtype);
}

Tensor &vector_norm_out(const Tensor &self, const Scalar &ord, OptionalIntArrayRef dim, bool keepdim, Dtype dtype,
                        Tensor &out) {
    const AsIs as_is;
    return at::linalg_vector_norm_out(out, shuffled_over(self, dim), ord, dim, keepdim, dtype);
}

template <Tensor (*Function)(const Tensor &, int64_t, bool)>
Tensor softmax(const Tensor &self, int64_t dim, bool half_to_float) {
    const AsIs as_is;
    return unshuffled(Function(shuffled(self, dim), dim, half_to_float), dim);
}

template <Tensor (*Function)(const Tensor &, int64_t, bool)>
Tensor &softmax_out(const Tensor &self, int64_t dim, bool half_to_float, Tensor &out) {
    return out.copy_(softmax<Function>(self, dim, half_to_float));
}

template <Tensor (*Function)(const Tensor &, const Tensor &, int64_t, at::ScalarType)>
Tensor softmax_backward(const Tensor &grad_output, const Tensor &output, int64_t dim, at::ScalarType dtype) {
    const AsIs as_is;
    return unshuffled(Function(shuffled(grad_output, dim), shuffled(output, dim), dim, dtype), dim);
}

template <Tensor (*Function)(const Tensor &, const Tensor &, int64_t, at::ScalarType)>
Tensor &softmax_backward_out(const Tensor &grad_output, const Tensor &output, int64_t dim, at::ScalarType dtype,
                             Tensor &out) {
    return out.copy_(softmax_backward<Function>(grad_output, output, dim, dtype));
}

}  // namespace

void add_reductions(torch::Library &library) {
    library.impl("sum.dim_IntList", TORCH_FN(total<at::sum>));
    library.impl("sum.IntList_out", TORCH_FN(total_out<at::sum_out>));
    library.impl("mean.dim", TORCH_FN(total<at::mean>));
    library.impl("mean.out", TORCH_FN(total_out<at::mean_out>));
    library.impl("nansum", TORCH_FN(total<at::nansum>));
    library.impl("nansum.out", TORCH_FN(total_out<at::nansum_out>));
    library.impl("var.correction", TORCH_FN((spread<Tensor, at::var>)));
    library.impl("var.correction_out", TORCH_FN(spread_out<at::var_out>));
    library.impl("std.correction", TORCH_FN((spread<Tensor, at::std>)));
    library.impl("std.correction_out", TORCH_FN(spread_out<at::std_out>));
    library.impl("var_mean.correction", TORCH_FN((spread<Pair, at::var_mean>)));
    library.impl("std_mean.correction", TORCH_FN((spread<Pair, at::std_mean>)));
    library.impl("prod", TORCH_FN(prod));
    library.impl("prod.dim_int", TORCH_FN(prod_along));
    library.impl("prod.int_out", TORCH_FN(prod_out));
    library.impl("norm.ScalarOpt_dim", TORCH_FN(norm));
    library.impl("norm.out", TORCH_FN(norm_out));
    library.impl("linalg_vector_norm", TORCH_FN(vector_norm));
    library.impl("linalg_vector_norm.out", TORCH_FN(vector_norm_out));
    library.impl("_softmax", TORCH_FN(softmax<at::_softmax>));
    library.impl("_softmax.out", TORCH_FN(softmax_out<at::_softmax>));
    library.impl("_log_softmax", TORCH_FN(softmax<at::_log_softmax>));
    library.impl("_log_softmax.out", TORCH_FN(softmax_out<at::_log_softmax>));
    library.impl("_softmax_backward_data", TORCH_FN(softmax_backward<at::_softmax_backward_data>));
    library.impl("_softmax_backward_data.out", TORCH_FN(softmax_backward_out<at::_softmax_backward_data>));
    library.impl("_log_softmax_backward_data", TORCH_FN(softmax_backward<at::_log_softmax_backward_data>));
    library.impl("_log_softmax_backward_data.out", TORCH_FN(softmax_backward_out<at::_log_softmax_backward_data>));
}

}  // namespace vnpu::opapi::reordered
