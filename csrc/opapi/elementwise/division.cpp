// Quotients and remainders. Of integers ATen notices a division by zero; hardware does not (limits.h): a remainder is
// the dividend there (ops-math: floor_mod_proto.h). What a quotient is, and the remainder of fmod, no source says: here
// they are 0 and the dividend, so that a = (a / b) * b + remainder holds.
#include <ATen/native/BinaryOps.h>

#include <cmath>

#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/number.h"
#include "opapi/aclnn/op.h"
#include "opapi/elementwise/operands.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kWhole = kReals | at::kBool;
constexpr DTypes kRemainder = kFloats | at::kInt | at::kLong;
constexpr DTypes kFmod = kRemainder | at::kChar | at::kByte;

enum class Gives { Zero, Dividend };

const char *by_zero(Gives gives) {
    return gives == Gives::Zero ? "a division of integers by zero gives a number that is not documented, here 0"
                                : "a division of integers by zero leaves the dividend as the remainder";
}

// DivMod's mode: torch's rounding_mode None, "trunc", "floor".
std::optional<std::string_view> rounding(int mode) {
    switch (mode) {
        case 0:
            return std::nullopt;
        case 1:
            return "trunc";
        case 2:
            return "floor";
        default:
            fail(FaultKind::InvalidArgument, "parameter mode is {}, allowed are 0 (real), 1 (trunc), 2 (floor)", mode);
    }
}

// An integer divided by the number 0, which is known before the kernel starts.
bool by_nothing(const Operand &out, const ScalarArgument &number) {
    return at::isIntegralType(out.scalar_type(), true) && number.get().isIntegral(true) && number.get().toLong() == 0;
}

void check_divisor(const Operand &out, const ScalarArgument &number, Gives gives) {
    if (by_nothing(out, number) && !bugs_hidden())
        fail(FaultKind::InvalidArgument, "parameter {} is 0, and {} holds integers{}", number.parameter(),
             out.parameter(), hidden_on_hardware(by_zero(gives)));
}

// Of a true quotient by a number only the dividend has to fit the result (ops-math: aclnn_div.cpp).
void check_by_real(const Operand &out, const Operand &self, const ScalarArgument &number) {
    require(number);
    if (number.has_value() && number.get().isComplex()) return check_with_number(out, self, number, kAll);
    dtype(self, kAll);
    same_shape(out, self);
    promotes(out, {&self});
}

void check_divide(const Operand &out, const Operand &self, const ScalarArgument &number, int mode) {
    if (!rounding(mode)) return check_by_real(out, self, number);
    check_with_number(out, self, number, kAll);
    check_divisor(out, number, Gives::Zero);
}

// Any two whose common dtype the kernel computes in (ops-math: aclnn_remainder.cpp).
void check_remainder(const Operand &out, const Operand &self, const Operand &other) {
    check_binary(out, self, other, kWhole);
    const at::ScalarType common = c10::promoteTypes(self.scalar_type(), other.scalar_type());
    on_chip(kRemainder.has(common),
            "Promote type should be in dtype support list: parameters self and other are {} and {}, which have {} in "
            "common, allowed are int32, int64 and the floating-point dtypes",
            describe(self), describe(other), c10::toString(common));
}

// divide(divisor) writes to `out`, which may be the dividend.
template <class Divide>
void by_tensor(at::Tensor &out, const at::Tensor &dividend, const at::Tensor &divisor, Gives gives, Divide divide) {
    if (!at::isIntegralType(out.scalar_type(), true)) return divide(divisor);
    if (!bugs_hidden()) return noticing("ZeroDivisionError", by_zero(gives), [&] { divide(divisor); });
    const at::Tensor zero = divisor == 0;
    const at::Tensor instead =
        gives == Gives::Zero ? at::zeros({}, out.options()) : dividend.to(out.scalar_type(), false, true);
    divide(divisor.masked_fill(zero, 1));
    out.copy_(at::where(zero, instead, out));
}

template <class Divide>
void by_number(Operand &out, const at::Tensor &dividend, const ScalarArgument &number, Gives gives, Divide divide) {
    if (!by_nothing(out, number)) return divide();
    gives == Gives::Zero ? out.zero_() : out.copy_(dividend);
}

// A true quotient. Integers take it without its fraction, as the cast behind hardware's division leaves it (ops-math:
// aclnn_div.cpp); that division is of float32, but for two int32, which it divides as they are.
void quotient(at::Tensor &out, const at::Tensor &self, const at::Tensor &other) {
    const at::ScalarType to = out.scalar_type();
    if (!at::isIntegralType(to, true)) {
        at::div_out(out, self, other);
        return;
    }
    const at::ScalarType wide =
        self.scalar_type() == at::kInt && other.scalar_type() == at::kInt ? at::kDouble : at::kFloat;
    at::Tensor result = at::div(self.to(wide), other.to(wide)).to(at::kDouble);
    if (to == at::kBool) {
        out.copy_(result);
        return;
    }
    const bool is_signed = at::isSignedType(to);
    const double past = std::ldexp(1.0, static_cast<int>(8 * out.element_size()) - (is_signed ? 1 : 0));
    result.nan_to_num_(0, INFINITY, -INFINITY).clamp_(is_signed ? -past : 0.0, std::nextafter(past, 0.0));
    out.copy_(result);
}

