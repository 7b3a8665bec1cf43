// Moving values as they are, or into another dtype; filling.
#include "device/fault.h"
#include "opapi/aclnn/op.h"

namespace vnpu::opapi {
namespace {

void check_one_value(const Operand &value) {
    require(value);
    if (value.numel() != 1)
        fail(FaultKind::InvalidArgument, "parameter value has {} elements, allowed is 1", value.numel());
}

// A cast computes, where a copy only moves.
void copy(at::Tensor &out, const at::Tensor &in) {
    out.copy_(in);
    if (saturates() && out.scalar_type() != in.scalar_type()) keep_finite(out);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnInplaceCopy, expands(selfRef, src), copy(selfRef, src))
OP(aclnnCast, same_shape(out, self), copy(out, self))
OP(aclnnInplaceFillScalar, , selfRef.fill_(value.as(selfRef.scalar_type())))
OP(aclnnInplaceFillTensor, check_one_value(value), selfRef.fill_(value.reshape({})))
OP(aclnnInplaceZero, , selfRef.zero_())
OP(aclnnInplaceOne, , selfRef.fill_(1))
