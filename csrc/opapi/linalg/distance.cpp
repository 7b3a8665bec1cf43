// Distances between the rows of two matrices.
#include <ATen/ExpandUtils.h>

#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

void check_distance(const Operand &x1, const Operand &x2, double p, const Operand &out) {
    network(x1, x2, out);
    for (const Operand *x : {&x1, &x2})
        if (x->dim() < 2) rank(*x, {2, 3, 4, 5, 6, 7, 8});
    if (x1.size(-1) != x2.size(-1))
        fail(FaultKind::InvalidArgument, "parameter x2 has rows of {} values, expected {}, as x1", x2.size(-1),
             x1.size(-1));
    if (!(p >= 0)) fail(FaultKind::InvalidArgument, "parameter p is {}, allowed is >= 0", p);
    const auto batch = [](const Operand &x) { return x.sizes().slice(0, static_cast<size_t>(x.dim()) - 2); };
    at::DimVector sizes;
    try {
        sizes = at::infer_size_dimvector(batch(x1), batch(x2));
    } catch (const c10::Error &) {
        fail(FaultKind::InvalidArgument,
             "parameters x1 and x2: {} and {} do not broadcast outside the last two dimensions", describe(x1),
             describe(x2));
    }
    sizes.push_back(x1.size(-2));
    sizes.push_back(x2.size(-2));
    shape(out, sizes);
}

void check_pairs(const Operand &self, double p, const Operand &out) {
    rank(self, {2});
    network(self, out);
    if (!(p >= 0)) fail(FaultKind::InvalidArgument, "parameter p is {}, allowed is >= 0", p);
    shape(out, {self.size(0) * (self.size(0) - 1) / 2});
}

// compute_mode 2: no detour through a matrix product, whose cancellation costs digits.
constexpr int64_t kDirect = 2;

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnCdist, check_distance(x1, x2, p, out), give(out, at::_cdist_forward(widened(x1), widened(x2), p, kDirect)))
OP(aclnnCdistBackward, check_distance(x1, x2, p, grad); same_shape(cdist, grad);
   same_shape(out, x1), give(out, at::_cdist_backward(widened(grad).contiguous(), widened(x1).contiguous(),
                                                      widened(x2).contiguous(), p, widened(cdist).contiguous())))
OP(aclnnPdist, check_pairs(self, p, out), give(out, at::_pdist_forward(widened(self).contiguous(), p)))
