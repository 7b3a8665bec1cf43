// A product for each group of rows (mixture of experts), and products with something before or behind them. In fp32,
// rounded once.
#include "aclnn_mindspore.h"
#include "opapi/aclnn/format.h"
#include "opapi/quantization/quantization.h"

namespace vnpu::opapi {
namespace {

using namespace quantization;

enum GroupType { kNoGroups = -1, kRows = 0, kInner = 2 };

// What the members of the family share.
struct Grouped {
    Operands &x, &weight, &bias, &scale, &row_scale;
    std::vector<int64_t> ends;  // of the groups in the first phase of version 1
    Operand *groups;            // in device memory, else null
    int64_t split_item, type, list_type, activation;
    Operands &out;
};

void check_unused(std::initializer_list<const Operands *> lists) {
    for (const Operands *list : lists)
        for (const Operand &tensor : *list)
            if (tensor.defined() && tensor.numel() > 0)
                fail(FaultKind::InvalidArgument,
                     "parameter {} is {}: the virtual NPU has no such quantisation of grouped products",
                     tensor.parameter(), describe(tensor));
}

bool any(const Operands &list) { return !list.empty() && list.front().defined() && list.front().numel() > 0; }

int64_t experts(const Operands &weight) {
    return weight.size() == 1 && weight.front().dim() == 3 ? weight.front().size(0)
                                                           : static_cast<int64_t>(weight.size());
}

// Rows of several tensors, each with a weight of its own, in one result: the groups are the tensors.
bool separated(const Grouped &call) { return call.type == kRows && call.x.size() > 1 && call.out.size() == 1; }

void check_separated(const Grouped &call) {
    // ops-transformer: aclnn_grouped_matmul.cpp, SplitMSeparatedXSeparatedWeightSingleY
    if (call.split_item != 2 && call.split_item != 3)
        fail(FaultKind::InvalidArgument, "parameter splitItem is {}, allowed for one result are 2 and 3",
             call.split_item);
    if (call.x.size() != call.weight.size())
        fail(FaultKind::InvalidArgument, "x has {} tensors and weight {}, expected as many of each", call.x.size(),
             call.weight.size());
    int64_t rows = 0;
    for (size_t i = 0; i < call.x.size(); ++i) {
        rank(call.x[i], {2});
        rank(call.weight[i], {2});
        shape(call.weight[i], {call.x[i].size(1), call.out.front().size(-1)});
        rows += call.x[i].size(0);
        if (call.groups == nullptr && !call.ends.empty() && (i >= call.ends.size() || call.ends[i] != rows))
            fail(FaultKind::InvalidArgument, "x[{}] ends at row {}, its group in the list does not", i, rows);
    }
    shape(call.out.front(), {rows, call.out.front().size(-1)});
}

void check_grouped(const Grouped &call) {
    if (call.x.empty() || call.weight.empty() || call.out.empty())
        fail(FaultKind::InvalidArgument, "parameters x, weight and out need a tensor each, they have {}, {} and {}",
             call.x.size(), call.weight.size(), call.out.size());
    const bool quantized_x = call.x.front().scalar_type() == at::kChar;
    for (const Operand &x : call.x) dtype(x, quantized_x ? DTypes(at::kChar) : kNative);
    for (const Operand &weight : call.weight) dtype(weight, quantized_x ? DTypes(at::kChar) : kNative);
    if (quantized_x && !any(call.scale))
        fail(FaultKind::NullArgument, "parameter {} is empty, which int8 does not allow", call.scale.parameter());
    if (call.activation != 0)
        fail(FaultKind::InvalidArgument, "parameter actType is {}, the virtual NPU offers 0 (none)", call.activation);
    if (call.type == kNoGroups && (call.x.size() != call.weight.size() || call.x.size() != call.out.size()))
        fail(FaultKind::InvalidArgument, "x has {} tensors, weight {} and out {}, expected as many of each",
             call.x.size(), call.weight.size(), call.out.size());
    if (call.type != kNoGroups && call.type != kRows && call.type != kInner)
        fail(FaultKind::InvalidArgument, "parameter groupType is {}, allowed are -1, 0 and 2", call.type);
    if (separated(call))
        check_separated(call);
    else if (call.type != kNoGroups && (call.x.size() != 1 || (call.groups == nullptr && call.ends.empty())))
        fail(FaultKind::InvalidArgument, "x has {} tensors, expected one and a group list in groupType {}",
             call.x.size(), call.type);
    if (call.groups != nullptr) {
        dtype(*call.groups, {at::kLong});
        if (call.list_type != 0 && call.list_type != 1)
            fail(FaultKind::InvalidArgument, "parameter groupListType is {}, allowed are 0 (ends) and 1 (sizes)",
                 call.list_type);
        if (call.type == kRows) shape(*call.groups, {experts(call.weight)});
    }
}

// The ends of the groups.
std::vector<int64_t> group_ends(const Grouped &call) {
    if (call.groups == nullptr) return call.ends;
    const at::Tensor list = call.list_type == 1 ? call.groups->cumsum(0) : at::Tensor(*call.groups);
    const at::Tensor values = list.to(at::kLong).contiguous();
    return {values.const_data_ptr<int64_t>(), values.const_data_ptr<int64_t>() + values.numel()};
}

at::Tensor of_expert(const Operands &list, size_t expert) {
    if (!any(list)) return {};
    return list.size() == 1 && list.front().dim() > 1 ? list.front().select(0, static_cast<int64_t>(expert))
                                                      : at::Tensor(list[std::min(expert, list.size() - 1)]);
}

at::Tensor weight_of(const Operands &weight, size_t expert) {
    return weight.size() == 1 && weight.front().dim() == 3 ? weight.front().select(0, static_cast<int64_t>(expert))
                                                           : at::Tensor(weight[expert]);
}

at::Tensor product(const at::Tensor &x, const at::Tensor &weight, const Grouped &call, size_t expert,
                   const at::Tensor &row_scale) {
    const bool integers = x.scalar_type() == at::kChar;
    at::Tensor value =
        integers ? at::matmul(x.to(at::kDouble), weight.to(at::kDouble)) : at::matmul(widened(x), widened(weight));
    const at::Tensor bias = of_expert(call.bias, expert);
    if (integers) {
        if (bias.defined() && bias.scalar_type() == at::kInt) value = value + bias;
        value = value * widened(of_expert(call.scale, expert));
        if (row_scale.defined()) value = value * row_scale.reshape({-1, 1});
        if (bias.defined() && bias.scalar_type() != at::kInt) value = value + widened(bias);
    } else if (bias.defined()) {
        value = value + widened(bias);
    }
    return value;
}

void grouped_matmul(Grouped call) {
    if (call.type == kNoGroups) {
        for (size_t i = 0; i < call.x.size(); ++i)
            call.out[i].copy_(product(call.x[i], weight_of(call.weight, i), call, i, of_expert(call.row_scale, i)));
        return;
    }
    if (separated(call)) {
        int64_t begin = 0;
        for (size_t i = 0; i < call.x.size(); ++i) {
            const int64_t end = begin + call.x[i].size(0);
            const at::Tensor scale = any(call.row_scale) ? call.row_scale.front().slice(0, begin, end) : at::Tensor();
            call.out.front().slice(0, begin, end).copy_(product(call.x[i], weight_of(call.weight, i), call, i, scale));
            begin = end;
        }
        return;
    }
    const std::vector<int64_t> ends = group_ends(call);
    const at::Tensor x = call.x.front();
    const bool one = call.out.size() == 1;
    if (one) call.out.front().zero_();  // rows behind the last group
    int64_t begin = 0;
    for (size_t g = 0; g < ends.size(); ++g) {
        const int64_t end = ends[g];
        TORCH_CHECK(end >= begin && end <= x.size(call.type == kRows ? 0 : 1), "group ", g, " ends at ", end,
                    ", outside of ", begin, " to ", x.size(call.type == kRows ? 0 : 1));
        if (call.type == kRows) {
            const at::Tensor scale = any(call.row_scale) ? call.row_scale.front().slice(0, begin, end) : at::Tensor();
            const at::Tensor rows = product(x.slice(0, begin, end), weight_of(call.weight, g), call, g, scale);
            (one ? call.out.front().slice(0, begin, end) : at::Tensor(call.out[g])).copy_(rows);
        } else {
            const at::Tensor rows =
                at::matmul(widened(x.slice(1, begin, end)), widened(call.weight.front().slice(0, begin, end)));
            (one ? call.out.front().select(0, static_cast<int64_t>(g)) : at::Tensor(call.out[g])).copy_(rows);
        }
        begin = end;
    }
}

// y += x^T w for each group of rows of x and w.
void check_add(const Operand &x, const Operand &weight, const Operand &groups, const Operand &y, bool transpose_x,
               bool transpose_weight, int64_t type, int64_t list_type) {
    rank(x, {2});
    rank(weight, {2});
    dtype(x, {at::kHalf, at::kBFloat16});
    same_dtype(weight, x);
    dtype(y, {at::kFloat});
    dtype(groups, {at::kLong});
    if (!transpose_x || transpose_weight || type != kInner || (list_type != 0 && list_type != 1))
        fail(FaultKind::InvalidArgument,
             "transposeX is {}, transposeWeight {}, groupType {} and groupListType {}: CANN offers true, false, 2, and "
             "0 or 1",
             transpose_x, transpose_weight, type, list_type);
    if (x.size(0) != weight.size(0) || y.numel() != groups.numel() * x.size(1) * weight.size(1))
        fail(FaultKind::InvalidArgument, "parameter yRef is {}, expected {} matrices of {} x {}", describe(y),
             groups.numel(), x.size(1), weight.size(1));
}

void add_products(const at::Tensor &x, const at::Tensor &weight, const at::Tensor &groups, bool sizes, at::Tensor &y) {
    const at::Tensor ends = (sizes ? groups.cumsum(0) : groups).contiguous();
    const at::Tensor sums = y.view({groups.numel(), x.size(1), weight.size(1)});
    int64_t begin = 0;
    for (int64_t g = 0; g < groups.numel(); ++g) {
        const int64_t end = ends.const_data_ptr<int64_t>()[g];
        TORCH_CHECK(end >= begin && end <= x.size(0), "group ", g, " ends at ", end, ", outside of ", begin, " to ",
                    x.size(0));
        sums.select(0, g).add_(at::matmul(widened(x.slice(0, begin, end)).t(), widened(weight.slice(0, begin, end))));
        begin = end;
    }
}

// --- one product between permutations

void check_transposed(const Operand &x1, const Operand &x2, const Operand &bias, const Operand &scale, const Ints &p1,
                      const Ints &p2, const Ints &p, int64_t split, const Operand &out) {
    for (const Operand *operand : {&x1, &x2}) {
        rank(*operand, {3});
        network(*operand);
    }
    for (const Ints *order : {&p1, &p2, &p})
        if (order->size() != 3)
            fail(FaultKind::InvalidArgument, "a permutation has {} values, expected 3", order->size());
    if (bias.defined() || scale.defined())
        fail(FaultKind::InvalidArgument, "parameters bias and scale: the virtual NPU offers null");
    if (p[0] != 1 || p[1] != 0 || p[2] != 2)
        fail(FaultKind::InvalidArgument, "parameter permY is [{}, {}, {}], CANN allows [1, 0, 2]", p[0], p[1], p[2]);
    const int64_t batch = x1.size(p1[0]), rows = x1.size(p1[1]), columns = x2.size(p2[2]);
    if (x2.size(p2[0]) != batch || x2.size(p2[1]) != x1.size(p1[2]))
        fail(FaultKind::InvalidArgument, "parameter x2 is {}, expected [{}, {}, ...] after permX2", describe(x2), batch,
             x1.size(p1[2]));
    if (split < 1 || batch % split != 0)
        fail(FaultKind::InvalidArgument, "parameter batchSplitFactor is {}, expected a divisor of {}", split, batch);
    if (split == 1)
        shape(out, {rows, batch, columns});
    else
        shape(out, {split, rows, batch * columns / split});
}

void transposed_matmul(const at::Tensor &x1, const at::Tensor &x2, const Ints &p1, const Ints &p2, int64_t split,
                       at::Tensor &out) {
    const at::Tensor y = at::matmul(widened(x1).permute(p1), widened(x2).permute(p2)).transpose(0, 1);
    out.copy_(split == 1 ? y : y.reshape({y.size(0), split, -1}).transpose(0, 1));
}

void check_fused(const Operand &x1, const Operand &x2, const Operand &bias, const Operand &x3, const std::string &kind,
                 const Operand &y) {
    network(x1, x2, y);
    matrices(x1);
    matrices(x2);
    if (x1.size(-1) != x2.size(-2))
        fail(FaultKind::InvalidArgument, "parameter x2 is {}, expected {} rows", describe(x2), x1.size(-1));
    if (y.dim() < 2 || y.size(-2) != x1.size(-2) || y.size(-1) != x2.size(-1))
        fail(FaultKind::InvalidArgument, "parameter y is {}, expected [..., {}, {}]", describe(y), x1.size(-2),
             x2.size(-1));
    for (const Operand *operand : {&bias, &x3})
        if (operand->defined()) expands(y, *operand);
    const bool two = kind == "add" || kind == "mul";
    if (!two && kind != "gelu_tanh" && kind != "gelu_erf" && kind != "relu" && kind != "16cast32" && !kind.empty())
        fail(FaultKind::InvalidArgument,
             "parameter fusedOpType is \"{}\", allowed are add, mul, gelu_tanh, gelu_erf, relu, 16cast32", kind);
    if (two && !x3.defined())
        fail(FaultKind::NullArgument, "parameter x3 is null, which fusedOpType {} does not allow", kind);
}

void fused_matmul(const at::Tensor &x1, const at::Tensor &x2, const at::Tensor &bias, const at::Tensor &x3,
                  const std::string &kind, at::Tensor &y) {
    at::Tensor value = at::matmul(widened(x1), widened(x2));
    if (bias.defined()) value = value + widened(bias);
    if (kind == "add") value = value + widened(x3);
    if (kind == "mul") value = value * widened(x3);
    if (kind == "gelu_tanh") value = at::gelu(value, "tanh");
    if (kind == "gelu_erf") value = at::gelu(value);
    if (kind == "relu") value = at::relu(value);
    y.copy_(value);
}

}  // namespace
}  // namespace vnpu::opapi

