// What MindSpore has kernels of its own for in linear algebra: eigenvalues, the exponential of a matrix, what is left
// to do with a Cholesky, an LU or a QR decomposition. In double and rounded once.
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kReal{at::kFloat, at::kDouble};
constexpr DTypes kAnyField = kReal | kComplex;

at::Tensor wide(const at::Tensor &x) { return x.to(x.is_complex() ? at::kComplexDouble : at::kDouble); }

void check_square(const at::Tensor &x, DTypes dtypes) {
    allowed(x, dtypes, "x");
    if (x.dim() < 2 || x.size(-1) != x.size(-2))
        fail(FaultKind::InvalidArgument, "x is {}, expected square matrices", describe(x));
}

void check_like_itself(LegacyArguments &call, DTypes dtypes) {
    check_square(call.in[0], dtypes);
    alike(call.out[0], call.in[0], "the output");
}

// Right and left hand side of a system, with as many matrices.
void check_system(const at::Tensor &right, const at::Tensor &left, const at::Tensor &out, DTypes dtypes) {
    check_square(left, dtypes);
    allowed(right, left.scalar_type(), "the right hand side");
    if (right.dim() < 2 || right.size(-2) != left.size(-1))
        fail(FaultKind::InvalidArgument, "the right hand side is {} for {}", describe(right), describe(left));
    alike(out, right, "the output");
}

// All of the matrix counts, and not a triangle alone, as in MindSpore's kernel (cholesky_inverse.cc).
at::Tensor of_root(const at::Tensor &x, bool upper) {
    return at::linalg_inv(upper ? at::matmul(x.mT(), x) : at::matmul(x, x.mT()));
}

bool flag(const aclopAttr &attributes, const char *name, bool otherwise) {
    return attribute<bool>(attributes, name, otherwise);
}

// x, which is general: values and vectors are complex.
void check_eigen(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    check_square(x, kAnyField);
    const bool twice = x.scalar_type() == at::kDouble || x.scalar_type() == at::kComplexDouble;
    const at::ScalarType field = twice ? at::kComplexDouble : at::kComplexFloat;
    allowed(call.out[0], field, "eigen_values");
    sizes(call.out[0], x.sizes().slice(0, static_cast<size_t>(x.dim()) - 1), "eigen_values");
    if (!flag(call.attributes, "compute_v", true)) return;
    allowed(call.out[1], field, "eigen_vectors");
    sizes(call.out[1], x.sizes(), "eigen_vectors");
}

void eigen(LegacyArguments &call) {
    if (!flag(call.attributes, "compute_v", true)) {
        call.out[0].copy_(at::linalg_eigvals(wide(call.in[0])));
        return;
    }
    const auto [values, vectors] = at::linalg_eig(wide(call.in[0]));
    call.out[0].copy_(values);
    call.out[1].copy_(vectors);
}

// x, the decomposition, pivots counted from 1.
void check_lu_solve(LegacyArguments &call) {
    check_system(call.in[0], call.in[1], call.out[0], {at::kHalf, at::kFloat});
    allowed(call.in[2], at::kInt, "lu_pivots");
    holds(call.in[2], call.in[1].numel() / std::max<int64_t>(call.in[1].size(-1), 1), "lu_pivots");
}

at::Tensor pivots(const at::Tensor &given, const at::Tensor &of) {
    const at::Tensor each = given.to(at::kInt).reshape(of.sizes().slice(0, static_cast<size_t>(of.dim()) - 1));
    if (each.lt(1).logical_or_(each.gt(of.size(-2))).any().item<bool>())
        fail(FaultKind::OutOfBounds, "lu_pivots has one that is none of 1 to {}", of.size(-2));
    return each;
}

// in: the decomposition, pivots. out: which rows were moved where, what is below the diagonal and what is not.
void check_lu_unpack(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    allowed(x, kReals, "LU_data");
    if (x.dim() < 2) fail(FaultKind::InvalidArgument, "LU_data is {}, expected matrices", describe(x));
    const int64_t rows = x.size(-2), columns = x.size(-1), least = std::min(rows, columns);
    allowed(call.in[1], kInts, "LU_pivots");
    holds(call.in[1], x.numel() == 0 ? 0 : x.numel() / rows / columns * least, "LU_pivots");
    const auto shaped = [&](size_t output, int64_t height, int64_t width) {
        std::vector<int64_t> expected = x.sizes().slice(0, static_cast<size_t>(x.dim()) - 2).vec();
        expected.insert(expected.end(), {height, width});
        sizes(call.out[output], expected, "an output");
    };
    if (flag(call.attributes, "unpack_pivots", true)) shaped(0, rows, rows);
    if (!flag(call.attributes, "unpack_data", true)) return;
    shaped(1, rows, least);
    shaped(2, least, columns);
}

