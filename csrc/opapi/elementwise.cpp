// One value in, one value out: unary functions, arithmetic with broadcasting, comparisons, logic.
#include "opapi/op.h"

#define UNARY(NAME, FUNCTION) OP(NAME, same_shape(out, self), FUNCTION(out, self))

UNARY(aclnnAbs, at::abs_out)
OP(aclnnAdd, broadcasts(out, {&self, &other}), at::add_out(out, self, other, alpha))
OP(aclnnAdds, same_shape(out, self), at::add_out(out, self, at::scalar_tensor(other.get(), out.options()), alpha))
