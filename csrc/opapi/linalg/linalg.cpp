// Linear algebra beyond products: inverse, decompositions, solving, determinants. Through LAPACK in the operand's
// dtype; results pass through LAPACK's column-major temporaries.
#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kLapack = kComplex | at::kFloat | at::kDouble;

void check_square(const Operand &self) {
    matrices(self);
    if (self.size(-1) != self.size(-2))
        fail(FaultKind::InvalidArgument, "parameter {} is {}: its matrices are not square", self.parameter(),
             describe(self));
}

// `out` holds matrices of `rows` x `columns` over self's batch.
void check_batch(const Operand &out, const Operand &self, int64_t rows, int64_t columns) {
    at::DimVector sizes(self.sizes().begin(), self.sizes().end() - 2);
    sizes.push_back(rows);
    sizes.push_back(columns);
    same_dtype(out, self);
    shape(out, sizes);
}

void check_inverse(const Operand &out, const Operand &self, DTypes dtypes) {
    dtype(self, dtypes);
    check_square(self);
    same_dtype(out, self);
    same_shape(out, self);
}

void check_determinant(const Operand &sign, const Operand &log, const Operand &self) {
    dtype(self, kLapack);
    check_square(self);
    same_dtype(sign, self);
    for (const Operand *out : {&sign, &log}) shape(*out, self.sizes().slice(0, static_cast<size_t>(self.dim()) - 2));
}

enum class Qr { Reduced, Complete, OnlyR };

void check_factors(const Operand &q, const Operand &r, const Operand &self, int64_t mode) {
    dtype(self, kLapack | at::kHalf);
    matrices(self);
    if (mode < 0 || mode > 2)
        fail(FaultKind::InvalidArgument, "parameter mode is {}, allowed are 0 (reduced), 1 (complete), 2 (r)", mode);
    const int64_t m = self.size(-2), n = self.size(-1), k = std::min(m, n);
    const bool complete = static_cast<Qr>(mode) == Qr::Complete;
    if (static_cast<Qr>(mode) != Qr::OnlyR) check_batch(q, self, m, complete ? m : k);
    check_batch(r, self, complete ? m : k, n);
}

void factor(at::Tensor &q, at::Tensor &r, const at::Tensor &self, int64_t mode) {
    static constexpr std::string_view kNames[] = {"reduced", "complete", "r"};
    const auto [first, second] = at::linalg_qr(widened(self), kNames[mode]);
    if (static_cast<Qr>(mode) != Qr::OnlyR) q.copy_(first);
    r.copy_(second);
}

void check_singular(const Operand &sigma, const Operand &u, const Operand &v, const Operand &self, bool full,
                    bool vectors) {
    dtype(self, kLapack);
    matrices(self);
    const int64_t m = self.size(-2), n = self.size(-1), k = std::min(m, n);
    at::DimVector values(self.sizes().begin(), self.sizes().end() - 2);
    values.push_back(k);
    shape(sigma, values);
    dtype(sigma, c10::toRealValueType(self.scalar_type()));
    if (!vectors) return;
    check_batch(u, self, m, full ? m : k);
    check_batch(v, self, n, full ? n : k);
}

void decompose(at::Tensor &sigma, at::Tensor &u, at::Tensor &v, const at::Tensor &self, bool full, bool vectors) {
    if (!vectors) {
        sigma.copy_(at::linalg_svdvals(self));
        return;
    }
    const auto [left, values, right] = at::linalg_svd(self, full);
    u.copy_(left);
    sigma.copy_(values);
    v.copy_(right.mT());  // CANN: input = U diag(sigma) V^T, also for complex values
}

// self and A broadcast over their batches; mOut is A as it was broadcast.
void check_solve(const Operand &x, const Operand &m, const Operand &self, const Operand &a) {
    dtype(self, kLapack);
    same_dtype(a, self);
    same_dtype(x, self);
    same_dtype(m, self);
    check_square(a);
    matrices(self);
    if (self.size(-2) != a.size(-1))
        fail(FaultKind::InvalidArgument, "parameter self is {}, A is {}: their rows differ", describe(self),
             describe(a));
    matrices(x);
    matrices(m);
    if (x.size(-2) != self.size(-2) || x.size(-1) != self.size(-1))
        fail(FaultKind::InvalidArgument, "parameter xOut is {}, expected the matrices of self {}", describe(x),
             describe(self));
    if (m.size(-2) != a.size(-2) || m.size(-1) != a.size(-1))
        fail(FaultKind::InvalidArgument, "parameter mOut is {}, expected the matrices of A {}", describe(m),
             describe(a));
    expands(x, self);
    expands(m, a);
}

// The ones of a unit triangle are written over A in float32 (ops-math: aclnn_triangular_solve.cpp).
void check_unit_in_float(const Operand &self, const Operand &a, bool unit) {
    on_chip(!unit || a.scalar_type() == at::kFloat || self.numel() == 0 || a.numel() == 0,
            "unitriangular mode only support float: parameter A is {}", describe(a));
}

void solve(at::Tensor &x, at::Tensor &m, const at::Tensor &self, const at::Tensor &a, bool upper, bool transpose,
           bool unit) {
    const auto [result, used] = at::triangular_solve(self, a, upper, transpose, unit);
    x.copy_(result);
    m.copy_(used);
}

void check_cross(const Operand &out, const Operand &self, const Operand &other, int64_t dim) {
    dtype(self, kReals | kComplex);
    same_dtype(other, self);
    same_dtype(out, self);
    broadcasts(out, {&self, &other});
    dimension(dim, out);
    for (const Operand *in : {&self, &other})
        if (in->dim() == 0 || in->size(dim) != 3)
            fail(FaultKind::InvalidArgument, "parameter {} is {}, allowed is size 3 in dim {}", in->parameter(),
                 describe(*in), dim);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnInverse, check_inverse(out, self, DTypes{at::kFloat, at::kHalf, at::kDouble} | kComplex),
   out.copy_(at::linalg_inv(widened(self))))
OP(aclnnLinalgCholesky, check_inverse(out, self, kNative), out.copy_(at::linalg_cholesky(widened(self), upper)))
OP(aclnnSlogdet, check_determinant(signOut, logOut, self), {
    const auto [sign, log] = at::linalg_slogdet(self);
    signOut.copy_(sign);
    logOut.copy_(log);
})
OP(aclnnLinalgQr, check_factors(Q, R, self, mode), factor(Q, R, self, mode))
OP(aclnnSvd, check_singular(sigma, u, v, input, fullMatrices, computeUV),
   decompose(sigma, u, v, input, fullMatrices, computeUV))
OP(aclnnTriangularSolve, check_solve(xOut, mOut, self, A);
   check_unit_in_float(self, A, unitriangular), solve(xOut, mOut, self, A, upper, transpose, unitriangular))
// ATen rounds the products, CANN's kernel does not (ops-nn: cross_v2).
OP(aclnnLinalgCross, check_cross(out, self, other, dim),
   out.copy_(at::linalg_cross(widened(self), widened(other), dim)))
