// Distances between the rows of a matrix, in double and rounded once, and whether a target is among the largest of its
// row.
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

at::Tensor wide(const at::Tensor &x) { return x.to(at::kDouble); }

// Distances between the rows of x, each pair once.
double order(const aclopAttr &attributes) {
    const double p = attribute<float>(attributes, "p", 2);
    if (!(p >= 0)) fail(FaultKind::InvalidArgument, "attribute p is {}, expected 0 or more", p);
    return p;
}

void check_rows(const at::Tensor &x, const at::Tensor &distances) {
    allowed(x, {at::kHalf, at::kFloat}, "x");
    sizes(x, {-1, -1}, "x");
    allowed(distances, x.scalar_type(), "the distances");
    sizes(distances, {x.size(0) * (x.size(0) - 1) / 2}, "the distances");
}

// Is the target among the k largest of its row? What is as large as the k-th is, too.
void check_ranks(LegacyArguments &call) {
    allowed(call.in[0], at::kFloat, "the predictions");
    sizes(call.in[0], {-1, -1}, "the predictions");
    allowed(call.in[1], {at::kInt, at::kLong}, "the targets");
    sizes(call.in[1], {call.in[0].size(0)}, "the targets");
    allowed(call.out[0], at::kBool, "the output");
    sizes(call.out[0], {call.in[0].size(0)}, "the output");
}

at::Tensor ranks(LegacyArguments &call) {
    const at::Tensor &x = call.in[0], target = call.in[1].to(at::kLong);
    const at::Tensor known = target.ge(0).logical_and_(target.lt(x.size(1)));
    const at::Tensor value = x.gather(1, at::where(known, target, 0).unsqueeze(1));
    const at::Tensor larger = x.gt(value).sum(1).lt(attribute<int64_t>(call.attributes, "k", 0));
    return larger.logical_and(known).logical_and_(value.squeeze(1).isfinite());
}

void check_one_shape(const at::Tensor &a, const at::Tensor &b) {
    if (a.sizes() != b.sizes())
        fail(FaultKind::InvalidArgument, "there are {} and {}, expected one shape", describe(a), describe(b));
}

// Operands broadcast over pairs, [..., rows, columns, width]; -1 stands for the largest difference.
at::Tensor distance_grad(const at::Tensor &grad, const at::Tensor &x1, const at::Tensor &x2, const at::Tensor &distance,
                         double p) {
    const at::Tensor difference = widened(x1) - widened(x2), d = widened(distance), sign = difference.sign();
    at::Tensor slope;
    if (p == 0)
        slope = at::zeros_like(difference);
    else if (p == 1)
        slope = sign;
    else if (p < 0)
        slope = sign * difference.abs().eq(d);
    else
        slope = (sign * difference.abs().pow(p - 1) / d.pow(p - 1)).masked_fill(d.eq(0), 0);
    return (slope * widened(grad)).sum(-2);  // of every pair of batches; where x1 has one batch for all, their sum
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(Pdist, check_rows(in[0], out[0]); order(attributes), out[0].copy_(at::pdist(wide(in[0]), order(attributes))))
// in: the gradient, x, the distances. Those are taken again: rounded, none is the largest difference of its rows.
LEGACY(CustPdistGrad, check_rows(in[1], in[2]); alike(in[0], in[2], "the gradient"); alike(out[0], in[1], "the output");
       order(attributes), const double p = order(attributes);
       out[0].copy_(at::_pdist_backward(wide(in[0]), wide(in[1]), p, at::pdist(wide(in[1]), p))))
LEGACY(InTopKD, check_ranks(arguments), out[0].copy_(ranks(arguments)))
LEGACY(CdistGrad, check_one_shape(in[1], in[0]); check_one_shape(in[2], in[0]);
       check_one_shape(in[3], in[0]),
       out[0].copy_(
           distance_grad(in[0], in[1], in[2], in[3], attribute<float>(attributes, "p", 2)).sum_to_size(out[0].sizes())))
