// Root mean square normalisation with quantisation behind it, in fp32; the integers are the only rounding.
#include "opapi/quantization/quantization.h"

namespace vnpu::opapi {
namespace {

using namespace quantization;

// A result of int8, or of int4 packed in int32.
void check_narrow(const Operand &y, const Operand &x) {
    dtype(y, {at::kChar, at::kInt});
    if (x.sizes() != unpacked_sizes(y))
        fail(FaultKind::InvalidArgument,
             "parameter {} is {}, expected the shape of {} ({}), with an eighth of its last "
             "size as int32",
             y.parameter(), describe(y), x.parameter(), describe(x));
}
Bounds range_of(const at::Tensor &y) { return packed(y) ? Bounds{-8, 7} : range(y.scalar_type()); }
void store(at::Tensor &y, const at::Tensor &value) { packed(y) ? pack_int4(y, value) : saturate(y, value); }

void check_rms(const Operand &x, const Operand &gamma, const Operand &beta,
               std::initializer_list<const Operand *> results) {
    network(x, gamma, beta);
    rank(gamma, {1, 2});  // torch_npu passes [n] or [1, n]
    if (x.dim() == 0 || gamma.numel() != x.size(-1))
        fail(FaultKind::InvalidArgument, "parameter gamma is {}, expected the last size of {}", describe(gamma),
             describe(x));
    if (beta.defined() && beta.numel() != gamma.numel())
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected {}", beta.parameter(), describe(beta),
             describe(gamma));
    for (const Operand *result : results)
        if (result->defined()) check_narrow(*result, x);
}

void check_sum(const Operand &x1, const Operand &x2, const Operand &sum) {
    same_shape(x2, x1);
    same_dtype(x2, x1);
    same_shape(sum, x1);
    same_dtype(sum, x1);
}

void check_scale(const Operand &scale, const Operand &gamma) {
    if (scale.defined() && scale.numel() != 1 && scale.numel() != gamma.numel())
        fail(FaultKind::InvalidArgument, "parameter {} has {} values, expected 1 or {}", scale.parameter(),
             scale.numel(), gamma.numel());
}

at::Tensor normal(const at::Tensor &x, const at::Tensor &gamma, double epsilon) {
    const at::Tensor value = widened(x);
    return value * value.square().mean(-1, true).add_(epsilon).rsqrt_() * widened(gamma).flatten();
}

at::Tensor shifted(const at::Tensor &value, const at::Tensor &beta) {
    return beta.defined() ? value + widened(beta).flatten() : value;
}

// Null outputs were not asked for.
void give_quantized(at::Tensor &y, const at::Tensor &value, const at::Tensor &scale, const at::Tensor &offset,
                    bool divide) {
    if (!y.defined() || !scale.defined() || y.numel() == 0) return;
    at::Tensor scaled = divide ? value / widened(scale).flatten() : value * widened(scale).flatten();
    if (offset.defined()) scaled = scaled + offset.to(at::kFloat).flatten();
    store(y, scaled);
}

void give_dynamic(at::Tensor &y, at::Tensor &scale, at::Tensor value, const at::Tensor &smooth) {
    if (value.numel() == 0) return;
    if (smooth.defined()) value = value * widened(smooth).flatten();
    const Dynamic found = dynamic(value, {-1}, range_of(y), true);
    store(y, value);
    scale.copy_(found.scale.reshape(scale.sizes()));
}

// Whether output `i` is wanted: by the mask, or by the smooth scales where there is none.
bool wanted(const Bools &mask, size_t i, const at::Tensor &first, const at::Tensor &second) {
    if (!mask.empty()) return i < mask.size() && mask[i];
    return i == 0 || (first.defined() && second.defined());
}

void check_asked_for(const Operand &out) {
    if (!out.defined())
        fail(FaultKind::NullArgument, "parameter {} is null, but outputMask asks for it", out.parameter());
}

void check_row_scale(const Operand &scale, const Operand &x) {
    dtype(scale, at::kFloat);
    if (scale.numel() * x.size(-1) != x.numel())
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected a value for each row of {}", scale.parameter(),
             describe(scale), describe(x));
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnRmsNormQuant, optional(beta, offset); check_rms(x, gamma, beta, {&y}); check_scale(scale, gamma);
   check_scale(offset, gamma), give_quantized(y, shifted(normal(x, gamma, epsilon), beta), scale, offset, true))
OP(aclnnAddRmsNormQuant, optional(y2Out); check_sum(x1, x2, xOut);
   check_rms(x1, gamma, Operand(nullptr, "beta"), {&y1Out, &y2Out}); check_scale(scales1, gamma);
   check_scale(scales2Optional, gamma), const at::Tensor x = at::add(x1, x2);
   const at::Tensor value = normal(x, gamma, epsilon);
   give_quantized(y1Out, value, scales1, zeroPoints1Optional, divMode);
   give_quantized(y2Out, value, scales2Optional, zeroPoints2Optional, divMode); xOut.copy_(x))
OP(aclnnAddRmsNormQuantV2, optional(y2Out, rmsNormOut); check_sum(x1, x2, xOut);
   check_rms(x1, gamma, betaOptional, {&y1Out, &y2Out}); check_scale(scales1, gamma);
   check_scale(scales2Optional, gamma), const at::Tensor x = at::add(x1, x2);
   const at::Tensor plain = normal(x, gamma, epsilon), value = shifted(plain, betaOptional);
   give_quantized(y1Out, value, scales1, zeroPoints1Optional, divMode);
   give_quantized(y2Out, value, scales2Optional, zeroPoints2Optional, divMode); give(rmsNormOut, plain); xOut.copy_(x))
OP(
    aclnnAddRmsNormDynamicQuantV2, optional(y2Out, scale2Out); check_sum(x1, x2, xOut);
    check_rms(x1, gamma, betaOptional, {}); check_row_scale(scale1Out, x1); check_narrow(y1Out, x1);
    if (wanted(outputMask, 1, smoothScale1Optional, smoothScale2Optional)) {
        check_asked_for(y2Out);
        check_narrow(y2Out, x1);
        check_row_scale(scale2Out, x1);
    },
    const at::Tensor x = at::add(x1, x2);
    const at::Tensor value = shifted(normal(x, gamma, epsilon), betaOptional);
    if (wanted(outputMask, 0, smoothScale1Optional, smoothScale2Optional))
        give_dynamic(y1Out, scale1Out, value, smoothScale1Optional);
    if (wanted(outputMask, 1, smoothScale1Optional, smoothScale2Optional))
        give_dynamic(y2Out, scale2Out, value, smoothScale2Optional);
    xOut.copy_(x))
