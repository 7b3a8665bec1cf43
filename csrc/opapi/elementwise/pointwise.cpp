// Three operands and more, element by element: clamp, where, lerp, addcmul, addcdiv.
#include "aclnn_mindspore.h"
#include "device/fault.h"
#include "opapi/aclnn/number.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/unsigned.h"
#include "opapi/elementwise/weighed.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kClamped = kReals;
constexpr DTypes kMulAdd = kFloats | at::kInt | at::kLong | at::kChar | at::kByte;
constexpr DTypes kDivAdd = kFloats | at::kLong;

void check_clamp(Operand &out, const Operand &self, ScalarArgument &low, ScalarArgument &high) {
    optional(low, high);
    dtype(self, kClamped | at::kBool);
    same_shape(out, self);
    if (!low.has_value() && !high.has_value())
        fail(FaultKind::NullArgument, "parameters {} and {} are null: one is needed", low.parameter(),
             high.parameter());
    if (low.has_value()) promotes(out, self, low);
    if (high.has_value()) promotes(out, self, high);
}

void check_clamp(Operand &out, const Operand &self, Operand &low, Operand &high) {
    optional(low, high);
    dtype(self, kClamped);
    if (!low.defined() && !high.defined())
        fail(FaultKind::NullArgument, "parameters {} and {} are null: one is needed", low.parameter(),
             high.parameter());
    broadcasts(out, {&self, &low, &high});
    promotes(out, {&self, &low, &high});
}

void check_bound(const Operand &out, const Operand &self, const ScalarArgument &limit) {
    dtype(self, kClamped);
    same_shape(out, self);
    promotes(out, self, limit);
}

void check_bound(const Operand &out, const Operand &self, const Operand &limit) {
    dtype(self, kClamped);
    dtype(limit, kClamped | at::kBool);
    broadcasts(out, {&self, &limit});
    promotes(out, {&self, &limit});
}

// Past the dtype's range a bound is infinite; ATen would refuse it.
std::optional<at::Scalar> limit(const ScalarArgument &bound, const at::Tensor &out) {
    return bound.has_value() ? std::optional<at::Scalar>(bound.as(out.scalar_type())) : std::nullopt;
}

// ATen's kernel writes the promoted dtype alone.
void clamp(at::Tensor &out, const at::Tensor &self, const std::optional<at::Scalar> &low,
           const std::optional<at::Scalar> &high) {
    if (out.scalar_type() == self.scalar_type())
        at::clamp_out(out, self, low, high);
    else
        out.copy_(at::clamp(self, low, high));
}

void check_lerp(const Operand &out, const Operand &self, const Operand &end) {
    dtype(self, kNative);
    same_dtype(end, self);
    same_dtype(out, self);
}

// Of a number as weight. CANN says what it was checking behind what was wrong, and programs look for those words
// (ops-math: aclnn_lerp_scalar.cpp).
void check_lerp_broadcasts(const Operand &out, const Operand &self, const Operand &end) {
    try {
        broadcasts(out, {&self, &end});
    } catch (const Fault &fault) {
        throw Fault(fault.kind(), fmt::format("{}; CheckShape failed!", fault.what()));
    }
}

void check_three(const Operand &out, const Operand &self, const Operand &a, const Operand &b, DTypes dtypes) {
    for (const Operand *in : {&self, &a, &b}) dtype(*in, dtypes);
    broadcasts(out, {&self, &a, &b});
    promotes(out, {&self, &a, &b});
}

void check_divide(const Operand &out, const Operand &self, const Operand &a, const Operand &b) {
    check_three(out, self, a, b, kDivAdd);
    // ATen refuses integer division in addcdiv; so does torch_npu, which knows both dtypes.
    if (!a.is_floating_point() && !b.is_floating_point())
        fail(FaultKind::InvalidArgument, "parameters {} and {} both hold integers, whose quotient is not defined here",
             a.parameter(), b.parameter());
}

