// Matrix products before and behind an all-to-all whose operands are int8, or int4 packed in int32, on 910B
// (alltoall.h).
#include "opapi/distributed/alltoall.h"
#include "opapi/quantization/quantization.h"

namespace vnpu::opapi {
namespace {

using namespace alltoall;
using namespace quantization;

constexpr int64_t kDynamicRows = 7, kRows = 3, kColumns = 2;  // of x1QuantMode and x2QuantMode

struct Scales {
    const Operand &rows, &columns;
};

void check_named_rows(const Operand &scale, int64_t count) {
    tiled(scale.size(0) == count, "parameter {} is {}, expected {}", scale.parameter(), describe(scale), count);
}

// x1 is floating-point, and quantized when it has come, or int4 as x2.
void check_before(const Sides &sides, const Scales &scales, const Ints &axes, const std::string &group, int64_t mode,
                  bool transposed_x1, const Operand &output, const Operand &gathered) {
    check_sides(sides, transposed_x1, output);
    on_chip(sides.x1.size(0) > 0, "parameter x1 is {}, which is empty", describe(sides.x1));
    dtype(sides.x1, {at::kHalf, at::kBFloat16, at::kInt});
    dtype(sides.x2, {at::kChar, at::kInt});
    dtype(scales.columns, {at::kFloat});
    dtype(output, {at::kHalf, at::kBFloat16});
    const bool whole = packed(sides.x1), smooth = mode == kDynamicRows && scales.rows.defined();
    if (smooth) same_dtype(scales.rows, sides.x1);
    if (mode == kRows && scales.rows.defined()) dtype(scales.rows, {at::kFloat});
    if (gathered.defined()) same_dtype(gathered, sides.x1);
    check_axes(axes, -2, -1);
    tiled(whole ? packed(sides.x2) : output.scalar_type() == sides.x1.scalar_type(),
          "parameters x1, x2 and output are {}, {} and {}, which no kernel takes together", describe(sides.x1),
          describe(sides.x2), describe(output));
    if (sides.bias.defined())
        tiled(sides.bias.scalar_type() == at::kFloat || sides.bias.scalar_type() == output.scalar_type(),
              "parameter biasOptional is {}, allowed are float32 and the dtype of output", describe(sides.bias));
    check_rows_together(sides, group, 35000, output, gathered);
    tiled(whole || sides.inner() % 16 == 0, "parameter x2 is {}, expected a multiple of 16 to sum over",
          describe(sides.x2));
    for (const Operand *scale : {&scales.columns, &scales.rows})
        if (scale->defined() && scale->dim() == 0)
            fail(FaultKind::TilingRefused, "parameter {} has no dimension", scale->parameter());
    check_named_rows(scales.columns, sides.columns());
    if (whole) {
        if (!scales.rows.defined())
            fail(FaultKind::TilingRefused, "parameter x1ScaleOptional is null, which x1, {}, does not allow",
                 describe(sides.x1));
        tiled(scales.rows.scalar_type() == at::kFloat, "parameter x1ScaleOptional is {}, expected float32",
              describe(scales.rows));
        check_named_rows(scales.rows, sides.x1.size(0));
    } else if (smooth) {
        check_named_rows(scales.rows, sides.inner());
    }
}

// Sums of integer products are exact in double.
at::Tensor product(const at::Tensor &x1, const at::Tensor &x2, const at::Tensor &rows, const at::Tensor &columns,
                   const at::Tensor &bias) {
    const at::Tensor sums = at::mm(x1.to(at::kDouble), x2.to(at::kDouble));
    const at::Tensor made = sums * columns.flatten() * rows.reshape({-1, 1});
    return bias.defined() ? made + bias : made;
}

struct Rounded {
    at::Tensor values, scale;
};

// As the vector cores do it, in float32: by the largest of each row, half to even, and a row of zeros stays one.
Rounded by_largest(const at::Tensor &rows, double most) {
    const at::Tensor largest = rows.abs().amax(1, true);
    return {at::round(rows * (most / largest)).nan_to_num_(0), largest / most};
}

void exchange_and_multiply(const Group &ranks, const Sides &sides, const Scales &scales, int64_t mode,
                           at::Tensor &output, at::Tensor &gathered) {
    const at::Tensor all = rows_together(ranks, sides.x1);
    if (gathered.defined() && gathered.numel() != 0) gathered.copy_(all);
    const at::Tensor x2 = oriented(unpacked_int4(sides.x2), sides.transposed);
    if (packed(sides.x1)) {
        const at::Tensor rows = scales.rows.narrow(0, ranks.rank() * output.size(0), output.size(0));
        output.copy_(product(unpacked_int4(all), x2, rows, scales.columns, sides.bias));
        return;
    }
    at::Tensor value = all.to(at::kFloat);
    if (mode == kDynamicRows && scales.rows.defined()) value = value * widened(scales.rows);
    const Rounded rounded = by_largest(value, packed(sides.x2) ? 7 : 127);
    output.copy_(product(rounded.values, x2, rounded.scale, scales.columns, sides.bias));
}

void check_behind(const Sides &sides, const Scales &scales, const Ints &axes, const std::string &group, int64_t mode_x1,
                  int64_t mode_x2, bool transposed_x1, const Operand &output) {
    if (!sides.bias.defined())
        fail(FaultKind::NullArgument, "parameter {} is null, which 910B does not allow", sides.bias.parameter());
    check_sides(sides, transposed_x1, output);
    on_chip(mode_x1 == kRows && mode_x2 == kColumns,
            "parameters x1QuantMode and x2QuantMode are {} and {}, allowed are 3 (by rows) and 2 (by columns)", mode_x1,
            mode_x2);
    for (const Operand *factor : {&sides.x1, &sides.x2}) dtype(*factor, {at::kChar});
    for (const Operand *scale : {&scales.rows, &scales.columns}) dtype(*scale, {at::kFloat});
    dtype(output, {at::kHalf, at::kBFloat16});
    on_chip(sides.bias.scalar_type() == (output.scalar_type() == at::kHalf ? at::kHalf : at::kFloat) ||
                (sides.bias.scalar_type() == at::kBFloat16 && output.scalar_type() == at::kBFloat16),
            "parameters biasOptional and output are {} and {}, allowed is the same dtype, and float32 beside bfloat16",
            describe(sides.bias), describe(output));
    shape(scales.rows, {sides.x1.size(0)});
    shape(scales.columns, {sides.columns()});
    check_axes(axes, -1, -2);
    check_columns_together(sides, group, output);
}

void multiply_and_exchange(const Group &ranks, const Sides &sides, const Scales &scales, at::Tensor &output) {
    const at::Tensor made =
        product(sides.x1, oriented(sides.x2, sides.transposed), scales.rows, scales.columns, sides.bias);
    columns_together(ranks, made.to(output.scalar_type()), output);
}

// What the pages keep for later: the kernels do not read it.
void check_reserved(std::initializer_list<const Operand *> tensors) {
    for (const Operand *tensor : tensors)
        on_chip(!tensor->defined(), "parameter {} is given, allowed is null", tensor->parameter());
}

}  // namespace
}  // namespace vnpu::opapi

