// Moving values as they are, or into another dtype; filling.
#include "opapi/op.h"

OP(aclnnInplaceCopy, expands(selfRef, src), selfRef.copy_(src))
OP(aclnnCast, same_shape(out, self), out.copy_(self))
OP(aclnnInplaceFillScalar, , selfRef.fill_(value.as(selfRef.scalar_type())))
OP(aclnnInplaceFillTensor, shape(value.numel() == 1 ? value : selfRef, value.sizes()), selfRef.fill_(value.view({})))
OP(aclnnInplaceZero, , selfRef.zero_())
OP(aclnnInplaceOne, , selfRef.fill_(1))