void lu_unpack(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    const int64_t rows = x.size(-2), least = std::min(rows, x.size(-1));
    if (flag(call.attributes, "unpack_data", true)) {
        const at::Tensor left = x.narrow(-1, 0, least);
        call.out[1].copy_(at::tril(left, -1) + at::eye(rows, least, x.options()));
        call.out[2].copy_(at::triu(x.narrow(-2, 0, least)));
    }
    if (!flag(call.attributes, "unpack_pivots", true)) return;
    const at::Tensor swaps = call.in[1].to(at::kLong).reshape({-1, least}).contiguous();
    if (swaps.lt(1).logical_or_(swaps.gt(rows)).any().item<bool>())
        fail(FaultKind::OutOfBounds, "LU_pivots has one that is none of 1 to {}", rows);
    const int64_t *swap = swaps.const_data_ptr<int64_t>();
    at::Tensor made = at::zeros({swaps.size(0), rows, rows}, at::kDouble);
    for (int64_t n = 0; n < swaps.size(0); ++n) {
        std::vector<int64_t> order(static_cast<size_t>(rows));
        for (int64_t i = 0; i < rows; ++i) order[static_cast<size_t>(i)] = i;
        for (int64_t i = 0; i < least; ++i)
            std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(swap[n * least + i] - 1)]);
        for (int64_t i = 0; i < rows; ++i) made[n][order[static_cast<size_t>(i)]][i] = 1;
    }
    put(call.out[0], made);
}

// The gradients of both triangles and LU_data: each as far as it comes from that.
void check_unpack_grad(LegacyArguments &call) {
    const at::Tensor &x = call.in[2];
    allowed(x, kReals, "LU_data");
    if (x.dim() < 2) fail(FaultKind::InvalidArgument, "LU_data is {}, expected matrices", describe(x));
    const int64_t side = std::min(x.size(-2), x.size(-1));
    std::vector<int64_t> lower = x.sizes().vec(), upper = lower;
    lower.back() = side;
    upper[upper.size() - 2] = side;
    sizes(call.in[0], lower, "the gradient of the lower triangle");
    sizes(call.in[1], upper, "the gradient of the upper triangle");
    for (const size_t i : {0, 1}) alike(call.out[i], x, "an output");
}

void unpack_grad(LegacyArguments &call) {
    const int64_t side = std::min(call.in[2].size(-2), call.in[2].size(-1));
    for (at::Tensor &out : call.out) out.zero_();
    call.out[0].narrow(-1, 0, side).copy_(at::tril(call.in[0], -1));
    call.out[1].narrow(-2, 0, side).copy_(at::triu(call.in[1]));
}

// Reflections below the diagonal and their factors, as LAPACK has them.
void check_reflections(const at::Tensor &x, const at::Tensor &factors, DTypes dtypes) {
    allowed(x, dtypes, "x");
    if (x.dim() < 2) fail(FaultKind::InvalidArgument, "x is {}, expected matrices", describe(x));
    allowed(factors, x.scalar_type(), "tau");
    std::vector<int64_t> expected = x.sizes().slice(0, static_cast<size_t>(x.dim()) - 2).vec();
    expected.push_back(std::min(x.size(-1), x.size(-2)));
    sizes(factors, expected, "tau");
}

void reflect(LegacyArguments &call) {
    const auto [reflected, factors] = at::geqrf(wide(call.in[0]));
    call.out[0].copy_(reflected);
    call.out[1].copy_(factors);
}

void check_orthogonal(LegacyArguments &call) {
    check_reflections(call.in[0], call.in[1], kAnyField);
    if (call.in[0].size(-2) < call.in[0].size(-1))
        fail(FaultKind::InvalidArgument, "x is {}, expected no more columns than rows", describe(call.in[0]));
    alike(call.out[0], call.in[0], "the output");
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(CustEig, check_eigen(arguments), eigen(arguments))
LEGACY(CustMatrixExp, check_like_itself(arguments, kAnyField | at::kHalf),
       out[0].copy_(at::linalg_matrix_exp(wide(in[0]))))
LEGACY(CustCholeskyInverse, check_like_itself(arguments, kReal),
       out[0].copy_(of_root(wide(in[0]), flag(attributes, "upper", false))))
// in: the right hand side, the decomposition.
LEGACY(CustCholeskySolve, check_system(in[0], in[1], out[0], kReal),
       out[0].copy_(at::cholesky_solve(wide(in[0]), wide(in[1]), flag(attributes, "upper", false))))
LEGACY(CustLuSolve, check_lu_solve(arguments),
       out[0].copy_(at::linalg_lu_solve(wide(in[1]), pivots(in[2], in[1]), wide(in[0]))))
LEGACY(CustLuUnpack, check_lu_unpack(arguments), lu_unpack(arguments))
LEGACY(CustLuUnpackGrad, check_unpack_grad(arguments), unpack_grad(arguments))
LEGACY(CustGeqrf, check_reflections(in[0], out[1], kReal); alike(out[0], in[0], "the output"), reflect(arguments))
LEGACY(CustOrgqr, check_orthogonal(arguments), out[0].copy_(at::linalg_householder_product(wide(in[0]), wide(in[1]))))