#define SIDES \
    Sides { x1, x2, biasOptional, transposeX2 }
#define BEFORE(NAME)                                                                                               \
    check_not_a3(NAME);                                                                                            \
    check_reserved({&commScaleOptional, &x1OffsetOptional, &x2OffsetOptional});                                    \
    check_before(SIDES, {x1ScaleOptional, x2Scale}, alltoAllAxesOptional, group, x1QuantMode, transposeX1, output, \
                 alltoAllOutOptional),                                                                             \
        exchange_and_multiply(Group(NAME, group), SIDES, {x1ScaleOptional, x2Scale}, x1QuantMode, output,          \
                              alltoAllOutOptional)
#define BEHIND(NAME)                                                                                            \
    check_not_a3(NAME);                                                                                         \
    check_reserved({&commScaleOptional, &x1OffsetOptional, &x2OffsetOptional});                                 \
    check_behind(SIDES, {x1Scale, x2Scale}, alltoAllAxesOptional, group, x1QuantMode, x2QuantMode, transposeX1, \
                 output),                                                                                       \
        multiply_and_exchange(Group(NAME, group), SIDES, {x1Scale, x2Scale}, output)

RANKS_OP(aclnnAlltoAllQuantMatmul, BEFORE("aclnnAlltoAllQuantMatmul"))
RANKS_OP(aclnnAlltoAllQuantMatmulV2, check_engine(commMode); BEFORE("aclnnAlltoAllQuantMatmulV2"))
RANKS_OP(aclnnQuantMatmulAlltoAll, BEHIND("aclnnQuantMatmulAlltoAll"))
RANKS_OP(aclnnQuantMatmulAlltoAllV2, check_engine(commMode); BEHIND("aclnnQuantMatmulAlltoAllV2"))
