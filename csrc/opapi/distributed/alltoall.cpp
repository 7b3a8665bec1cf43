// Matrix products before and behind an all-to-all, of floating-point operands (alltoall.h). The sum of a product is
// rounded to the result's dtype before it goes to other ranks.
#include "opapi/distributed/alltoall.h"

namespace vnpu::opapi {
namespace {

using namespace alltoall;

at::Tensor product(const at::Tensor &x1, const at::Tensor &x2, bool transposed, const at::Tensor &bias) {
    at::Tensor made = at::mm(widened(x1), widened(oriented(x2, transposed)));
    return bias.defined() ? made.add_(widened(bias)) : made;
}

void check_dtypes(const Sides &sides, const Operand &output) {
    dtype(sides.x1, {at::kHalf, at::kBFloat16});
    same_dtype(sides.x2, sides.x1);
    same_dtype(output, sides.x1);
}

// float16 beside float16, float32 beside bfloat16: what the cube cores add.
bool biased(const Operand &x1, const Operand &bias) {
    return !bias.defined() || bias.scalar_type() == (x1.scalar_type() == at::kHalf ? at::kHalf : at::kFloat);
}

void check_before(const Sides &sides, const Ints &axes, const std::string &group, bool transposed_x1,
                  const Operand &output, const Operand &gathered) {
    check_sides(sides, transposed_x1, output);
    check_dtypes(sides, output);
    if (sides.bias.defined())
        on_chip(sides.bias.scalar_type() == at::kFloat || sides.bias.scalar_type() == sides.x1.scalar_type(),
                "parameter biasOptional is {}, allowed are float32 and the dtype of x1", describe(sides.bias));
    check_axes(axes, -2, -1);
    if (gathered.defined()) same_dtype(gathered, sides.x1);
    tiled(biased(sides.x1, sides.bias), "parameter biasOptional is {}, expected {} beside {}", describe(sides.bias),
          sides.x1.scalar_type() == at::kHalf ? "float16" : "float32", describe(sides.x1));
    check_rows_together(sides, group, is_a3() ? 65535 : 35000, output, gathered);
}

void check_behind(const Sides &sides, const Ints &axes, const std::string &group, bool transposed_x1,
                  const Operand &output) {
    check_sides(sides, transposed_x1, output);
    check_dtypes(sides, output);
    on_chip(biased(sides.x1, sides.bias), "parameter biasOptional is {}, expected {} beside {}", describe(sides.bias),
            sides.x1.scalar_type() == at::kHalf ? "float16" : "float32", describe(sides.x1));
    check_axes(axes, -1, -2);
    check_columns_together(sides, group, output);
}

void exchange_and_multiply(const Group &ranks, const Sides &sides, at::Tensor &output, at::Tensor &gathered) {
    if (output.numel() == 0) return;
    const at::Tensor all = rows_together(ranks, sides.x1);
    if (gathered.defined() && gathered.numel() != 0) gathered.copy_(all);
    output.copy_(product(all, sides.x2, sides.transposed, sides.bias));
}

void multiply_and_exchange(const Group &ranks, const Sides &sides, at::Tensor &output) {
    const at::Tensor made = product(sides.x1, sides.x2, sides.transposed, sides.bias);
    columns_together(ranks, made.to(output.scalar_type()), output);
}

}  // namespace
}  // namespace vnpu::opapi

#define SIDES \
    Sides { x1, x2, biasOptional, transposeX2 }
#define BEFORE(NAME)                                                                            \
    check_before(SIDES, alltoAllAxesOptional, group, transposeX1, output, alltoAllOutOptional), \
        exchange_and_multiply(Group(NAME, group), SIDES, output, alltoAllOutOptional)
#define BEHIND(NAME)                                                       \
    check_behind(SIDES, alltoAllAxesOptional, group, transposeX1, output), \
        multiply_and_exchange(Group(NAME, group), SIDES, output)

RANKS_OP(aclnnAlltoAllMatmul, BEFORE("aclnnAlltoAllMatmul"))
RANKS_OP(aclnnAlltoAllMatmulV2, check_engine(commMode); BEFORE("aclnnAlltoAllMatmulV2"))
RANKS_OP(aclnnMatmulAlltoAll, BEHIND("aclnnMatmulAlltoAll"))
RANKS_OP(aclnnMatmulAlltoAllV2, check_engine(commMode); BEHIND("aclnnMatmulAlltoAllV2"))
