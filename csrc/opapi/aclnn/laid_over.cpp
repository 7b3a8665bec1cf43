#include "opapi/aclnn/laid_over.h"

#include "device/fault.h"
#include "device/machine.h"

namespace vnpu::opapi {

void *alias_of(void *address) {
    AddressSpace &space = Machine::instance().space();
    if (!space.contains(address))
        fail(FaultKind::InvalidAddress, "{} is not device memory: an operator of the virtual NPU cannot use it.",
             address);
    return space.alias(address);
}

at::Tensor laid_over(void *data, uint64_t bytes, caffe2::TypeMeta dtype, at::IntArrayRef sizes, at::IntArrayRef strides,
                     int64_t offset) {
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(data, at::Device(at::kCPU)), nullptr,
                         false);
    at::Tensor tensor =
        at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), dtype);
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
    return tensor;
}

}  // namespace vnpu::opapi
