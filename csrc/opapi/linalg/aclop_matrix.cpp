// The trace along two axes and its gradient, which MindSpore has kernels of its own for (trace_v2.cc), and the singular
// values and the QR decomposition of the old API.
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

int64_t number(const at::Tensor &tensor, const char *what) {
    holds(tensor, 1, what);
    return ints(tensor).front();
}

// Operands `first` and the next two: offset, axis1, axis2.
at::Tensor diagonal(const at::Tensor &x, LegacyTensors &in, size_t first) {
    return x.diagonal(number(in[first], "offset"), number(in[first + 1], "axis1"), number(in[first + 2], "axis2"));
}

void check_matrices(const at::Tensor &x, const at::Tensor &out) {
    if (!x.defined() || x.dim() < 2)
        fail(FaultKind::InvalidArgument, "the input is {}, expected 2 dimensions or more", describe(x));
    if (out.scalar_type() != x.scalar_type())
        fail(FaultKind::InvalidArgument, "the output is {}, expected the dtype of {}", describe(out), describe(x));
}

// x = u diag(sigma) v^H, where ATen gives v^H.
void decomposed(LegacyArguments &call) {
    if (!attribute<bool>(call.attributes, "compute_uv", true)) {
        put(call.out[0], at::linalg_svdvals(call.in[0]));
        return;
    }
    const auto [u, sigma, vh] = at::linalg_svd(call.in[0], attribute<bool>(call.attributes, "full_matrices", false));
    put(call.out[0], sigma);
    put(call.out[1], u);
    put(call.out[2], vh.mH());
}

// q and r; LAPACK's signs. All columns of q, or as many as the smaller side has.
void check_triangular(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    allowed(x, {at::kHalf, at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble}, "the input");
    check_matrices(x, call.out[0]);
    allowed(call.out[1], x.scalar_type(), "r");
    const int64_t rows = x.size(-2), columns = x.size(-1);
    const bool whole = attribute<bool>(call.attributes, "full_matrices", false);
    std::vector<int64_t> q = x.sizes().vec(), r = q;
    q[q.size() - 1] = r[r.size() - 2] = whole ? rows : std::min(rows, columns);
    sizes(call.out[0], q, "q");
    sizes(call.out[1], r, "r");
}

void triangular(LegacyArguments &call) {
    const bool whole = attribute<bool>(call.attributes, "full_matrices", false);
    const auto [q, r] = at::linalg_qr(widened(call.in[0]), whole ? "complete" : "reduced");
    call.out[0].copy_(q);
    call.out[1].copy_(r);
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(CustTraceV2, check_matrices(in[0], out[0]), put(out[0], diagonal(in[0], in, 1).sum(-1)))
// in: the gradient, the shape of what had the trace, offset, axis1, axis2.
LEGACY(CustTraceV2Grad, check_matrices(out[0], in[0]), out[0].zero_();
       diagonal(out[0], in, 2).copy_(in[0].reshape(diagonal(out[0], in, 2).sum(-1).sizes()).unsqueeze(-1)))
LEGACY(Svd, check_matrices(in[0], out[0]);
       allowed(in[0], {at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble}, "the input"),
       decomposed(arguments))
LEGACY(Qr, check_triangular(arguments), triangular(arguments))
