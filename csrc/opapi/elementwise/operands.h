// What the first phase checks of two values with one result. A scalar takes part in the promotion as a Python number
// does.
#pragma once

#include "opapi/aclnn/check.h"

namespace vnpu::opapi {

inline void check_binary(const Operand &out, const Operand &self, const Operand &other, DTypes dtypes) {
    dtype(self, dtypes);
    dtype(other, dtypes);
    broadcasts(out, {&self, &other});
    promotes(out, {&self, &other});
}

inline void check_with_number(const Operand &out, const Operand &tensor, const ScalarArgument &number, DTypes dtypes) {
    dtype(tensor, dtypes);
    same_shape(out, tensor);
    promotes(out, tensor, number);
}

// True division and its kin: integers give a float32.
inline void check_to_float(const Operand &out) { dtype(out, kFloats | kComplex); }

}  // namespace vnpu::opapi
