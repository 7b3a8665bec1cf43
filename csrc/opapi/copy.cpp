// Moving values as they are, or into another dtype.
#include "opapi/op.h"

OP(aclnnInplaceCopy, expands(selfRef, src), selfRef.copy_(src))
OP(aclnnCast, same_shape(out, self), out.copy_(self))
OP(aclnnInplaceFillScalar, , selfRef.fill_(value))
OP(aclnnInplaceFillTensor, shape(value, {}), selfRef.fill_(value))
OP(aclnnInplaceZero, , selfRef.zero_())
OP(aclnnInplaceOne, , selfRef.fill_(1))
