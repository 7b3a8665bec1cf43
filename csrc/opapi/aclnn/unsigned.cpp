#include "opapi/aclnn/unsigned.h"

#include <limits>

namespace vnpu::opapi {
namespace {

at::ScalarType signed_of(at::ScalarType dtype) {
    return dtype == at::kUInt16 ? at::kShort : dtype == at::kUInt32 ? at::kInt : at::kLong;
}

}  // namespace

at::Tensor moved(const at::Tensor &tensor) {
    return kUnsigned.has(tensor.scalar_type()) ? tensor.view(signed_of(tensor.scalar_type())) : tensor;
}

// The lowest unsigned number becomes the lowest signed one: the highest bit is turned over.
at::Tensor ordered(const at::Tensor &tensor) {
    if (!kUnsigned.has(tensor.scalar_type())) return tensor;
    const int64_t highest = std::numeric_limits<int64_t>::min() >> (64 - 8 * tensor.element_size());
    return moved(tensor).bitwise_xor(highest);
}

at::Tensor ordered(const ScalarArgument &number, const at::Tensor &beside) {
    return kUnsigned.has(beside.scalar_type()) ? ordered(at::scalar_tensor(number.get(), beside.options()))
                                               : number.number();
}

}  // namespace vnpu::opapi
