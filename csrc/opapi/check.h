// First-phase checks. Each throws a Fault that names the parameter, its value and what is allowed; plan() puts the
// operator's name before it and answers with CANN's code (161001 null, 161002 invalid).
#pragma once

#include <initializer_list>

#include "opapi/tensor.h"

namespace vnpu::opapi {

using DTypes = std::initializer_list<at::ScalarType>;

// Parameters that may be null. CANN's naming ("biasOptional") says it already.
template <class... T>
void optional(T &...operands) {
    (operands.allow_null(), ...);
}
void require(const Operand &operand);
void require(const Operands &list);
void require(const ScalarArgument &scalar);

// Outputs whose size the kernel finds.
template <class... T>
void data_dependent(T &...outputs) {
    (outputs.set_data_dependent(), ...);
}

void shape(const Operand &tensor, at::IntArrayRef expected);
// `out` has the shape of `in`.
void same_shape(const Operand &out, const Operand &in);
// `out` has the broadcast shape of the inputs (undefined ones are left out).
void broadcasts(const Operand &out, std::initializer_list<const Operand *> inputs);
// `out` can be written from `in` by broadcasting.
void expands(const Operand &out, const Operand &in);
// `out` has the shape of `in` reduced over `dims` (empty: all).
void reduces(const Operand &out, const Operand &in, at::IntArrayRef dims, bool keepdim);
void rank(const Operand &tensor, std::initializer_list<int64_t> allowed);
void dtype(const Operand &tensor, DTypes allowed);
void floating(const Operand &tensor);   // float16, bfloat16, float32, float64
void integral(const Operand &tensor);   // with bool
void same_dtype(const Operand &a, const Operand &b);
void same_length(const Operands &a, const Operands &b);
void same_dtypes(const Operands &list);  // throughout the list
void one_element(const Operand &tensor);
// dim in [-rank, rank) (a 0-dim tensor counts as 1-dim).
void dimension(int64_t dim, const Operand &tensor);
// Throws NullArgument for the first argument that is null and not optional.
template <class... T>
void required(const T &...arguments) {
    (require(arguments), ...);
}

// "float32[2, 3]"
std::string describe(const at::Tensor &tensor);

}  // namespace vnpu::opapi