#define GROUPED(NAME, OUT, ROW_SCALE, ...)                                                       \
    OP(NAME, check_unused({&offsetOptional, &antiquantScaleOptional, &antiquantOffsetOptional}); \
       check_grouped({x, weight, biasOptional, scaleOptional, ROW_SCALE, __VA_ARGS__, OUT}),     \
       grouped_matmul({x, weight, biasOptional, scaleOptional, ROW_SCALE, __VA_ARGS__, OUT}))
#define DEVICE_GROUPS \
    {}, groupListOptional.defined() ? &groupListOptional : nullptr, splitItem, groupType, groupListType, actType

// Version 1 has the ends of the groups in host memory; without them every x has its own weight.
GROUPED(aclnnGroupedMatmul, y, offsetOptional, groupListOptional, nullptr, splitItem,
        groupListOptional.empty() ? kNoGroups : kRows, 0, 0)
// As MindSpore asks: version 2 with the kind of grouping, version 3 with the groups' ends on the device.
GROUPED(aclnnGroupedMatmulV2, y, offsetOptional, groupListOptional, nullptr, splitItem, groupType, 0, 0)
GROUPED(aclnnGroupedMatmulV3, y, offsetOptional, {}, groupListOptional.defined() ? &groupListOptional : nullptr,
        splitItem, groupType, 0, 0)
