// Quantisation to int8 (uint8, int32 where CANN allows them; that by row and AscendQuantV3 to int4 packed in int32,
// too) and back, which also takes packed int4. The dtype int4, which ATen does not have, and the 8-bit floats, which
// the A2 series does not have, are refused.
#include "opapi/quantization/quantization.h"

namespace vnpu::opapi {
namespace {

using namespace quantization;

constexpr DTypes kQuantized{at::kChar, at::kByte, at::kInt};
constexpr int64_t kLast = -1;

// One value for all of x, or one for each position of `axis`.
void check_along(const Operand &parameter, const Operand &x, int64_t axis) {
    if (!parameter.defined()) return;
    dimension(axis, x);
    if (parameter.numel() == 1) return;
    const int64_t size = x.dim() == 0 ? 1 : x.size(axis);
    if (parameter.numel() != size)
        fail(FaultKind::InvalidArgument, "parameter {} has {} values, expected 1 or {}, the size of {} at axis {}",
             parameter.parameter(), parameter.numel(), size, x.parameter(), axis);
}

at::Tensor beside(const at::Tensor &parameter, const at::Tensor &x, int64_t axis) {
    if (parameter.numel() == 1) return widened(parameter).reshape({});
    std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
    sizes[static_cast<size_t>(axis < 0 ? axis + x.dim() : axis)] = parameter.numel();
    return widened(parameter).reshape(sizes);
}

void check_quantize(const Operand &x, const Operand &scale, const Operand &offset, int64_t axis, DTypes results,
                    const Operand &out) {
    network(x, scale);
    check_along(scale, x, axis);
    check_along(offset, x, axis);
    same_shape(out, x);
    dtype(out, results);
}

// CANN's data type numbers (acl_base_rt.h): 2 is INT8.
void check_int8_only(int64_t type) {
    if (type != 2) fail(FaultKind::InvalidArgument, "parameter dstType is {}, the virtual NPU offers 2 (INT8)", type);
}

// And 3 is INT32, which holds eight of 4 bits.
void check_packable(const Operand &x, const Operand &scale, const Operand &offset, int64_t axis, int64_t type,
                    const Operand &y) {
    if (type != 3) {
        check_int8_only(type);
        return check_quantize(x, scale, offset, axis, {at::kChar}, y);
    }
    network(x, scale);
    check_along(scale, x, axis);
    check_along(offset, x, axis);
    dtype(y, {at::kInt});
    if (x.dim() == 0) fail(FaultKind::InvalidArgument, "parameter x is {}, a number cannot be packed", describe(x));
    check_holds_quantized(x, y);
}

void check_round_half_to_even(const std::string &mode) {
    if (!mode.empty() && mode != "round" && mode != "rint")
        fail(FaultKind::InvalidArgument, "parameter roundMode is \"{}\", the virtual NPU offers round", mode);
}

// How AscendQuant rounds; "round" goes to even at halves (ops-nn: aclnn_ascend_quant.cpp).
void check_rounds(const std::string &mode) {
    if (mode != "round" && mode != "floor" && mode != "ceil" && mode != "trunc")
        fail(FaultKind::InvalidArgument, "parameter roundMode is \"{}\", allowed are round, floor, ceil and trunc",
             mode);
}

at::Tensor whole(const at::Tensor &value, const std::string &mode) {
    if (mode == "floor") return at::floor(value);
    if (mode == "ceil") return at::ceil(value);
    return mode == "trunc" ? at::trunc(value) : at::round(value);
}

void ascend_quant(at::Tensor &y, const at::Tensor &x, const at::Tensor &scale, const at::Tensor &offset, bool squared,
                  const std::string &mode, int64_t axis, int64_t type) {
    at::Tensor factor = beside(scale, x, axis);
    if (squared) factor = factor * factor;
    at::Tensor value = widened(x) * factor;
    if (offset.defined()) value = value + beside(offset, x, axis);
    value = whole(value, mode);
    if (type == 3)
        pack_int4(y, value);
    else
        saturate(y, value);
}

void check_anti(const Operand &x, const Operand &scale, const Operand &offset, const Operand &y) {
    dtype(x, {at::kChar, at::kInt});
    network(scale, y);
    if (x.dim() == 0 && packed(x)) fail(FaultKind::InvalidArgument, "parameter x is {}, a packed number", describe(x));
    shape(y, unpacked_sizes(x));
    check_along(scale, y, kLast);
    check_along(offset, y, kLast);
}

void anti_quant(at::Tensor &y, const at::Tensor &x, const at::Tensor &scale, const at::Tensor &offset, bool squared) {
    at::Tensor value = unpacked_int4(x).to(at::kFloat);
    if (offset.defined()) value = value + beside(offset, value, kLast);
    const at::Tensor factor = beside(scale, value, kLast);
    value = value * factor;
    y.copy_(squared ? value * factor : value);
}

// How far one scale reaches: a row (pertoken), a column of the last two dimensions (perchannel), all (pertensor).
std::vector<int64_t> reduced(const std::string &mode, const at::Tensor &x) {
    if (mode.empty() || mode == "pertoken") return {-1};
    if (mode == "perchannel") return {-2};
    std::vector<int64_t> all(static_cast<size_t>(x.dim()));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    return all;
}

void check_dynamic(const Operand &x, const Operand &smooth, const Operand &groups, const Operand &y,
                   const Operand &scale, const Operand &offset, const std::string &mode = {}) {
    network(x, smooth);
    if (x.dim() < 2) fail(FaultKind::InvalidArgument, "parameter x is {}, expected at least 2 dimensions", describe(x));
    if (!mode.empty() && mode != "pertoken" && mode != "perchannel" && mode != "pertensor")
        fail(FaultKind::InvalidArgument, "parameter quantMode is \"{}\", allowed are pertoken, perchannel, pertensor",
             mode);
    dtype(y, {at::kChar, at::kInt});
    check_holds_quantized(x, y);
    if (smooth.defined() && !groups.defined()) expands(x, smooth);
    if (groups.defined()) {
        dtype(groups, {at::kInt, at::kLong});
        if (smooth.defined()) shape(smooth, {groups.numel(), x.size(-1)});
    }
    const int64_t slices = mode == "pertensor"    ? 1
                           : mode == "perchannel" ? x.numel() / std::max<int64_t>(x.size(-2), 1)
                                                  : x.numel() / std::max<int64_t>(x.size(-1), 1);
    for (const Operand *result : {&scale, &offset}) {
        if (!result->defined()) continue;
        dtype(*result, at::kFloat);
        if (x.numel() != 0 && result->numel() != slices)
            fail(FaultKind::InvalidArgument, "parameter {} is {}, expected {} values, one for each slice of x",
                 result->parameter(), describe(*result), slices);
    }
}

void dynamic_quant(const at::Tensor &x, const at::Tensor &smooth, const at::Tensor &groups, bool symmetric,
                   const std::string &mode, at::Tensor &y, at::Tensor &scale, at::Tensor &offset) {
    if (x.numel() == 0) return;
    at::Tensor value = widened(x);
    if (smooth.defined())
        value = groups.defined() ? by_group(value.reshape({-1, x.size(-1)}), smooth, groups).view(x.sizes())
                                 : value * widened(smooth);
    const Dynamic found = dynamic(value, reduced(mode, x), stored_range(y), symmetric);
    store(y, value);
    scale.copy_(found.scale.reshape(scale.sizes()));
    if (offset.defined() && found.offset.defined()) offset.copy_(found.offset.reshape(offset.sizes()));
}

void check_gelu(const Operand &self, const Operand &scale, const std::string &mode, const Operand &y,
                const Operand &out_scale) {
    network(self, scale);
    same_shape(y, self);
    quantized(y);
    if (mode != "static" && mode != "dynamic")
        fail(FaultKind::InvalidArgument, "parameter quantMode is \"{}\", allowed are static and dynamic", mode);
    if (mode == "static" && !scale.defined())
        fail(FaultKind::NullArgument, "parameter inputScaleOptional is null, which quantMode static does not allow");
    if (mode == "dynamic" && !out_scale.defined())
        fail(FaultKind::NullArgument, "parameter outScaleOptional is null, which quantMode dynamic does not allow");
}

void gelu_quant(const at::Tensor &self, const at::Tensor &scale, const at::Tensor &offset, const std::string &form,
                bool fixed, at::Tensor &y, at::Tensor &out_scale) {
    at::Tensor value = at::gelu(widened(self), form == "tanh" ? "tanh" : "none");
    if (scale.defined()) value = value * beside(scale, self, kLast);
    if (fixed) {
        if (offset.defined()) value = value + beside(offset, self, kLast);
    } else if (self.numel() > 0) {
        out_scale.copy_(dynamic(value, {-1}, range(at::kChar), true).scale.reshape(out_scale.sizes()));
    }
    saturate(y, value);
}

void check_fake(const Operand &self, const Operand &scale, const Operand &zero_point, int64_t low, int64_t high,
                int64_t parameters, const Operand &out, const Operand &mask) {
    network(self, out);
    same_shape(out, self);
    same_shape(mask, self);
    dtype(mask, {at::kBool});
    if (low > high)
        fail(FaultKind::InvalidArgument, "parameter quantMin is {}, greater than quantMax, which is {}", low, high);
    for (const Operand *parameter : {&scale, &zero_point})
        if (parameter->numel() != parameters)
            fail(FaultKind::InvalidArgument, "parameter {} is {}, expected {} values", parameter->parameter(),
                 describe(*parameter), parameters);
}

void fake_quantize(at::Tensor &out, at::Tensor &mask, const at::Tensor &self, const at::Tensor &scale,
                   const at::Tensor &zero_point, int64_t low, int64_t high) {
    const at::Tensor value = widened(self), level = at::round(value / scale + zero_point);
    mask.copy_(level.ge(low).logical_and_(level.le(high)));
    out.copy_((level.clamp(low, high) - zero_point) * scale);
}

void check_dequant_bias(const Operand &x, const Operand &weight_scale, const Operand &row_scale, const Operand &bias,
                        const Operand &out) {
    rank(x, {2});
    dtype(x, {at::kInt});
    same_shape(out, x);
    dtype(out, {at::kHalf, at::kBFloat16});
    network(weight_scale, row_scale);
    shape(weight_scale, {x.size(1)});
    if (row_scale.defined() && row_scale.numel() != x.size(0))
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected {} values", row_scale.parameter(),
             describe(row_scale), x.size(0));
    if (bias.defined()) {
        shape(bias, {x.size(1)});
        dtype(bias, kNative | at::kInt);
    }
}

void dequant_bias(at::Tensor &out, const at::Tensor &x, const at::Tensor &weight_scale, const at::Tensor &row_scale,
                  const at::Tensor &bias) {
    const bool before = bias.defined() && bias.scalar_type() == at::kInt;
    at::Tensor value = (before ? x + bias : x).to(at::kFloat) * widened(weight_scale);
    if (row_scale.defined()) value = value * widened(row_scale).reshape({-1, 1});
    out.copy_(bias.defined() && !before ? value + widened(bias) : value);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnQuantize, optional(zeroPoints); check_quantize(x, scales, zeroPoints, axis, kQuantized, out),
                                        at::Tensor value = widened(x) / beside(scales, x, axis);
   if (zeroPoints.defined()) value.add_(beside(zeroPoints, x, axis).to(at::kFloat)); saturate(out, value))
OP(aclnnAscendQuant, optional(offset); check_int8_only(dstType); check_rounds(roundMode);
   check_quantize(x, scale, offset, kLast, {at::kChar}, y),
   ascend_quant(y, x, scale, offset, sqrtMode, roundMode, kLast, 2))
OP(aclnnAscendQuantV3, optional(offset); check_rounds(roundMode);
   check_packable(x, scale, offset, axis, dstType, y),
   ascend_quant(y, x, scale, offset, sqrtMode, roundMode, axis, dstType))
OP(aclnnAscendAntiQuant, optional(offset); check_anti(x, scale, offset, y), anti_quant(y, x, scale, offset, sqrtMode))

// The first version is symmetric, by row.
OP(aclnnDynamicQuant, check_dynamic(x, smoothScalesOptional, Operand(nullptr, "groups"), yOut, scaleOut, scaleOut),
   at::Tensor none;
   dynamic_quant(x, smoothScalesOptional, none, true, {}, yOut, scaleOut, none))
OP(aclnnDynamicQuantV2, optional(offsetOut);
   check_dynamic(x, smoothScalesOptional, groupIndexOptional, yOut, scaleOut, offsetOut),
   dynamic_quant(x, smoothScalesOptional, groupIndexOptional, !offsetOut.defined(), {}, yOut, scaleOut, offsetOut))
OP(aclnnDynamicQuantV3, optional(offsetOut);
   check_dynamic(x, smoothScalesOptional, groupIndexOptional, yOut, scaleOut, offsetOut, quantMode),
   dynamic_quant(x, smoothScalesOptional, groupIndexOptional, isSymmetrical, quantMode, yOut, scaleOut, offsetOut))
OP(aclnnDynamicQuantV4, optional(offsetOut);
   check_dynamic(x, smoothScalesOptional, groupIndexOptional, yOut, scaleOut, offsetOut, quantMode),
   dynamic_quant(x, smoothScalesOptional, groupIndexOptional, isSymmetrical, quantMode, yOut, scaleOut, offsetOut))

OP(aclnnGeluQuant, check_gelu(self, inputScaleOptional, quantMode, y, outScaleOptional);
   check_round_half_to_even(roundMode),
   gelu_quant(self, inputScaleOptional, inputOffsetOptional, approximate, quantMode == "static", y, outScaleOptional))
OP(
    aclnnFakeQuantPerTensorAffineCachemask, check_fake(self, scale, zeroPoint, quantMin, quantMax, 1, out, mask),
    if (fakeQuantEnabled > 0)
        fake_quantize(out, mask, self, widened(scale).reshape({}), zeroPoint.reshape({}), quantMin, quantMax);
    else {
        out.copy_(self);
        mask.fill_(true);
    })
OP(aclnnFakeQuantPerChannelAffineCachemask, dimension(axis, self);
   check_fake(self, scale, zeroPoint, quantMin, quantMax, self.size(axis), out, mask),
   fake_quantize(out, mask, self, beside(scale, self, axis), beside(zeroPoint, self, axis), quantMin, quantMax))
OP(aclnnDequantBias, check_dequant_bias(x, weightScale, activateScaleOptional, biasOptional, out),
   dequant_bias(out, x, weightScale, activateScaleOptional, biasOptional))
