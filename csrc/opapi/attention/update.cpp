// Partial results of attention, each over a part of the keys, brought together (ring attention).
#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

// SBH: out is [queries, batch, hidden], statistics [batch, heads, queries, 8]. TND: [tokens, heads, width] and [tokens,
// heads, 8]. A statistic stands eight times.
void check_ring(const Operand &before, const Operand &now, const std::string &layout,
                std::initializer_list<const Operand *> statistics, const Operand &out) {
    network(before);
    rank(before, {3});
    same_shape(now, before);
    same_dtype(now, before);
    same_shape(out, before);
    if (layout != "SBH" && layout != "TND")
        fail(FaultKind::InvalidArgument, "parameter inputLayoutOptional is \"{}\", allowed are SBH and TND", layout);
    for (const Operand *statistic : statistics) {
        dtype(*statistic, at::kFloat);
        same_shape(*statistic, **statistics.begin());
        rank(*statistic, {layout == "SBH" ? 4 : 3});
    }
    const Operand &first = **statistics.begin();
    const bool fits = layout == "SBH" ? first.size(0) == before.size(1) && first.size(2) == before.size(0) &&
                                            before.size(2) % std::max<int64_t>(first.size(1), 1) == 0
                                      : first.size(0) == before.size(0) && first.size(1) == before.size(1);
    if (!fits)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, which does not belong to {} in layout {}",
             first.parameter(), describe(first), describe(before), layout);
}

void check_same_statistics(const std::string &statistics_layout, const std::string &layout) {
    if (!statistics_layout.empty() && statistics_layout != layout)
        fail(FaultKind::InvalidArgument,
             "parameter inputSoftmaxLayoutOptional is \"{}\", the virtual NPU offers that of the input, {}",
             statistics_layout, layout);
}

void ring(const at::Tensor &before, const at::Tensor &maximum_before, const at::Tensor &sum_before,
          const at::Tensor &now, const at::Tensor &maximum_now, const at::Tensor &sum_now, bool heads_inside,
          at::Tensor &out, at::Tensor &maximum, at::Tensor &sum) {
    const at::Tensor top = at::maximum(maximum_before, maximum_now);
    const at::Tensor first = (maximum_before - top).exp_().mul_(sum_before);
    const at::Tensor second = (maximum_now - top).exp_().mul_(sum_now);
    const at::Tensor total = first + second;
    const auto weighed = [&](const at::Tensor &part, const at::Tensor &share) {
        const at::Tensor weight = (share / total).select(-1, 0);
        if (!heads_inside) return widened(part) * weight.unsqueeze(-1);
        return (widened(part).unflatten(2, {weight.size(1), -1}) * weight.permute({2, 0, 1}).unsqueeze(-1)).flatten(2);
    };
    out.copy_(weighed(before, first) + weighed(now, second));
    maximum.copy_(top);
    sum.copy_(total);
}

void check_update(const Operands &lse, const Operands &parts, int64_t type, const Operand &out,
                  const Operand &lse_out) {
    same_length(lse, parts);
    if (lse.empty()) fail(FaultKind::InvalidArgument, "parameter lse is empty");
    network(out);
    rank(out, {2});
    for (size_t i = 0; i < lse.size(); ++i) {
        dtype(lse[i], at::kFloat);
        shape(lse[i], {out.size(0)});
        same_shape(parts[i], out);
        same_dtype(parts[i], out);
    }
    if (type != 0 && type != 1)
        fail(FaultKind::InvalidArgument, "parameter updateType is {}, allowed are 0 and 1", type);
    if (type == 1 && !lse_out.defined())
        fail(FaultKind::NullArgument, "parameter lseOut is null, which updateType 1 does not allow");
    if (type == 1) shape(lse_out, {out.size(0)});
}

void update(const Operands &lse, const Operands &parts, int64_t type, at::Tensor &out, at::Tensor &lse_out) {
    const at::Tensor all = at::stack(lse.tensors()), total = all.logsumexp(0);
    const at::Tensor weight = (all - total).exp_();
    at::Tensor sum = at::zeros(out.sizes(), at::kFloat);
    for (size_t i = 0; i < parts.size(); ++i)
        sum.add_(widened(parts[i]) * weight.select(0, static_cast<int64_t>(i)).unsqueeze(1));
    out.copy_(sum);
    if (type == 1) lse_out.copy_(total);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnRingAttentionUpdateV2, check_same_statistics(inputSoftmaxLayoutOptional, inputLayoutOptional);
   check_ring(prevAttnOut, curAttnOut, inputLayoutOptional,
              {&prevSoftmaxMax, &prevSoftmaxSum, &curSoftmaxMax, &curSoftmaxSum, &softmaxMaxOut, &softmaxSumOut},
              attnOutOut),
   ring(prevAttnOut, prevSoftmaxMax, prevSoftmaxSum, curAttnOut, curSoftmaxMax, curSoftmaxSum,
        inputLayoutOptional == "SBH", attnOutOut, softmaxMaxOut, softmaxSumOut))
OP(aclnnAttentionUpdate, optional(lseOut);
   check_update(lse, localOut, updateType, out, lseOut), update(lse, localOut, updateType, out, lseOut))
