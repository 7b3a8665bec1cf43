// Moving values as they are, or into another dtype; filling.
#include "device/fault.h"
#include "opapi/op.h"

namespace vnpu::opapi {
namespace {

void one_value(const Operand &value) {
    require(value);
    if (value.numel() != 1)
        fail(FaultKind::InvalidArgument, "parameter value has {} elements, allowed is 1", value.numel());
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnInplaceCopy, expands(selfRef, src), selfRef.copy_(src))
OP(aclnnCast, same_shape(out, self), out.copy_(self))
OP(aclnnInplaceFillScalar, , selfRef.fill_(value.as(selfRef.scalar_type())))
OP(aclnnInplaceFillTensor, one_value(value), selfRef.fill_(value.reshape({})))
OP(aclnnInplaceZero, , selfRef.zero_())
OP(aclnnInplaceOne, , selfRef.fill_(1))