GROUPED(aclnnGroupedMatmulV4, out, perTokenScaleOptional, DEVICE_GROUPS)
GROUPED(aclnnGroupedMatmulV5, out, perTokenScaleOptional, DEVICE_GROUPS)
OP(aclnnGroupedMatmulWeightNz, check_unused({&offsetOptional, &antiquantScaleOptional, &antiquantOffsetOptional});
   fractal_nz(weight);
   check_grouped({x, weight, biasOptional, scaleOptional, perTokenScaleOptional, DEVICE_GROUPS, out}),
   Operands rows = unpacked(weight);
   grouped_matmul({x, rows, biasOptional, scaleOptional, perTokenScaleOptional, DEVICE_GROUPS, out}))
OP(aclnnGroupedMatmulAdd, check_add(x, weight, groupList, yRef, transposeX, transposeWeight, groupType, 0),
   add_products(x, weight, groupList, false, yRef))
OP(aclnnGroupedMatmulAddV2,
   check_add(x, weight, groupList, yRef, transposeX, transposeWeight, groupType, groupListType),
   add_products(x, weight, groupList, groupListType == 1, yRef))
OP(aclnnTransposeBatchMatMul, optional(bias, scale);
   check_transposed(x1, x2, bias, scale, permX1, permX2, permY, batchSplitFactor, out),
   transposed_matmul(x1, x2, permX1, permX2, batchSplitFactor, out))
OP(aclnnTransposeBatchMatMulWeightNz, optional(bias, scale); fractal_nz(x2);
   check_transposed(x1, x2, bias, scale, permX1, permX2, permY, batchSplitFactor, out),
   transposed_matmul(x1, unpacked(x2), permX1, permX2, batchSplitFactor, out))
OP(aclnnFusedMatmul, optional(bias, x3);
   check_fused(x1, x2, bias, x3, fusedOpType, y), fused_matmul(x1, x2, bias, x3, fusedOpType, y))
