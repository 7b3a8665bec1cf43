// Matrix products: the cube unit. cubeMathType chooses faster arithmetic of lower precision on hardware (HF32, fp16);
// the exact mode of the virtual NPU ignores it.
#include <ATen/ExpandUtils.h>

#include "device/fault.h"
#include "opapi/aclnn/format.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/number.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

// The last dimension of `a` is summed over with dimension `dim` of `b`.
void check_inner(const Operand &a, const Operand &b, int64_t dim) {
    if (a.size(-1) != b.size(dim))
        fail(FaultKind::InvalidArgument, "parameter {} has size {} in dimension {}, expected {}, the last size of {}",
             b.parameter(), b.size(dim), dim, a.size(-1), a.parameter());
}

// Two narrow factors are of one dtype where the second lies in blocks (ops-nn: aclnn_matmul.cpp, CheckWeightNzDtype).
// Elsewhere factors of any two dtypes meet in float32, bfloat16 and float16 too, whatever the pages say (ops-nn:
// matmul_util.cpp, Dav2201MatMulRule).
void check_one_narrow_dtype(const Operand &a, const Operand &b) {
    on_chip(!narrow(a) || !narrow(b) || a.scalar_type() == b.scalar_type(),
            "The dtypes of self and mat2 must be both DT_BF16 or both DT_FLOAT16: parameters {} and {} are {} and {}",
            a.parameter(), b.parameter(), describe(a), describe(b));
}

void check_mm(const Operand &a, const Operand &b, const Operand &out) {
    rank(a, {2});
    rank(b, {2});
    network(a, b, out);
    check_inner(a, b, 0);
    shape(out, {a.size(0), b.size(1)});
}

void check_mv(const Operand &matrix, const Operand &vector, const Operand &out) {
    rank(matrix, {2});
    rank(vector, {1});
    network(matrix, vector, out);
    check_inner(matrix, vector, 0);
    shape(out, {matrix.size(0)});
}

void check_as_many(const Operand &a, const Operand &b) {
    if (a.size(0) != b.size(0))
        fail(FaultKind::InvalidArgument, "parameter {} has {} matrices, expected {}, as many as {}", b.parameter(),
             b.size(0), a.size(0), a.parameter());
}

void check_bmm(const Operand &a, const Operand &b, const Operand &out) {
    rank(a, {3});
    rank(b, {3});
    network(a, b, out);
    check_as_many(a, b);
    check_inner(a, b, 1);
    shape(out, {a.size(0), a.size(1), b.size(2)});
}

// One matrix on either side stands for as many as the other has, which torch_npu asks for with
// TORCH_NPU_USE_COMPATIBLE_IMPL=1 (ops-nn: aclnn_batch_matmul.cpp).
void check_batch(const Operand &a, const Operand &b, const Operand &out) {
    rank(a, {3});
    rank(b, {3});
    network(a, b, out);
    if (a.size(0) != 1 && b.size(0) != 1) check_as_many(a, b);
    check_inner(a, b, 1);
    shape(out, {a.size(0) == 1 ? b.size(0) : a.size(0), a.size(1), b.size(2)});
}

void check_dot(const Operand &a, const Operand &b, const Operand &out) {
    for (const Operand *tensor : {&a, &b, &out}) dtype(*tensor, kNative | DTypes{at::kByte, at::kChar, at::kInt});
    rank(a, {1});
    rank(b, {1});
    same_dtype(b, a);
    same_dtype(out, a);
    check_inner(a, b, 0);
    shape(out, {});
}

void check_outer(const Operand &a, const Operand &b, const Operand &out) {
    rank(a, {1});
    rank(b, {1});
    shape(out, {a.size(0), b.size(0)});
}

at::Scalar or_one(const ScalarArgument &factor) { return factor.has_value() ? factor.get() : at::Scalar(1); }

// `self` is added to the product, which `out` has the shape of.
void check_addend(const Operand &self, const Operand &out) {
    network(self);
    expands(out, self);
}

// (ops-nn: aclnn_baddbmm.cpp, aclnn_addbmm.cpp)
void check_batched_addend(const Operand &self, const Operand &out) {
    check_addend(self, out);
    on_chip((self.numel() == 0) == (out.numel() == 0),
            "self and batch1@batch2 should be both empty tensors, or not: parameter self is {}, the product {}",
            describe(self), describe(out));
}

void check_addbmm(const Operand &self, const Operand &a, const Operand &b, const Operand &out) {
    rank(a, {3});
    rank(b, {3});
    network(a, b, out);
    check_inner(a, b, 1);
    check_as_many(a, b);
    shape(out, {a.size(1), b.size(2)});
    check_batched_addend(self, out);
}

void check_matmul(const Operand &a, const Operand &b, const Operand &out) {
    rank(a, {1, 2, 3, 4, 5, 6});
    rank(b, {1, 2, 3, 4, 5, 6});
    network(a, b, out);
    check_inner(a, b, b.dim() == 1 ? 0 : b.dim() - 2);
    const auto batch = [](const Operand &t) {
        return t.sizes().slice(0, static_cast<size_t>(std::max<int64_t>(t.dim() - 2, 0)));
    };
    at::DimVector sizes;
    try {
        sizes = at::infer_size_dimvector(batch(a), batch(b));
    } catch (const c10::Error &) {
        fail(FaultKind::InvalidArgument,
             "parameters {} and {}: {} and {} do not broadcast outside the last two dimensions", a.parameter(),
             b.parameter(), describe(a), describe(b));
    }
    if (a.dim() > 1) sizes.push_back(a.size(-2));
    if (b.dim() > 1) sizes.push_back(b.size(-1));
    shape(out, sizes);
}

