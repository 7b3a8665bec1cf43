// The principal logarithm of matrices, which MindSpore has a kernel of its own for (matrix_logarithm.cc): square roots
// until a matrix is near the identity, then the diagonal Pade approximant by its partial fractions (Higham, Functions
// of Matrices, chapter 11). In double and rounded once.
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

void check_logarithm(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    allowed(x, kComplex, "x");
    if (x.dim() < 2 || x.size(-1) != x.size(-2))
        fail(FaultKind::InvalidArgument, "x is {}, expected square matrices", describe(x));
    alike(call.out[0], x, "the output");
}

double distance(const at::Tensor &a, const at::Tensor &b) {
    return a.numel() == 0 ? 0 : (a - b).abs().sum(-2).max().item<double>();
}

// Denman and Beavers' iteration; undefined where an eigenvalue on the negative half of the real axis leads it nowhere.
at::Tensor root(const at::Tensor &a, const at::Tensor &one) {
    at::Tensor y = a, z = one;
    for (int step = 0; step < 60; ++step) {
        const at::Tensor of_y = std::get<0>(at::linalg_inv_ex(y)), of_z = std::get<0>(at::linalg_inv_ex(z));
        const at::Tensor next = (y + of_z) / 2;
        z = (z + of_y) / 2;
        const double moved = distance(next, y), size = distance(next, at::zeros_like(next));
        y = next;
        if (moved <= 1e-14 * size) break;
    }
    return distance(at::matmul(y, y), a) <= 1e-10 * distance(a, at::zeros_like(a)) ? y : at::Tensor();
}

// Of such a matrix with as many eigenvectors as rows; on the axis the angle is pi.
at::Tensor by_eigenvalues(const at::Tensor &x) {
    const auto [values, vectors] = at::linalg_eig(x);
    const at::Tensor real = at::real(values), imaginary = at::imag(values);
    const at::Tensor sides = at::where(imaginary.abs() <= 1e-13 * real.abs(), 0.0, imaginary);
    const at::Tensor logs = at::log(at::complex(real, sides));
    const at::Tensor made = at::linalg_solve(vectors, vectors * logs.unsqueeze(0), /*left=*/false);
    if (distance(at::linalg_matrix_exp(made), x) <= 1e-8 * distance(x, at::zeros_like(x))) return made;
    fail(FaultKind::InvalidArgument, "a matrix has no logarithm that could be found: it is singular or next to it");
}

at::Tensor logarithm(const at::Tensor &x) {
    const at::Tensor one = at::eye(x.size(-1), at::kComplexDouble);
    at::Tensor a = x;
    double scale = 1;
    for (; distance(a, one) > 0.25; scale *= 2) {
        a = root(a, one);
        if (!a.defined()) return by_eigenvalues(x);
    }
    // Gauss' points and weights on 0 to 1: eigenvalues of Legendre's recurrence.
    constexpr int64_t kPoints = 10;
    const at::Tensor k = at::arange(1, kPoints, at::kDouble);
    const at::Tensor beside = at::diag_embed(k / (4 * k * k - 1).sqrt(), 1);
    const auto [points, vectors] = at::linalg_eigh(beside + beside.mT());
    const at::Tensor weights = vectors[0].square(), away = a - one;
    at::Tensor sum = at::zeros_like(a);
    for (int64_t i = 0; i < kPoints; ++i)
        sum = sum + weights[i] * at::linalg_solve(one + (points[i] + 1) / 2 * away, away);
    return sum * scale;
}

void each(LegacyArguments &call) {
    const at::Tensor x = call.in[0].to(at::kComplexDouble).reshape({-1, call.in[0].size(-2), call.in[0].size(-1)});
    std::vector<at::Tensor> made;
    for (const at::Tensor &one : x.unbind(0)) made.push_back(logarithm(one));
    if (!made.empty()) put(call.out[0], at::stack(made));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(CustMatrixLogarithm, check_logarithm(arguments), each(arguments))
