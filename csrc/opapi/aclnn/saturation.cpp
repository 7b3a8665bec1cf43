#include "device/overflow.h"
#include "opapi/aclnn/op.h"

namespace vnpu::opapi {

void keep_finite(const at::Tensor &result) {
    if (!result.defined() || result.scalar_type() != at::kHalf || at::isfinite(result).all().item<bool>()) return;
    raise_overflow();
    at::Tensor finite = result;
    at::nan_to_num_(finite, 0);
}

}  // namespace vnpu::opapi
