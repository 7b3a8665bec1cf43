// uint16, uint32 and uint64, which CANN's operators take and most of ATen's CPU kernels do not know.
#pragma once

#include "opapi/aclnn/check.h"

namespace vnpu::opapi {

// For what moves elements and looks at none: the same bytes with the signed dtype of their width. Other dtypes stay.
at::Tensor moved(const at::Tensor &tensor);
// For what compares: signed elements in the same order, a copy. Other dtypes stay.
at::Tensor ordered(const at::Tensor &tensor);
at::Tensor ordered(const ScalarArgument &number, const at::Tensor &beside);

}  // namespace vnpu::opapi
