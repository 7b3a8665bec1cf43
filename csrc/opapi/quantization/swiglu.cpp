// SwiGLU whose result is quantised, behind a product of integers that is scaled first or not.
#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/quantization/quantization.h"

namespace vnpu::opapi {
namespace {

using namespace quantization;

constexpr int64_t kInt8 = 2, kInt4 = 29;  // aclDataType (acl_base_rt.h)

// Two int4 to an int8, the first in its low half.
void pack_pairs(at::Tensor &out, const at::Tensor &value) {
    const at::Tensor whole = at::round(value).nan_to_num_(0).clamp_(-8, 7).to(at::kInt).bitwise_and_(15);
    const at::Tensor pairs = whole.unflatten(-1, {-1, 2});
    out.copy_(pairs.select(-1, 1).bitwise_left_shift(4).bitwise_or(pairs.select(-1, 0)).to(at::kChar));
}

at::Tensor group_ends(const at::Tensor &groups, bool counts) {
    return counts ? groups.to(at::kLong).cumsum(0) : groups.to(at::kLong);
}

// --- aclnnSwiGluQuantV2 (ops-nn: swi_glu_quant_tiling_utils.h)

void check_swiglu_quant(const Operand &x, const Operand &smooth, const Operand &offsets, const Operand &groups,
                        const std::string &mode, int64_t list_type, int64_t type, const Operand &y,
                        const Operand &scale) {
    require(x);
    require(y);
    tiled(x.dim() >= 2, "parameter x is {}, expected 2 dimensions or more", describe(x));
    tiled(mode == "static" || mode == "dynamic",
          "parameter quantModeOptional is \"{}\", allowed are static and dynamic", mode);
    tiled(list_type == 0 || list_type == 1, "parameter groupListType is {}, allowed are 0 (ends) and 1 (counts)",
          list_type);
    tiled(type == kInt8 || type == kInt4, "parameter dstType is {}, allowed are 2 (INT8) and 29 (INT4)", type);
    const int64_t columns = x.size(-1), most = 8192, even = type == kInt4 ? 4 : 2;
    tiled(columns % even == 0 && columns <= most,
          "parameter x is {}, its last size must be a multiple of {}, at most {}", describe(x), even, most);
    at::DimVector sizes(x.sizes());
    sizes.back() = columns / even;
    shape(y, sizes);
    sizes.pop_back();
    shape(scale, sizes);
    const int64_t count = groups.defined() ? groups.numel() : 1;
    tiled(count > 0, "parameter groupIndexOptional is {}, expected elements", describe(groups));
    for (const Operand *each : {&smooth, &offsets})
        if (each->defined())
            tiled(each->numel() == count || each->numel() == count * columns / 2,
                  "parameter {} is {}, expected [{}] or [{}, {}]", each->parameter(), describe(*each), count, count,
                  columns / 2);
    if (mode == "static" && (!smooth.defined() || !offsets.defined()))
        fail(FaultKind::NullArgument, "smoothScalesOptional or offsetsOptional is null, which static does not allow");
}

void swiglu_quant(const at::Tensor &x, const at::Tensor &smooth, const at::Tensor &offsets, const at::Tensor &groups,
                  bool left, bool fixed, bool counts, bool halves, at::Tensor &y, at::Tensor &scale) {
    const std::vector<at::Tensor> half = widened(x).reshape({-1, x.size(-1)}).chunk(2, -1);
    at::Tensor value = at::silu(half[left ? 0 : 1]) * half[left ? 1 : 0];
    const int64_t count = groups.defined() ? groups.numel() : 1;
    const at::Tensor ends = groups.defined() ? group_ends(groups, counts) : at::full({1}, value.size(0), at::kLong);
    if (smooth.defined()) value = by_group(value, smooth.reshape({count, -1}), ends);
    if (fixed) {
        const at::Tensor behind = offsets.reshape({count, -1});
        value = value + by_group(at::ones({value.size(0), 1}), behind, ends) *
                            at::arange(value.size(0)).lt(ends[count - 1]).unsqueeze(1);
    } else if (value.numel() > 0) {
        const at::Tensor factor = (halves ? 7.0 : 127.0) / value.abs().amax({-1}, true);
        value = value * factor;
        scale.copy_(factor.reshape(scale.sizes()));
    }
    at::Tensor rows = at::empty({value.size(0), y.size(-1)}, at::kChar);
    if (halves)
        pack_pairs(rows, value);
    else
        saturate(rows, value);
    y.copy_(rows.reshape(y.sizes()));
}

// --- aclnnDequantSwigluQuant (ops-nn: dequant_swiglu_quant_tiling.cpp)

struct Glu {
    int64_t mode;
    double limit, alpha, bias;
};

struct Factors {
    const Operand &weight, &row, &bias, &scale, &offset, &groups;
};

void check_dequant_swiglu(const Operand &x, const Factors &f, bool left, const std::string &mode, const Glu &glu,
                          const Operand &y, const Operand &scale) {
    require(x);
    require(y);
    const bool dynamic = mode == "dynamic", integers = x.scalar_type() == at::kInt;
    tiled(x.dim() >= 2 && x.size(-1) % 64 == 0, "parameter x is {}, its last size must be a multiple of 64",
          describe(x));
    tiled(dynamic || mode == "static" || mode.empty(),
          "parameter quantModeOptional is \"{}\", allowed are static and "
          "dynamic",
          mode);
    tiled(glu.mode >= 0 && glu.mode <= 3, "parameter swigluMode is {}, allowed are 0 to 3", glu.mode);
    tiled(glu.mode != 1 || left, "parameter activateLeft is false, which swigluMode 1 does not allow");
    const int64_t columns = x.size(-1), rows = columns == 0 ? 0 : x.numel() / columns;
    const int64_t count = f.groups.defined() ? f.groups.numel() : 1;
    tiled(!f.groups.defined() || f.groups.dim() == 1, "parameter groupIndexOptional is {}, expected 1 dimension",
          describe(f.groups));
    tiled(integers == f.weight.defined(),
          "parameter weightScaleOptional is {} beside x, {}: int32 needs it, others do "
          "not take it",
          describe(f.weight), describe(x));
    const auto wide = [&](const Operand &each, int64_t width) {
        if (each.defined())
            tiled(each.numel() == count * width && each.size(-1) == width, "parameter {} is {}, expected [{}, {}]",
                  each.parameter(), describe(each), count, width);
    };
    wide(f.weight, columns);
    wide(f.bias, columns);
    if (f.row.defined())
        tiled(integers && f.row.numel() == rows,
              "parameter activationScaleOptional is {}, expected {} values and int32 "
              "as the dtype of x",
              describe(f.row), rows);
    if (dynamic) {
        wide(f.scale, columns / 2);
        tiled(!f.offset.defined(), "parameter quantOffsetOptional is {}, dynamic takes null", describe(f.offset));
    } else {
        tiled(f.scale.defined() && f.offset.defined(),
              "quantScaleOptional or quantOffsetOptional is null, which static "
              "does not allow");
        for (const Operand *each : {&f.scale, &f.offset})
            tiled(each->numel() == count || each->numel() == count * columns / 2,
                  "parameter {} is {}, expected [{}] or [{}, {}]", each->parameter(), describe(*each), count, count,
                  columns / 2);
        tiled(f.scale.numel() == f.offset.numel() && f.scale.scalar_type() == f.offset.scalar_type(),
              "parameter quantOffsetOptional is {}, expected as quantScaleOptional, {}", describe(f.offset),
              describe(f.scale));
    }
    at::DimVector sizes(x.sizes());
    sizes.back() = columns / 2;
    shape(y, sizes);
    sizes.pop_back();
    shape(scale, sizes);
}

at::Tensor gated(const at::Tensor &x, bool left, const Glu &glu) {
    const int64_t half = x.size(1) / 2;
    if (glu.mode == 0 || glu.mode == 3) {
        at::Tensor gate = at::silu(x.narrow(1, left ? 0 : half, half)), value = x.narrow(1, left ? half : 0, half);
        return glu.mode == 0 ? gate * value : gate.clamp_max(glu.limit) * value.clamp(-glu.limit, glu.limit);
    }
    const auto part = [&](int64_t which) {
        return glu.mode == 1 ? x.slice(1, which, x.size(1), 2) : x.narrow(1, (which == 0) == left ? 0 : half, half);
    };
    const at::Tensor gate = part(0).clamp_max(glu.limit), value = part(1).clamp(-glu.limit, glu.limit);
    return gate * (gate * glu.alpha).sigmoid() * (value + glu.bias);
}

// Groups are counts of rows; those behind the last are not written.
void dequant_swiglu(const at::Tensor &x, const Factors &f, bool left, bool dynamic, const Glu &glu, at::Tensor &y,
                    at::Tensor &scale) {
    if (x.numel() == 0) return;
    const at::Tensor rows = x.reshape({-1, x.size(-1)});
    const at::Tensor counts = f.groups.defined() ? f.groups.to(at::kLong).reshape({-1}) : at::tensor({rows.size(0)});
    const int64_t groups = counts.size(0);
    const auto of = [&](const at::Tensor &each, int64_t g) { return widened(each).reshape({groups, -1})[g]; };
    at::Tensor result = y.reshape({-1, y.size(-1)}).clone(), found = scale.reshape({-1}).clone();
    int64_t begin = 0;
    for (int64_t g = 0; g < groups; ++g) {
        const int64_t length = counts[g].item().toLong();
        TORCH_CHECK(length >= 0 && begin + length <= rows.size(0), "group ", g, " ends at ", begin + length, " of ",
                    rows.size(0), " rows");
        at::Tensor value = rows.narrow(0, begin, length);
        if (value.scalar_type() == at::kInt) {
            const bool before = f.bias.defined() && f.bias.scalar_type() == at::kInt;
            if (before) value = value + f.bias.reshape({groups, -1})[g];
            value = value.to(at::kFloat) * of(f.weight, g);
            if (f.row.defined()) value = value * widened(f.row).reshape({-1, 1}).narrow(0, begin, length);
            if (f.bias.defined() && !before) value = value + of(f.bias, g);
        }
        value = gated(widened(value), left, glu);
        if (length > 0 && dynamic) {
            if (f.scale.defined()) value = value * of(f.scale, g);
            found.narrow(0, begin, length)
                .copy_(quantization::dynamic(value, {-1}, range(at::kChar), true).scale.view(-1));
        } else if (length > 0) {
            value = value / of(f.scale, g) + of(f.offset, g);
        }
        at::Tensor into = result.narrow(0, begin, length);
        saturate(into, value);
        begin += length;
    }
    y.copy_(result.view(y.sizes()));
    scale.copy_(found.view(scale.sizes()));
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnSwiGluQuantV2,
   check_swiglu_quant(x, smoothScalesOptional, offsetsOptional, groupIndexOptional, quantModeOptional, groupListType,
                      dstType, yOut, scaleOut),
   swiglu_quant(x, smoothScalesOptional, offsetsOptional, groupIndexOptional, activateLeft,
                quantModeOptional == "static", groupListType == 1, dstType == kInt4, yOut, scaleOut))

#define FACTORS                                                  \
    {weightScaleOptional, activationScaleOptional, biasOptional, \
     quantScaleOptional,  quantOffsetOptional,     groupIndexOptional}
#define PLAIN {0, 0, 0, 0}
#define GLU {swigluMode, clampLimit, gluAlpha, gluBias}

OP(aclnnDequantSwigluQuant, check_dequant_swiglu(x, FACTORS, activateLeft, quantModeOptional, PLAIN, yOut, scaleOut),
   dequant_swiglu(x, FACTORS, activateLeft, quantModeOptional == "dynamic", PLAIN, yOut, scaleOut))
OP(aclnnDequantSwigluQuantV2,
   tiled(dstType == kInt8, "parameter dstType is {}, allowed is 2 (INT8) on this chip", dstType);
   tiled(roundModeOptional.empty() || roundModeOptional == "rint",
         "parameter roundModeOptional is \"{}\", allowed is "
         "rint",
         roundModeOptional);
   tiled(activateDim == -1 || activateDim == x.dim() - 1, "parameter activateDim is {}, allowed is -1", activateDim);
   check_dequant_swiglu(x, FACTORS, activateLeft, quantModeOptional, GLU, yOut, scaleOut),
   dequant_swiglu(x, FACTORS, activateLeft, quantModeOptional == "dynamic", GLU, yOut, scaleOut))
