// First-phase checks. Each throws a Fault that names the parameter, its value and what is allowed; plan() puts the
// operator's name before it and answers with CANN's code (161001 null, 161002 invalid).
#pragma once

#include <cstdint>
#include <initializer_list>

#include "device/chip.h"
#include "device/live_memory.h"
#include "opapi/aclnn/tensor.h"

namespace vnpu::opapi {

// A set of dtypes: dtype(self, kNative | at::kInt).
class DTypes {
  public:
    constexpr DTypes(std::initializer_list<at::ScalarType> dtypes) {
        for (const at::ScalarType dtype : dtypes) bits_ |= bit(dtype);
    }
    constexpr DTypes(at::ScalarType dtype) : bits_(bit(dtype)) {}
    constexpr DTypes operator|(DTypes other) const { return DTypes(bits_ | other.bits_); }
    constexpr bool has(at::ScalarType dtype) const { return (bits_ & bit(dtype)) != 0; }
    constexpr bool none() const { return bits_ == 0; }
    static constexpr DTypes every() { return DTypes(~uint64_t{0}); }

  private:
    constexpr explicit DTypes(uint64_t bits) : bits_(bits) {}
    static constexpr uint64_t bit(at::ScalarType dtype) { return uint64_t{1} << static_cast<int>(dtype); }
    uint64_t bits_ = 0;
};

inline constexpr DTypes kEveryDtype = DTypes::every();
// The sets that CANN's documentation keeps combining.
inline constexpr DTypes kNative{at::kFloat, at::kHalf, at::kBFloat16};  // what the cores compute in
inline constexpr DTypes kFloats = kNative | at::kDouble;
inline constexpr DTypes kInts{at::kChar, at::kByte, at::kShort, at::kInt, at::kLong};
inline constexpr DTypes kIntsAndBool = kInts | at::kBool;
inline constexpr DTypes kReals = kFloats | kInts;
inline constexpr DTypes kUnsigned{at::kUInt16, at::kUInt32, at::kUInt64};  // unsigned.h
inline constexpr DTypes kComplex{at::kComplexFloat, at::kComplexDouble};
inline constexpr DTypes kAll = kFloats | kIntsAndBool | kComplex;

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
// The dimension of each output of which the kernel decides how long it is, the same for all of them: dry mode does it
// without the kernel.
struct FoundAlong {
    Operand *output;
    int64_t dimension = 0;
};
void found_along(std::initializer_list<FoundAlong> outputs);

void shape(const Operand &tensor, at::IntArrayRef expected);
// `out` has the shape of `in`.
void same_shape(const Operand &out, const Operand &in);
// `out` has the broadcast shape of the inputs (undefined ones are left out).
void broadcasts(const Operand &out, std::initializer_list<const Operand *> inputs);
// The dtype that the inputs promote to, by torch's rules, can be written to `out` (undefined ones are left out).
void promotes(const Operand &out, std::initializer_list<const at::Tensor *> inputs);
void promotes(const Operand &out, const Operand &tensor, const ScalarArgument &number);
// Refuses a wide unsigned integer beside another dtype, which has no common type with it (opbase: data_type_utils.h).
void promotable(const Operand &self, const Operand &other);
void promotable(const Operand &self, const ScalarArgument &other);
// `out` can be written from `in` by broadcasting.
void expands(const Operand &out, const Operand &in);
// `out` has the shape of `in` reduced over `dims` (empty: all).
void reduces(const Operand &out, const Operand &in, at::IntArrayRef dims, bool keepdim);
// At least two dimensions.
void matrices(const Operand &tensor);
void rank(const Operand &tensor, std::initializer_list<int64_t> allowed);
void dtype(const Operand &tensor, DTypes allowed);
inline void floating(const Operand &tensor) { dtype(tensor, kFloats); }
inline void integral(const Operand &tensor) { dtype(tensor, kIntsAndBool); }
void same_dtype(const Operand &a, const Operand &b);
void same_length(const Operands &a, const Operands &b);
void same_dtypes(const Operands &list);  // throughout the list
void one_element(const Operand &tensor);
// dtype() for parameters that may be null.
void examine(const Named &parameter, at::ScalarType found,
             DTypes allowed);  // what the chip lacks, and what VNPU_CHECKS=any allows all the same
inline void offered(DTypes allowed, const Operand &tensor) {
    if (!tensor.defined() || (allowed.has(tensor.scalar_type()) && tensor.scalar_type() != at::kBFloat16)) return;
    examine(tensor, tensor.scalar_type(), allowed);
}
inline void offered(DTypes allowed, const Operands &list) {
    for (const Operand &tensor : list) offered(allowed, tensor);
}
// The most dimensions that CANN's own check lets pass; null passes.
void too_many_dimensions(const Operand &tensor, int64_t most);

// What the chips of one generation take of one parameter: of every operator's line (checks.json, check_rows.py).
struct Taken {
    DTypes dtypes;
    int8_t most_dimensions;
    void check(const Operand &tensor) const {
        if (!tensor.defined()) return;
        if (!dtypes.has(tensor.scalar_type())) examine(tensor, tensor.scalar_type(), dtypes);
        if (tensor.dim() > most_dimensions) too_many_dimensions(tensor, most_dimensions);
    }
    void check(const Operands &list) const {
        for (const Operand &tensor : list) check(tensor);
    }
    void check(const ScalarArgument &scalar) const {
        if (scalar.has_value() && !dtypes.has(scalar.dtype())) examine(scalar, scalar.dtype(), dtypes);
    }
};
// The generation of this machine's chip.
size_t generation();
template <size_t N, class... T>
void taken(const Taken (&allowed)[N], const T &...parameters) {
    static_assert(N == sizeof...(T));
    size_t i = 0;
    (allowed[i++].check(parameters), ...);
}
// Those that are given have one dtype.
void equal_dtypes(const Operand &a, const Operand &b);
void equal_dtypes(const Operands &list, const Operand &one);
void equal_dtypes(const Operand &one, const Operands &list);
void equal_dtypes(const Operands &a, const Operands &b);
// dim in [-rank, rank) (a 0-dim tensor counts as 1-dim).
void dimension(int64_t dim, const Operand &tensor);
// Throws NullArgument for the first argument that is null and not optional.
template <class... T>
void required(const T &...arguments) {
    (require(arguments), ...);
}

// Bytes of a tensor of these sizes, one element behind another. Fault InvalidArgument when no address could count them.
uint64_t whole(at::IntArrayRef sizes, uint64_t itemsize);

// Fault where an operand does not lie, as far as its view reaches, in one live allocation of the device.
void live(const Operand &operand, int device);
void live(const Operands &list, int device);
inline void live(const ScalarArgument &, int) {}
// For the operands of a kernel that is about to run, every time: what a graph replays, and what other devices free, was
// checked long ago.
template <class... T>
void live_now(const T &...arguments) {
    [[maybe_unused]] const int device = running_device();
    (live(arguments, device), ...);
}

// Elements of all tensors among the arguments.
inline int64_t elements_of(const at::Tensor &tensor) { return tensor.defined() ? tensor.numel() : 0; }
inline int64_t elements_of(const ScalarArgument &) { return 0; }
inline int64_t elements_of(const Operands &list) {
    int64_t sum = 0;
    for (const Operand &tensor : list) sum += elements_of(static_cast<const at::Tensor &>(tensor));
    return sum;
}
template <class... T>
int64_t elements(const T &...arguments) {
    return (elements_of(arguments) + ... + 0);
}

// The dtype of the first tensor among these, float32 where there is none.
inline std::optional<at::ScalarType> dtype_of(const at::Tensor &tensor) {
    return tensor.defined() ? std::optional(tensor.scalar_type()) : std::nullopt;
}
inline std::optional<at::ScalarType> dtype_of(const Operands &list) {
    return list.empty() ? std::nullopt : dtype_of(static_cast<const at::Tensor &>(list.front()));
}
template <class... T>
at::ScalarType first_dtype(const T &...tensors) {
    std::optional<at::ScalarType> first;
    (void)((first = dtype_of(tensors)).has_value() || ...);
    return first.value_or(at::kFloat);
}

// "float32[2, 3]"
std::string describe(const at::Tensor &tensor);

}  // namespace vnpu::opapi
