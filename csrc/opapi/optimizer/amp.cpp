// Loss scaling: what GradScaler calls. In CANN's INF_NAN mode an overflow in fp16 stays an infinity, and looking at the
// gradients is enough; in saturation it does not show there, and programs read the device's status.
#include "opapi/aclnn/op.h"
#include "opapi/aclop/legacy.h"

namespace vnpu::opapi {
namespace {

void check_one_float(const Operand &tensor) {
    dtype(tensor, at::kFloat);
    one_element(tensor);
}

void check_unscale(const Operands &grads, const Operand &found_inf, const Operand &inverse_scale) {
    check_one_float(found_inf);
    check_one_float(inverse_scale);
    for (const Operand &grad : grads) dtype(grad, kNative);
    same_dtypes(grads);
}

void check_update(const Operand &scale, const Operand &tracker, const Operand &found_inf) {
    for (const Operand *number : {&scale, &found_inf}) {
        dtype(*number, kNative);
        one_element(*number);
    }
    dtype(tracker, at::kInt);
    one_element(tracker);
}

// The tracker counts steps without an overflow; the scale grows after `interval` of them, unless to infinity.
void update(at::Tensor &scale, at::Tensor &tracker, const at::Tensor &found_inf, double growth, double backoff,
            int64_t interval) {
    at::Tensor wide = scale.to(at::kFloat);  // ATen's kernel takes no other
    at::_amp_update_scale_(wide, tracker, found_inf.to(at::kFloat), growth, backoff, interval);
    scale.copy_(wide);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnForeachNonFiniteCheckAndUnscale, check_unscale(scaledGrads, foundInf, invScale),
   at::_amp_foreach_non_finite_check_and_unscale_(scaledGrads.tensors(), foundInf, invScale))

OP(aclnnAmpUpdateScale, check_update(currentScale, growthTracker, foundInf);
   check_update(updatedScale, updatedGrowthTracker, foundInf); same_shape(updatedScale, currentScale);
   same_shape(updatedGrowthTracker, growthTracker), updatedScale.copy_(currentScale);
   updatedGrowthTracker.copy_(growthTracker);
   update(updatedScale, updatedGrowthTracker, foundInf, growthFactor, backoffFactor, growthInterval))

LEGACY(NPUAllocFloatStatus, out[0], out[0].zero_())
LEGACY(NPUGetFloatStatusV2, out[0], out[0].fill_(vnpu::overflowed() ? 1 : 0))
LEGACY(NPUClearFloatStatusV2, , vnpu::clear_overflow())
LEGACY(NPUGetFloatDebugStatus, out[0], out[0].fill_(vnpu::overflowed(vnpu::OverflowStatus::Debug) ? 1 : 0))
LEGACY(NPUClearFloatDebugStatus, , vnpu::clear_overflow(vnpu::OverflowStatus::Debug))
// The versions of chips that saturate write into their input, which torch_npu reads.
LEGACY(NPUGetFloatStatus, in[0], in[0].fill_(vnpu::overflowed() ? 1 : 0))
LEGACY(NPUClearFloatStatus, , vnpu::clear_overflow())
