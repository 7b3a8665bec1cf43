// Normalization: along the axes that mean and variance are taken over, and in the backward pass along the rows that the
// gradients of weight and bias add up as well.
#include "opapi/reordered/order.h"

namespace vnpu::opapi::reordered {
namespace {

using at::IntArrayRef;
using at::Tensor;
using Maybe = std::optional<Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using Mask = std::array<bool, 3>;

// --- layer norm: the last axis of all that are normalized, and the first of those that are not

Three layer_norm(const Tensor &input, IntArrayRef normalized_shape, const Maybe &weight, const Maybe &bias,
                 double eps) {
    const AsIs as_is;
    auto [out, mean, rstd] =
        at::native_layer_norm(shuffled(input, -1), normalized_shape, shuffled(weight, -1), shuffled(bias, -1), eps);
    return {unshuffled(out, -1), mean, rstd};
}

Three layer_norm_backward(const Tensor &grad_out, const Tensor &input, IntArrayRef normalized_shape, const Tensor &mean,
                          const Tensor &rstd, const Maybe &weight, const Maybe &bias, Mask mask) {
    const AsIs as_is;
    const bool rows = input.dim() > static_cast<int64_t>(normalized_shape.size());
    const auto along_rows = [&](const Tensor &tensor) { return rows ? shuffled(tensor, 0) : tensor; };
    auto [grad_input, grad_weight, grad_bias] = at::native_layer_norm_backward(
        along_rows(shuffled(grad_out, -1)), along_rows(shuffled(input, -1)), normalized_shape, along_rows(mean),
        along_rows(rstd), shuffled(weight, -1), shuffled(bias, -1), mask);
    grad_input = unshuffled(grad_input, -1);
    return {rows ? unshuffled(grad_input, 0) : grad_input, unshuffled(grad_weight, -1), unshuffled(grad_bias, -1)};
}

// --- batch norm: the batch and the last axis, if that is not the channels'

Tensor over_batch(const Tensor &tensor) {
    const Tensor rows = shuffled(tensor, 0);
    return tensor.dim() > 2 ? shuffled(rows, -1) : rows;
}

Tensor restored_batch(const Tensor &tensor) {
    const Tensor rows = unshuffled(tensor, 0);
    return tensor.defined() && tensor.dim() > 2 ? unshuffled(rows, -1) : rows;
}

Three batch_norm(const Tensor &input, const Maybe &weight, const Maybe &bias, const Maybe &running_mean,
                 const Maybe &running_var, bool training, double momentum, double eps) {
    const AsIs as_is;
    auto [out, mean, invstd] =
        at::native_batch_norm(over_batch(input), weight, bias, running_mean, running_var, training, momentum, eps);
    return {restored_batch(out), mean, invstd};
}

std::tuple<Tensor &, Tensor &, Tensor &> batch_norm_out(const Tensor &input, const Maybe &weight, const Maybe &bias,
                                                        const Maybe &running_mean, const Maybe &running_var,
                                                        bool training, double momentum, double eps, Tensor &out,
                                                        Tensor &save_mean, Tensor &save_invstd) {
    const AsIs as_is;
    Tensor result = at::empty_like(out);
    at::native_batch_norm_out(result, save_mean, save_invstd, over_batch(input), weight, bias, running_mean,
                              running_var, training, momentum, eps);
    out.copy_(restored_batch(result));
    return {out, save_mean, save_invstd};
}

Three batch_norm_backward(const Tensor &grad_out, const Tensor &input, const Maybe &weight, const Maybe &running_mean,
                          const Maybe &running_var, const Maybe &save_mean, const Maybe &save_invstd, bool train,
                          double eps, Mask mask) {
    const AsIs as_is;
    auto [grad_input, grad_weight, grad_bias] =
        at::native_batch_norm_backward(over_batch(grad_out), over_batch(input), weight, running_mean, running_var,
                                       save_mean, save_invstd, train, eps, mask);
    return {restored_batch(grad_input), grad_weight, grad_bias};
}

// --- group norm: the pixels of a channel, and the batch

Tensor flat(const Tensor &tensor, int64_t n, int64_t c, int64_t hxw) { return tensor.reshape({n, c, hxw}); }

Three group_norm(const Tensor &input, const Maybe &weight, const Maybe &bias, int64_t n, int64_t c, int64_t hxw,
                 int64_t group, double eps) {
    const AsIs as_is;
    auto [out, mean, rstd] =
        at::native_group_norm(shuffled(flat(input, n, c, hxw), 2), weight, bias, n, c, hxw, group, eps);
    return {unshuffled(out.view({n, c, hxw}), 2).view(input.sizes()), mean, rstd};
}

Three group_norm_backward(const Tensor &grad_out, const Tensor &input, const Tensor &mean, const Tensor &rstd,
                          const Maybe &weight, int64_t n, int64_t c, int64_t hxw, int64_t group, Mask mask) {
    const AsIs as_is;
    const auto mixed = [&](const Tensor &tensor) { return shuffled(shuffled(flat(tensor, n, c, hxw), 2), 0); };
    auto [grad_input, grad_weight, grad_bias] = at::native_group_norm_backward(
        mixed(grad_out), mixed(input), shuffled(mean, 0), shuffled(rstd, 0), weight, n, c, hxw, group, mask);
    if (grad_input.defined())
        grad_input = unshuffled(unshuffled(grad_input.view({n, c, hxw}), 2), 0).view(input.sizes());
    return {grad_input, grad_weight, grad_bias};
}

}  // namespace

void add_norms(torch::Library &library) {
    library.impl("native_layer_norm", TORCH_FN(layer_norm));
    library.impl("native_layer_norm_backward", TORCH_FN(layer_norm_backward));
    library.impl("native_batch_norm", TORCH_FN(batch_norm));
    library.impl("native_batch_norm.out", TORCH_FN(batch_norm_out));
    library.impl("native_batch_norm_backward", TORCH_FN(batch_norm_backward));
    library.impl("native_group_norm", TORCH_FN(group_norm));
    library.impl("native_group_norm_backward", TORCH_FN(group_norm_backward));
}

}  // namespace vnpu::opapi::reordered