// out = a @ b with torch.matmul's broadcasting. at::matmul_out would reshape `out` on its way.
void matmul(at::Tensor out, at::Tensor a, at::Tensor b) {
    if (a.dim() == 1) {
        out = out.unsqueeze(b.dim() == 1 ? -1 : out.dim() - 1);
        a = a.unsqueeze(0);
    }
    if (b.dim() == 1) {
        out = out.unsqueeze(-1);
        b = b.unsqueeze(-1);
    }
    if (a.size(-1) == 0) {  // sums of nothing; reshaping to rows could not tell how many there are
        out.zero_();
    } else if (b.dim() == 2 && a.dim() == 2) {
        at::mm_out(out, a, b);
    } else if (b.dim() == 2 && out.is_contiguous()) {  // one large product instead of many small ones
        at::Tensor rows = out.view({-1, out.size(-1)});
        at::mm_out(rows, a.reshape({-1, a.size(-1)}), b);
    } else if (out.numel() != 0) {
        const auto batched = [&](const at::Tensor &t) {
            at::DimVector sizes(out.sizes().begin(), out.sizes().end() - 2);
            sizes.insert(sizes.end(), t.sizes().end() - 2, t.sizes().end());
            return t.expand(sizes).reshape({-1, t.size(-2), t.size(-1)});
        };
        if (out.is_contiguous()) {
            at::Tensor matrices = out.view({-1, out.size(-2), out.size(-1)});
            at::bmm_out(matrices, batched(a), batched(b));
        } else {  // strides that no view flattens
            out.copy_(at::bmm(batched(a), batched(b)).view(out.sizes()));
        }
    }
}

}  // namespace
}  // namespace vnpu::opapi

// `self` (the addend), `a` and `b` are fp32 in the expression, and `target` is the fp32 output.
#define PRODUCT(NAME, OUT, CHECK, ...) OP(NAME, CHECK, rounded(OUT, [&](at::Tensor &target) { __VA_ARGS__; }))

PRODUCT(aclnnMm, out, check_mm(self, mat2, out), at::mm_out(target, widened(self), widened(mat2)))
PRODUCT(aclnnBatchMatMul, out, check_batch(self, mat2, out),
        at::bmm_out(target, widened(self).expand({out.size(0), -1, -1}), widened(mat2).expand({out.size(0), -1, -1})))
PRODUCT(aclnnMatmul, out, check_matmul(self, mat2, out), matmul(target, widened(self), widened(mat2)))
// The second operand may be stored in blocks (format.h).
PRODUCT(aclnnMatmulWeightNz, out, fractal_nz(mat2); check_one_narrow_dtype(self, mat2);
        check_matmul(self, mat2, out), matmul(target, widened(self), widened(unpacked(mat2))))
PRODUCT(aclnnBatchMatMulWeightNz, out, fractal_nz(mat2);
        check_bmm(self, mat2, out), at::bmm_out(target, widened(self), widened(unpacked(mat2))))
PRODUCT(aclnnAddmmWeightNz, out, fractal_nz(mat2); check_mm(mat1, mat2, out);
        check_addend(self, out), at::addmm_out(target, widened(self), widened(mat1), widened(unpacked(mat2)),
                                               computed(beta, target), computed(alpha, target)))
PRODUCT(aclnnMv, out, check_mv(self, vec, out), at::mv_out(target, widened(self), widened(vec)))
PRODUCT(aclnnAddmm, out, check_mm(mat1, mat2, out);
        check_addend(self, out), at::addmm_out(target, widened(self), widened(mat1), widened(mat2),
                                               computed(beta, target), computed(alpha, target)))
PRODUCT(aclnnInplaceAddmm, selfRef, check_mm(mat1, mat2, selfRef),
        at::addmm_out(target, widened(selfRef), widened(mat1), widened(mat2), computed(beta, target),
                      computed(alpha, target)))
PRODUCT(aclnnAddmv, out, check_mv(mat, vec, out);
        check_addend(self, out), at::addmv_out(target, widened(self), widened(mat), widened(vec),
                                               computed(beta, target), computed(alpha, target)))
PRODUCT(aclnnBaddbmm, out, check_bmm(batch1, batch2, out);
        check_batched_addend(self, out), at::baddbmm_out(target, widened(self), widened(batch1), widened(batch2),
                                                         computed(beta, target), computed(alpha, target)))
PRODUCT(aclnnAddbmm, out, check_addbmm(self, batch1, batch2, out),
        at::addbmm_out(target, widened(self), widened(batch1), widened(batch2), computed(beta, target),
                       computed(alpha, target)))
PRODUCT(aclnnDot, out, check_dot(self, tensor, out), at::dot_out(target, widened(self), widened(tensor)))
PRODUCT(aclnnAddr, out, check_outer(vec1, vec2, out);
        expands(out, self),
        at::addr_out(target, widened(self), widened(vec1), widened(vec2), or_one(betaOptional), or_one(alphaOptional)))
PRODUCT(aclnnInplaceAddr, selfRef, check_outer(vec1, vec2, selfRef),
        at::addr_out(target, widened(selfRef), widened(vec1), widened(vec2), or_one(betaOptional),
                     or_one(alphaOptional)))