void check_choose(const Operand &out, const Operand &condition, const Operand &self, const Operand &other) {
    dtype(condition, {at::kBool, at::kByte});
    for (const Operand *value : {&self, &other}) dtype(*value, kAll | kUnsigned);
    broadcasts(out, {&condition, &self, &other});
    promotes(out, {&self, &other});
}

// ATen's where wants operands of one dtype and a bool condition.
void choose(at::Tensor &out, const at::Tensor &condition, const at::Tensor &self, const at::Tensor &other) {
    const auto cast = [&](const at::Tensor &value) { return moved(value.to(out.scalar_type())); };
    at::Tensor to = moved(out);
    at::where_out(to, condition.to(at::kBool), cast(self), cast(other));
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnClamp, check_clamp(out, self, clipValueMin, clipValueMax),
   clamp(out, self, limit(clipValueMin, out), limit(clipValueMax, out)))
OP(aclnnClampTensor, check_clamp(out, self, clipValueMin, clipValueMax),
   at::clamp_out(out, self, clipValueMin.maybe(), clipValueMax.maybe()))
OP(aclnnClampMin, check_bound(out, self, clipValueMin), clamp(out, self, limit(clipValueMin, out), std::nullopt))
OP(aclnnClampMax, check_bound(out, self, clipValueMax), clamp(out, self, std::nullopt, limit(clipValueMax, out)))
OP(aclnnClampMinTensor, check_bound(out, self, clipValueMin), at::clamp_min_out(out, self, clipValueMin))
OP(aclnnClampMaxTensor, check_bound(out, self, max), at::clamp_max_out(out, self, max))
OP(aclnnInplaceClampMax, check_bound(selfRef, selfRef, clipValueMax),
   at::clamp_max_out(selfRef, selfRef, clipValueMax.as(selfRef.scalar_type())))
OP(aclnnInplaceClampMinTensor, check_bound(selfRef, selfRef, clipValueMin),
   at::clamp_min_out(selfRef, selfRef, clipValueMin))
OP(aclnnInplaceClampMaxTensor, check_bound(selfRef, selfRef, max), at::clamp_max_out(selfRef, selfRef, max))

OP(aclnnLerp, check_lerp(out, self, end); same_dtype(weight, self);
   broadcasts(out, {&self, &end, &weight}), at::lerp_out(out, self, end, weight))
OP(aclnnLerps, check_lerp(out, self, end);
   check_lerp_broadcasts(out, self, end), at::lerp_out(out, self, end, computed(weight, out)))
OP(aclnnInplaceLerp, check_lerp(selfRef, selfRef, end); same_dtype(weight, selfRef);
   broadcasts(selfRef, {&selfRef, &end, &weight}), at::lerp_out(selfRef, selfRef, end, weight))
OP(aclnnInplaceLerps, check_lerp(selfRef, selfRef, end);
   check_lerp_broadcasts(selfRef, selfRef, end), at::lerp_out(selfRef, selfRef, end, computed(weight, selfRef)))

OP(aclnnAddcmul, check_three(out, self, tensor1, tensor2, kMulAdd),
   product_added(out, self, tensor1, tensor2, computed(value, out)))
OP(aclnnInplaceAddcmul, check_three(selfRef, selfRef, tensor1, tensor2, kMulAdd),
   product_added(selfRef, selfRef, tensor1, tensor2, computed(value, selfRef)))
OP(aclnnAddcdiv, check_divide(out, self, tensor1, tensor2),
   quotient_added(out, self, tensor1, tensor2, computed(value, out)))
OP(aclnnInplaceAddcdiv, check_divide(selfRef, selfRef, tensor1, tensor2),
   quotient_added(selfRef, selfRef, tensor1, tensor2, computed(value, selfRef)))

OP(aclnnSWhere, check_choose(out, condition, self, other), choose(out, condition, self, other))
// Its interface is generated from the operator's definition (ops-math: select_v2_def.cpp).
OP(aclnnSelectV2, dtype(condition, at::kBool); check_choose(y, condition, x1, x2); same_dtype(x1, y);
   same_dtype(x2, y), choose(y, condition, x1, x2))
