#include "opapi/aclnn/result_layout.h"

namespace vnpu::opapi {

Laid::Laid(Operand &result) : result_(&result) {
    if (!result.defined() || result.layout() || result.data_dependent() || result.numel() == 0) return;
    place_ = result;
    strides_ = result.strides();
    // With what it holds: some kernels do not write every element.
    if (!result.is_contiguous()) result = result.contiguous();
}

void Laid::again() const {
    if (!place_.defined()) return;
    at::Tensor written = *result_;
    if (written.is_same(place_)) {
        if (written.strides() == at::IntArrayRef(strides_)) return;
        written = written.clone(at::MemoryFormat::Contiguous);
        place_.unsafeGetTensorImpl()->set_sizes_and_strides(place_.sizes(), strides_);
    }
    at::Tensor place = place_;
    place.copy_(written);
    *result_ = place_;
}

}  // namespace vnpu::opapi
