// Systems of linear equations in the old API, by a matrix or a triangle: CANN's own, and MindSpore's
// solve_triangular.cc and solve_triangular_grad.cc. In double and rounded once.
#include <ATen/ExpandUtils.h>

#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kExact{at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble};

at::Tensor wide(const at::Tensor &x) { return x.to(x.is_complex() ? at::kComplexDouble : at::kDouble); }

void check_squares(const at::Tensor &x, std::string_view what) {
    if (!x.defined() || x.dim() < 2 || x.size(-1) != x.size(-2))
        fail(FaultKind::InvalidArgument, "{} is {}, expected square matrices", what, describe(x));
}

// Of one dtype, as many rows as the square matrices have, and batches that broadcast to the output's.
void check_side(const at::Tensor &matrix, const at::Tensor &side, const at::Tensor &out, DTypes dtypes) {
    allowed(matrix, dtypes, "the matrix");
    check_squares(matrix, "the matrix");
    allowed(side, matrix.scalar_type(), "the right side");
    const auto batch = [](const at::Tensor &x) { return x.sizes().slice(0, static_cast<size_t>(x.dim()) - 2); };
    if (side.dim() < 2 || side.size(-2) != matrix.size(-1) || out.dim() < 2 || out.size(-1) != side.size(-1) ||
        out.size(-2) != side.size(-2) || out.scalar_type() != side.scalar_type() ||
        !at::is_expandable_to(batch(side), batch(out)) || !at::is_expandable_to(batch(matrix), batch(out)))
        fail(FaultKind::InvalidArgument, "the matrix is {}, the right side {}, the output {}", describe(matrix),
             describe(side), describe(out));
}

at::Tensor solved(const at::Tensor &matrix, const at::Tensor &side, bool adjoint) {
    return at::linalg_solve(adjoint ? wide(matrix).mH() : wide(matrix), wide(side));
}

at::Tensor of_triangle(const at::Tensor &matrix, const at::Tensor &side, bool lower, bool adjoint) {
    const at::Tensor a = adjoint ? wide(matrix).mH() : wide(matrix);
    return at::linalg_solve_triangular(a, wide(side), /*upper=*/lower == adjoint);
}

// The matrix, the right side (perhaps one vector), whether the matrix is transposed (2: and conjugated), which
// triangle, whether its diagonal is 1; the gradient has the solution in place of the right side and one operand more
// after it.
struct Triangle {
    int64_t turned;
    bool lower, ones;

    Triangle(LegacyArguments &call, size_t first)
        : turned(one(call.in[first], "trans")),
          lower(one(call.in[first + 1], "lower") != 0),
          ones(one(call.in[first + 2], "unit_diagonal") != 0) {
        if (turned < 0 || turned > 2) fail(FaultKind::InvalidArgument, "trans is {}, allowed are 0 to 2", turned);
    }

    static int64_t one(const at::Tensor &tensor, const char *what) {
        holds(tensor, 1, what);
        return ints(tensor).front();
    }

    at::Tensor solve(const at::Tensor &a, const at::Tensor &b, bool adjoint) const {
        at::Tensor matrix = turned == 0 ? a : turned == 1 ? a.mT() : a.mH();
        if (adjoint) matrix = matrix.mH();
        return at::linalg_solve_triangular(matrix, b, /*upper=*/(lower == (turned == 0)) == adjoint, true, ones);
    }
};

at::Tensor columns(const at::Tensor &b, const at::Tensor &a) {
    return wide(b.dim() == a.dim() - 1 ? b.unsqueeze(-1) : b);
}

void check_triangle(LegacyArguments &call, size_t first) {
    allowed(call.in[0], kExact | at::kHalf | DTypes{at::kShort, at::kInt, at::kLong, at::kChar}, "a");
    check_squares(call.in[0], "a");
    const at::Tensor &b = call.in[1];
    const bool vector = b.defined() && b.dim() == call.in[0].dim() - 1;
    if (!b.defined() || b.dim() < 1 || b.size(vector ? -1 : -2) != call.in[0].size(-1))
        fail(FaultKind::InvalidArgument, "a is {}, b {}", describe(call.in[0]), describe(b));
    Triangle(call, first);
    holds(call.out[first == 2 ? 0 : 1], b.numel(), "the output");
}

void triangle(LegacyArguments &call) {
    put(call.out[0], Triangle(call, 2).solve(wide(call.in[0]), columns(call.in[1], call.in[0]), false));
}

// a, the solution, its gradient: those of a and of the right side.
void triangle_grad(LegacyArguments &call) {
    const Triangle how(call, 3);
    const at::Tensor a = wide(call.in[0]), x = columns(call.in[1], call.in[0]);
    const at::Tensor side = how.solve(a, columns(call.in[2], call.in[0]), true);
    at::Tensor slope = -at::matmul(side, x.mH());
    if (how.turned != 0) slope = how.turned == 1 ? slope.mT() : slope.mH();
    const int64_t inside = how.ones ? 1 : 0;
    put(call.out[0], how.lower ? at::tril(slope, -inside) : at::triu(slope, inside));
    put(call.out[1], side);
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(MatrixSolve, check_side(in[0], in[1], out[0], kExact),
       out[0].copy_(solved(in[0], in[1], attribute<bool>(attributes, "adjoint", false))))
LEGACY(MatrixTriangularSolve, check_side(in[0], in[1], out[0], kExact),
       out[0].copy_(of_triangle(in[0], in[1], attribute<bool>(attributes, "lower", true),
                                attribute<bool>(attributes, "adjoint", false))))
LEGACY(CustSolveTriangular, check_triangle(arguments, 2), triangle(arguments))
LEGACY(CustSolveTriangularGrad, check_triangle(arguments, 3); holds(in[2], in[1].numel(), "the gradient");
       alike(out[0], in[0], "the gradient of a"), triangle_grad(arguments))
