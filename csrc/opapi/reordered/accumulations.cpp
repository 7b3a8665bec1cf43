// Additions into places that an index names: gradients of embeddings and of indexing, and the classes' losses.
#include "opapi/reordered/order.h"

namespace vnpu::opapi::reordered {
namespace {

using at::Scalar;
using at::Tensor;

Tensor embedding_backward(const Tensor &grad_output, const Tensor &indices, int64_t num_weights, int64_t padding_idx,
                          bool scale_grad_by_freq) {
    const AsIs as_is;
    const Tensor flat = indices.flatten();
    const Tensor rows = grad_output.reshape({flat.numel(), grad_output.size(-1)});
    return at::embedding_dense_backward(permuted(rows, 0), permuted(flat, 0), num_weights, padding_idx,
                                        scale_grad_by_freq);
}

// --- index_add: the index is of one axis, the source has it too unless it is a scalar

Tensor &index_add_out(const Tensor &self, int64_t dim, const Tensor &index, const Tensor &source, const Scalar &alpha,
                      Tensor &out) {
    const AsIs as_is;
    return at::index_add_out(out, self, dim, permuted(index, 0), permuted(source, dim), alpha);
}

Tensor &index_add_in_place(Tensor &self, int64_t dim, const Tensor &index, const Tensor &source, const Scalar &alpha) {
    return index_add_out(self, dim, index, source, alpha, self);
}

Tensor index_add(const Tensor &self, int64_t dim, const Tensor &index, const Tensor &source, const Scalar &alpha) {
    const AsIs as_is;
    return at::index_add(self, dim, permuted(index, 0), permuted(source, dim), alpha);
}

// --- scatter: the source may be longer than the index, and what is beyond it is not read

Tensor read_part(const Tensor &source, const Tensor &index, int64_t dim) {
    if (source.dim() == 0) return source;
    return permuted(source.narrow(dim, 0, index.size(dim)), dim);
}

Tensor scatter_add(const Tensor &self, int64_t dim, const Tensor &index, const Tensor &src) {
    const AsIs as_is;
    return at::scatter_add(self, dim, permuted(index, dim), read_part(src, index, dim));
}

Tensor &scatter_add_out(const Tensor &self, int64_t dim, const Tensor &index, const Tensor &src, Tensor &out) {
    const AsIs as_is;
    return at::scatter_add_out(out, self, dim, permuted(index, dim), read_part(src, index, dim));
}

Tensor &scatter_add_in_place(Tensor &self, int64_t dim, const Tensor &index, const Tensor &src) {
    return scatter_add_out(self, dim, index, src, self);
}

Tensor &scatter_reduce_in_place(Tensor &self, int64_t dim, const Tensor &index, const Tensor &src,
                                std::string_view reduce, bool include_self) {
    const AsIs as_is;
    return self.scatter_reduce_(dim, permuted(index, dim), read_part(src, index, dim), reduce, include_self);
}

// --- index_put with accumulation: indices of the first axes, as the gradient of x[i, j] has them; others stay

Tensor &index_put(Tensor &self, const c10::List<std::optional<Tensor>> &indices, const Tensor &values, bool accumulate,
                  bool unsafe) {
    const AsIs as_is;
    std::vector<Tensor> given;
    bool leading = accumulate;
    for (const std::optional<Tensor> &index : indices) {
        leading = leading && index && index->defined() && at::isIntegralType(index->scalar_type(), false) &&
                  index->scalar_type() != at::kByte;
        if (leading) given.push_back(*index);
    }
    if (!leading || given.empty()) return at::_index_put_impl_(self, indices, values, accumulate, unsafe);
    given = at::broadcast_tensors(given);
    std::vector<int64_t> sizes = given[0].sizes().vec();
    const auto axes = static_cast<int64_t>(sizes.size());
    for (int64_t dim = static_cast<int64_t>(given.size()); dim < self.dim(); ++dim) sizes.push_back(self.size(dim));
    const Tensor each = values.expand(sizes);
    c10::List<std::optional<Tensor>> places;
    for (const Tensor &index : given) places.push_back(permuted(index.reshape(-1), 0));
    if (axes == 0) return at::_index_put_impl_(self, indices, values, accumulate, unsafe);
    return at::_index_put_impl_(self, places, permuted(each.flatten(0, axes - 1), 0), accumulate, unsafe);
}

// --- the losses of classes: along the batch

std::tuple<Tensor, Tensor> nll(const Tensor &self, const Tensor &target, const std::optional<Tensor> &weight,
                               int64_t reduction, int64_t ignore_index) {
    const AsIs as_is;
    if (reduction == at::Reduction::None || self.dim() < 2)
        return at::nll_loss_forward(self, target, weight, reduction, ignore_index);
    return at::nll_loss_forward(permuted(self, 0), permuted(target, 0), weight, reduction, ignore_index);
}

std::tuple<Tensor &, Tensor &> nll_out(const Tensor &self, const Tensor &target, const std::optional<Tensor> &weight,
                                       int64_t reduction, int64_t ignore_index, Tensor &output, Tensor &total_weight) {
    const AsIs as_is;
    const bool summed = reduction != at::Reduction::None && self.dim() == 2;
    return at::nll_loss_forward_out(output, total_weight, summed ? permuted(self, 0) : self,
                                    summed ? permuted(target, 0) : target, weight, reduction, ignore_index);
}

std::tuple<Tensor, Tensor> nll2d(const Tensor &self, const Tensor &target, const std::optional<Tensor> &weight,
                                 int64_t reduction, int64_t ignore_index) {
    const AsIs as_is;
    if (reduction == at::Reduction::None) return at::nll_loss2d_forward(self, target, weight, reduction, ignore_index);
    return at::nll_loss2d_forward(permuted(permuted(self, 0), 3), permuted(permuted(target, 0), 2), weight, reduction,
                                  ignore_index);
}

std::tuple<Tensor &, Tensor &> nll2d_out(const Tensor &self, const Tensor &target, const std::optional<Tensor> &weight,
                                         int64_t reduction, int64_t ignore_index, Tensor &output,
                                         Tensor &total_weight) {
    const auto [loss, total] = nll2d(self, target, weight, reduction, ignore_index);
    output.copy_(loss);
    total_weight.copy_(total);
    return {output, total_weight};
}

}  // namespace

void add_accumulations(torch::Library &library) {
    library.impl("embedding_dense_backward", TORCH_FN(embedding_backward));
    library.impl("index_add", TORCH_FN(index_add));
    library.impl("index_add.out", TORCH_FN(index_add_out));
    library.impl("index_add_", TORCH_FN(index_add_in_place));
    library.impl("scatter_add", TORCH_FN(scatter_add));
    library.impl("scatter_add.out", TORCH_FN(scatter_add_out));
    library.impl("scatter_add_", TORCH_FN(scatter_add_in_place));
    library.impl("scatter_reduce_.two", TORCH_FN(scatter_reduce_in_place));
    library.impl("_index_put_impl_", TORCH_FN(index_put));
    library.impl("nll_loss_forward", TORCH_FN(nll));
    library.impl("nll_loss_forward.output", TORCH_FN(nll_out));
    library.impl("nll_loss2d_forward", TORCH_FN(nll2d));
    library.impl("nll_loss2d_forward.output", TORCH_FN(nll2d_out));
}

}  // namespace vnpu::opapi::reordered
