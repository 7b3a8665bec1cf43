// Quantised values into a cache of int8.
#include "opapi/aclnn/limits.h"
#include "opapi/quantization/quantization.h"

namespace vnpu::opapi {
namespace {

using namespace quantization;

// Both axes are those that the page allows; other ones have no kernel (ops-nn: aclnnInplaceQuantScatter.md).
void check_scatter(const Operand &self, const Operand &indices, const Operand &updates, const Operand &scales,
                   const Operand &zero_points, int64_t axis, int64_t quant_axis, int64_t reduction) {
    for (const Operand *each : {&self, &indices, &updates, &scales}) require(*each);
    const bool half = updates.scalar_type() == at::kHalf;
    if (scales.scalar_type() != (half ? at::kFloat : at::kBFloat16) ||
        (zero_points.defined() && zero_points.scalar_type() != (half ? at::kInt : at::kBFloat16)))
        fail(FaultKind::InvalidArgument,
             "parameter updates is {}, quantScales {} and quantZeroPoints {}, allowed are float16, float32 and int32, "
             "or bfloat16 "
             "throughout",
             describe(updates), describe(scales), describe(zero_points));
    if (self.dim() != updates.dim())
        fail(FaultKind::InvalidArgument, "parameter selfRef is {}, expected as many dimensions as updates, {}",
             describe(self), describe(updates));
    if (self.numel() == 0 || indices.numel() == 0 || updates.numel() == 0 || scales.numel() == 0) return;
    const int64_t last = updates.dim() - 1;
    tiled(updates.dim() >= 3 && (axis == -2 || axis == last - 1), "parameter axis is {}, allowed is -2", axis);
    tiled(quant_axis == -1 || quant_axis == last, "parameter quantAxis is {}, allowed is -1", quant_axis);
    tiled(reduction == 1, "parameter reduction is {}, allowed is 1 (update)", reduction);
    tiled(indices.dim() == 1 && indices.size(0) == updates.size(0) && updates.size(0) <= self.size(0),
          "parameter indices is {}, expected one for each row of updates, {}", describe(indices), describe(updates));
    for (int64_t i = 1; i <= last; ++i)
        tiled(i == last - 1 ? updates.size(i) <= self.size(i) : updates.size(i) == self.size(i),
              "parameter updates is {}, which does not fit into selfRef, {}", describe(updates), describe(self));
    tiled(updates.size(last) % 32 == 0, "parameter updates is {}, expected a multiple of 32 as its last size",
          describe(updates));
    for (const Operand *each : {&scales, &zero_points})
        if (each->defined())
            tiled(each->numel() == updates.size(last), "parameter {} is {}, expected {} values", each->parameter(),
                  describe(*each), updates.size(last));
}

void quant_scatter(at::Tensor &self, const at::Tensor &indices, const at::Tensor &updates, const at::Tensor &scales,
                   const at::Tensor &zero_points) {
    if (self.numel() == 0 || indices.numel() == 0 || updates.numel() == 0 || scales.numel() == 0) return;
    at::Tensor value = widened(updates) / widened(scales).reshape({-1});
    if (zero_points.defined()) value = value + zero_points.to(at::kFloat).reshape({-1});
    at::Tensor whole = at::empty(updates.sizes(), at::kChar);
    saturate(whole, value);
    const at::Tensor places = indices.to(at::kLong);
    for (int64_t i = 0; i < updates.size(0); ++i) {
        const int64_t start = places[i].item().toLong(), length = updates.size(-2);
        TORCH_CHECK_INDEX(start >= 0 && start + length <= self.size(-2), "index ", start,
                          " is out of bounds for axis -2 of size ", self.size(-2));
        self[i].narrow(-2, start, length).copy_(whole[i]);
    }
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnInplaceQuantScatter, optional(quantZeroPoints);
   check_scatter(selfRef, indices, updates, quantScales, quantZeroPoints, axis, quantAxis, reduction),
   quant_scatter(selfRef, indices, updates, quantScales, quantZeroPoints))