void divided(at::Tensor &out, const at::Tensor &self, const at::Tensor &other, int mode) {
    if (!rounding(mode)) return quotient(out, self, other);
    by_tensor(out, self, other, Gives::Zero, [&](const at::Tensor &by) { at::div_out(out, self, by, rounding(mode)); });
}

void divided(Operand &out, const at::Tensor &self, const ScalarArgument &other, int mode) {
    if (!rounding(mode)) return quotient(out, self, other.number());
    by_number(out, self, other, Gives::Zero, [&] { at::div_out(out, self, other.number(), rounding(mode)); });
}

}  // namespace
}  // namespace vnpu::opapi

// NAME and Inplace NAME, by a tensor and by a number
#define BY_TENSOR(NAME, OUT, SELF, DTYPES, GIVES, FUNCTION) \
    OP(NAME, check_binary(OUT, SELF, other, DTYPES),        \
       by_tensor(OUT, SELF, other, GIVES, [&](const at::Tensor &by) { FUNCTION(OUT, SELF, by); }))
#define BY_NUMBER(NAME, OUT, SELF, DTYPES, GIVES, FUNCTION) \
    OP(NAME, check_with_number(OUT, SELF, other, DTYPES);   \
       check_divisor(OUT, other, GIVES),                    \
       by_number(OUT, SELF, other, GIVES, [&] { FUNCTION(OUT, SELF, other.number()); }))

OP(aclnnDiv, check_binary(out, self, other, kAll), quotient(out, self, other))
OP(aclnnDivs, check_by_real(out, self, other), quotient(out, self, other.number()))
OP(aclnnInplaceDiv, check_binary(selfRef, selfRef, other, kAll), quotient(selfRef, selfRef, other))
OP(aclnnInplaceDivs, check_by_real(selfRef, selfRef, other), quotient(selfRef, selfRef, other.number()))
OP(aclnnDivMod, check_binary(out, self, other, kAll); rounding(mode), divided(out, self, other, mode))
OP(aclnnInplaceDivMod, check_binary(selfRef, selfRef, other, kAll);
   rounding(mode), divided(selfRef, selfRef, other, mode))
OP(aclnnDivMods, check_divide(out, self, other, mode), divided(out, self, other, mode))
OP(aclnnInplaceDivMods, check_divide(selfRef, selfRef, other, mode), divided(selfRef, selfRef, other, mode))

BY_TENSOR(aclnnFloorDivide, out, self, kWhole, Gives::Zero, at::floor_divide_out)
BY_NUMBER(aclnnFloorDivides, out, self, kWhole, Gives::Zero, at::floor_divide_out)
BY_TENSOR(aclnnInplaceFloorDivide, selfRef, selfRef, kWhole, Gives::Zero, at::floor_divide_out)
BY_NUMBER(aclnnInplaceFloorDivides, selfRef, selfRef, kWhole, Gives::Zero, at::floor_divide_out)

OP(aclnnRemainderTensorTensor, check_remainder(out, self, other),
   by_tensor(out, self, other, Gives::Dividend, [&](const at::Tensor &by) { at::remainder_out(out, self, by); }))
BY_NUMBER(aclnnRemainderTensorScalar, out, self, kRemainder, Gives::Dividend, at::remainder_out)
OP(aclnnRemainderScalarTensor, check_with_number(out, other, self, kRemainder),
   by_tensor(out, self.number(), other, Gives::Dividend,
             [&](const at::Tensor &by) { at::remainder_out(out, self.number(), by); }))
OP(aclnnInplaceRemainderTensorTensor, check_remainder(selfRef, selfRef, other),
   by_tensor(selfRef, selfRef, other, Gives::Dividend,
             [&](const at::Tensor &by) { at::remainder_out(selfRef, selfRef, by); }))
BY_NUMBER(aclnnInplaceRemainderTensorScalar, selfRef, selfRef, kRemainder, Gives::Dividend, at::remainder_out)

BY_TENSOR(aclnnFmodTensor, out, self, kFmod, Gives::Dividend, at::fmod_out)
BY_NUMBER(aclnnFmodScalar, out, self, kFmod, Gives::Dividend, at::fmod_out)
BY_TENSOR(aclnnInplaceFmodTensor, selfRef, selfRef, kFmod, Gives::Dividend, at::fmod_out)
BY_NUMBER(aclnnInplaceFmodScalar, selfRef, selfRef, kFmod, Gives::Dividend, at::fmod_out)
