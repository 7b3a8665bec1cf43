// Inverses, determinants and traces of the old API, as MindSpore's functions ask for them: of each matrix of a batch,
// in double and rounded once.
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

void check_square(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    allowed(x, {at::kFloat, at::kDouble}, "x");
    if (x.dim() < 2 || x.size(-1) != x.size(-2))
        fail(FaultKind::InvalidArgument, "x is {}, expected square matrices", describe(x));
}

int64_t matrices(const at::Tensor &x) { return c10::multiply_integers(x.sizes().slice(0, x.sizes().size() - 2)); }

at::Tensor inverse(const at::Tensor &x, bool adjoint) {
    const at::Tensor wide = x.to(at::kDouble);
    return at::linalg_inv(adjoint ? wide.transpose(-1, -2) : wide);
}

// The sign, and the logarithm of the absolute value.
void logarithm(LegacyArguments &call) {
    const auto [sign, value] = at::linalg_slogdet(call.in[0].to(at::kDouble));
    put(call.out[0], sign);
    put(call.out[1], value);
}

void check_matrix(LegacyArguments &call) {
    allowed(call.in[0], kAll, "x");
    sizes(call.in[0], {-1, -1}, "x");
    holds(call.out[0], 1, "the output");
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(MatrixInverse, check_square(arguments);
       alike(out[0], in[0], "the output"), out[0].copy_(inverse(in[0], attribute<bool>(attributes, "adjoint", false))))
LEGACY(MatrixDeterminant, check_square(arguments);
       holds(out[0], matrices(in[0]), "the output"), put(out[0], at::linalg_det(in[0].to(at::kDouble))))
LEGACY(LogMatrixDeterminant, check_square(arguments);
       for (const size_t i : {0, 1}) holds(out[i], matrices(in[0]), "an output"), logarithm(arguments))
LEGACY(Trace, check_matrix(arguments), put(out[0], in[0].trace()))
// The gradient of the trace, the matrix's sizes.
LEGACY(CustTraceGrad, holds(in[0], 1, "the gradient");
       sizes(out[0], ints(in[1]), "the gradient of x"),
       out[0].copy_(at::eye(out[0].size(0), out[0].size(1)) * in[0].reshape({})))
