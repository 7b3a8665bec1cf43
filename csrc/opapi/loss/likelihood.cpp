// Losses. reduction: 0 none, 1 mean, 2 sum.
#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

void check_reduction(int64_t reduction) {
    if (reduction < 0 || reduction > 2)
        fail(FaultKind::InvalidArgument, "parameter reduction is {}, allowed are 0 (none), 1 (mean) and 2 (sum)",
             reduction);
}

// A 0-dim tensor; CANN documents [1] for it too.
void check_single(const Operand &out) {
    if (out.dim() != 1 || out.size(0) != 1) shape(out, {});
}

// Class numbers: ATen's kernels take int64. For one that is no class CANN's first phase has no check, and no source
// says what comes of it: where hardware's mistakes are hidden it is left out of the loss.
at::Tensor classes(const at::Tensor &target, int64_t count, int64_t ignored) {
    const at::Tensor places = target.to(at::kLong);
    return bugs_hidden() ? places.masked_fill(places.lt(0).logical_or_(places.ge(count)), ignored) : places;
}

template <class Compute>
void with_classes(Compute compute) {
    noticing("out of bounds", "a target that is no class gives a number that is not documented, here none", compute);
}

// --- negative log likelihood: self has its classes in dimension `dim`, target has the other dimensions.

void check_nll(const Operand &self, const Operand &target, const Operand &weight, int64_t reduction,
               const Operand &loss) {
    network(self);
    dtype(target, {at::kLong, at::kInt, at::kByte});
    const int64_t dim = self.dim() == 1 ? 0 : 1;
    at::DimVector sizes(self.sizes().begin(), self.sizes().end());
    sizes.erase(sizes.begin() + dim);
    shape(target, sizes);
    if (weight.defined()) {
        network(weight);
        shape(weight, {self.size(dim)});
    }
    check_reduction(reduction);
    if (reduction == at::Reduction::None && self.dim() > 1)
        shape(loss, sizes);
    else
        check_single(loss);
}

void nll_loss(at::Tensor &out, at::Tensor &total_weight, const at::Tensor &self, const at::Tensor &target,
              const at::Tensor &weight, int64_t reduction, int64_t ignore_index) {
    const bool planes = self.dim() > 2, summed = reduction != at::Reduction::None || self.dim() == 1;
    const at::Tensor x = widened(self), places = classes(target, self.size(self.dim() == 1 ? 0 : 1), ignore_index),
                     weights = widened(weight);
    const auto as_aten = [&](const at::Tensor &result, bool number) {
        return result.scalar_type() == x.scalar_type() && (!number || result.dim() == 0);
    };
    if (as_aten(out, summed) && as_aten(total_weight, true)) {
        planes ? at::nll_loss2d_forward_out(out, total_weight, x, places, weights, reduction, ignore_index)
               : at::nll_loss_forward_out(out, total_weight, x, places, weights, reduction, ignore_index);
        return;
    }
    const auto [loss, total] = planes ? at::nll_loss2d_forward(x, places, weights, reduction, ignore_index)
                                      : at::nll_loss_forward(x, places, weights, reduction, ignore_index);
    give(out, loss.reshape(out.sizes()));
    give(total_weight, total.reshape(total_weight.sizes()));
}

void nll_loss_backward(at::Tensor &out, const at::Tensor &grad, const at::Tensor &self, const at::Tensor &target,
                       const at::Tensor &weight, int64_t reduction, int64_t ignore_index,
                       const at::Tensor &total_weight) {
    const bool planes = self.dim() > 2;
    const at::Tensor total = widened(total_weight).reshape({});
    const at::Tensor places = classes(target, self.size(self.dim() == 1 ? 0 : 1), ignore_index);
    const at::Tensor gradient = reduction == at::Reduction::None ? widened(grad) : widened(grad).reshape({});
    rounded(out, [&](at::Tensor &target_out) {
        if (planes)
            at::nll_loss2d_backward_out(target_out, gradient, widened(self), places, widened(weight), reduction,
                                        ignore_index, total);
        else
            at::nll_loss_backward_out(target_out, gradient, widened(self), places, widened(weight), reduction,
                                      ignore_index, total);
    });
}

}  // namespace
}  // namespace vnpu::opapi

#define NLL(NAME, RANKS)                                                                           \
    OP(NAME, optional(weight); rank(self, RANKS); check_nll(self, target, weight, reduction, out); \
       check_single(totalWeightOut),                                                               \
       with_classes([&] { nll_loss(out, totalWeightOut, self, target, weight, reduction, ignoreIndex); }))
#define NLL_BACKWARD(NAME, RANKS)                                                                         \
    OP(NAME, optional(weight); rank(self, RANKS); check_nll(self, target, weight, reduction, gradOutput); \
       check_single(totalWeight); same_shape(out, self);                                                  \
       network(out, gradOutput, totalWeight), with_classes([&] {                                          \
           nll_loss_backward(out, gradOutput, self, target, weight, reduction, ignoreIndex, totalWeight); \
       }))
#define VECTORS {1, 2}
#define PLANES {4}

NLL(aclnnNLLLoss, VECTORS)
NLL(aclnnNLLLoss2d, PLANES)
NLL_BACKWARD(aclnnNLLLossBackward, VECTORS)
NLL_BACKWARD(aclnnNLLLoss2dBackward, PLANES)
