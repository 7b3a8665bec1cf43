// Comparisons, logic and bits. A comparison may write any dtype: in place it keeps the operand's.
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/unsigned.h"

#define LOGIC(NAME, FUNCTION) OP(NAME, check_pair(out, self, other, kAll), FUNCTION(out, self, other))
#define LOGIC_INPLACE(NAME, FUNCTION) \
    OP(NAME, check_pair(selfRef, selfRef, other, kAll), FUNCTION(selfRef, selfRef, other))

#define COMPARE(NAME, DTYPES, FUNCTION) \
    OP(NAME, check_pair(out, self, other, DTYPES), FUNCTION(out, ordered(self), ordered(other)))
#define COMPARE_NUMBER(NAME, DTYPES, FUNCTION) \
    OP(NAME, check_number(out, self, other, DTYPES), FUNCTION(out, ordered(self), ordered(other, self)))
#define COMPARE_INPLACE(NAME, DTYPES, FUNCTION) \
    OP(NAME, check_pair(selfRef, selfRef, other, DTYPES), FUNCTION(selfRef, ordered(selfRef), ordered(other)))
#define COMPARE_NUMBER_INPLACE(NAME, DTYPES, FUNCTION)      \
    OP(NAME, check_number(selfRef, selfRef, other, DTYPES), \
       FUNCTION(selfRef, ordered(selfRef), ordered(other, selfRef)))

// Bits, unlike comparisons, promote.
#define BITS(NAME, FUNCTION) \
    OP(NAME, check_pair(out, self, other, kBits); promotes(out, {&self, &other}), FUNCTION(out, self, other))
#define BITS_NUMBER(NAME, FUNCTION) \
    OP(NAME, check_number(out, self, other, kBits); promotes(out, self, other), FUNCTION(out, self, other.number()))
#define BITS_INPLACE(NAME, FUNCTION)                     \
    OP(NAME, check_pair(selfRef, selfRef, other, kBits); \
       promotes(selfRef, {&selfRef, &other}), FUNCTION(selfRef, selfRef, other))
#define BITS_NUMBER_INPLACE(NAME, FUNCTION)                \
    OP(NAME, check_number(selfRef, selfRef, other, kBits); \
       promotes(selfRef, selfRef, other), FUNCTION(selfRef, selfRef, other.number()))

namespace vnpu::opapi {
namespace {

constexpr DTypes kOrdered = kReals | at::kBool | kUnsigned;
constexpr DTypes kBits = kIntsAndBool | kUnsigned;

void check_pair(const Operand &out, const Operand &self, const Operand &other, DTypes dtypes) {
    dtype(self, dtypes);
    dtype(other, dtypes);
    dtype(out, kAll | kUnsigned);
    broadcasts(out, {&self, &other});
}

void check_number(const Operand &out, const Operand &self, const ScalarArgument &other, DTypes dtypes) {
    dtype(self, dtypes);
    dtype(out, kAll | kUnsigned);
    require(other);
    promotable(self, other);  // the table knows of those that have one check for numbers and tensors
    same_shape(out, self);
}

}  // namespace
}  // namespace vnpu::opapi

COMPARE(aclnnEqTensor, kAll | kUnsigned, at::eq_out)
COMPARE(aclnnNeTensor, kAll | kUnsigned, at::ne_out)
COMPARE(aclnnLtTensor, kOrdered, at::lt_out)
COMPARE(aclnnLeTensor, kOrdered, at::le_out)
COMPARE(aclnnGtTensor, kOrdered, at::gt_out)
COMPARE(aclnnGeTensor, kOrdered, at::ge_out)
COMPARE_NUMBER(aclnnEqScalar, kAll | kUnsigned, at::eq_out)
COMPARE_NUMBER(aclnnNeScalar, kAll, at::ne_out)
COMPARE_NUMBER(aclnnLtScalar, kOrdered, at::lt_out)
COMPARE_NUMBER(aclnnLeScalar, kOrdered, at::le_out)
COMPARE_NUMBER(aclnnGtScalar, kOrdered, at::gt_out)
COMPARE_NUMBER(aclnnGeScalar, kOrdered, at::ge_out)
COMPARE_INPLACE(aclnnInplaceEqTensor, kAll | kUnsigned, at::eq_out)
COMPARE_INPLACE(aclnnInplaceNeTensor, kAll, at::ne_out)
COMPARE_INPLACE(aclnnInplaceLtTensor, kOrdered, at::lt_out)
COMPARE_INPLACE(aclnnInplaceLeTensor, kOrdered, at::le_out)
COMPARE_INPLACE(aclnnInplaceGtTensor, kOrdered, at::gt_out)
COMPARE_INPLACE(aclnnInplaceGeTensor, kOrdered, at::ge_out)
COMPARE_NUMBER_INPLACE(aclnnInplaceEqScalar, kAll | kUnsigned, at::eq_out)
COMPARE_NUMBER_INPLACE(aclnnInplaceNeScalar, kAll, at::ne_out)
COMPARE_NUMBER_INPLACE(aclnnInplaceLtScalar, kOrdered, at::lt_out)
COMPARE_NUMBER_INPLACE(aclnnInplaceLeScalar, kOrdered, at::le_out)
COMPARE_NUMBER_INPLACE(aclnnInplaceGtScalar, kOrdered, at::gt_out)
COMPARE_NUMBER_INPLACE(aclnnInplaceGeScalar, kOrdered, at::ge_out)

LOGIC(aclnnLogicalAnd, at::logical_and_out)
LOGIC(aclnnLogicalOr, at::logical_or_out)
LOGIC(aclnnLogicalXor, at::logical_xor_out)
LOGIC_INPLACE(aclnnInplaceLogicalAnd, at::logical_and_out)
LOGIC_INPLACE(aclnnInplaceLogicalOr, at::logical_or_out)
OP(aclnnLogicalNot, dtype(self, kAll); dtype(out, kAll); same_shape(out, self), at::logical_not_out(out, self))
OP(aclnnInplaceLogicalNot, dtype(selfRef, kAll), at::logical_not_out(selfRef, selfRef))

BITS(aclnnBitwiseAndTensor, at::bitwise_and_out)
BITS(aclnnBitwiseOrTensor, at::bitwise_or_out)
BITS(aclnnBitwiseXorTensor, at::bitwise_xor_out)
BITS_NUMBER(aclnnBitwiseAndScalar, at::bitwise_and_out)
BITS_NUMBER(aclnnBitwiseOrScalar, at::bitwise_or_out)
BITS_NUMBER(aclnnBitwiseXorScalar, at::bitwise_xor_out)
BITS_INPLACE(aclnnInplaceBitwiseAndTensor, at::bitwise_and_out)
BITS_INPLACE(aclnnInplaceBitwiseXorTensor, at::bitwise_xor_out)
BITS_NUMBER_INPLACE(aclnnInplaceBitwiseAndScalar, at::bitwise_and_out)
BITS_NUMBER_INPLACE(aclnnInplaceBitwiseXorScalar, at::bitwise_xor_out)

// Whether all elements are equal.
OP(aclnnEqual, same_dtype(other, self); dtype(self, kOrdered); one_element(out);
   dtype(out, at::kBool), out.fill_(self.sizes() == other.sizes() && at::equal(moved(self), moved(other))))
// |self - other| <= atol + rtol * |other|; ATen composes it with temporaries of the operands' size.
OP(aclnnIsClose, check_pair(out, self, other, kReals | at::kBool); same_dtype(other, self);
   dtype(out, at::kBool), out.copy_(at::isclose(self, other, rtol, atol, equalNan)))
