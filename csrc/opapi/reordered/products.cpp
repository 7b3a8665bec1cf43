// Products of matrices and vectors: along the axis that both operands share.
#include "opapi/reordered/order.h"

namespace vnpu::opapi::reordered {
namespace {

using at::Scalar;
using at::Tensor;

// The last axis of the left operand is the last but one of the right, or its only one.
int64_t inner(const Tensor &right) { return right.dim() == 1 ? 0 : right.dim() - 2; }

Tensor mm(const Tensor &self, const Tensor &mat2) {
    const AsIs as_is;
    return at::mm(shuffled(self, 1), shuffled(mat2, 0));
}

Tensor &mm_out(const Tensor &self, const Tensor &mat2, Tensor &out) {
    const AsIs as_is;
    return at::mm_out(out, shuffled(self, 1), shuffled(mat2, 0));
}

Tensor bmm(const Tensor &self, const Tensor &mat2) {
    const AsIs as_is;
    return at::bmm(shuffled(self, 2), shuffled(mat2, 1));
}

Tensor &bmm_out(const Tensor &self, const Tensor &mat2, Tensor &out) {
    const AsIs as_is;
    return at::bmm_out(out, shuffled(self, 2), shuffled(mat2, 1));
}

Tensor mv(const Tensor &self, const Tensor &vec) {
    const AsIs as_is;
    return at::mv(shuffled(self, 1), shuffled(vec, 0));
}

Tensor dot(const Tensor &self, const Tensor &other) {
    const AsIs as_is;
    return at::dot(shuffled(self, 0), shuffled(other, 0));
}

Tensor vdot(const Tensor &self, const Tensor &other) {
    const AsIs as_is;
    return at::vdot(shuffled(self, 0), shuffled(other, 0));
}

// addmm, baddbmm and addmv are one form: self * beta + left right * alpha.
template <Tensor (*Function)(const Tensor &, const Tensor &, const Tensor &, const Scalar &, const Scalar &)>
Tensor added(const Tensor &self, const Tensor &left, const Tensor &right, const Scalar &beta, const Scalar &alpha) {
    const AsIs as_is;
    return Function(self, shuffled(left, left.dim() - 1), shuffled(right, inner(right)), beta, alpha);
}

template <Tensor &(*Function)(Tensor &, const Tensor &, const Tensor &, const Tensor &, const Scalar &, const Scalar &)>
Tensor &added_out(const Tensor &self, const Tensor &left, const Tensor &right, const Scalar &beta, const Scalar &alpha,
                  Tensor &out) {
    const AsIs as_is;
    return Function(out, self, shuffled(left, left.dim() - 1), shuffled(right, inner(right)), beta, alpha);
}

template <Tensor &(*Function)(Tensor &, const Tensor &, const Tensor &, const Tensor &, const Scalar &, const Scalar &)>
Tensor &added_in_place(Tensor &self, const Tensor &left, const Tensor &right, const Scalar &beta, const Scalar &alpha) {
    return added_out<Function>(self, left, right, beta, alpha, self);
}

}  // namespace

void add_products(torch::Library &library) {
    library.impl("mm", TORCH_FN(mm));
    library.impl("mm.out", TORCH_FN(mm_out));
    library.impl("bmm", TORCH_FN(bmm));
    library.impl("bmm.out", TORCH_FN(bmm_out));
    library.impl("mv", TORCH_FN(mv));
    library.impl("dot", TORCH_FN(dot));
    library.impl("vdot", TORCH_FN(vdot));
    library.impl("addmm", TORCH_FN(added<at::addmm>));
    library.impl("addmm.out", TORCH_FN(added_out<at::addmm_out>));
    library.impl("addmm_", TORCH_FN(added_in_place<at::addmm_out>));
    library.impl("baddbmm", TORCH_FN(added<at::baddbmm>));
    library.impl("baddbmm.out", TORCH_FN(added_out<at::baddbmm_out>));
    library.impl("baddbmm_", TORCH_FN(added_in_place<at::baddbmm_out>));
    library.impl("addmv", TORCH_FN(added<at::addmv>));
    library.impl("addmv.out", TORCH_FN(added_out<at::addmv_out>));
    library.impl("addmv_", TORCH_FN(added_in_place<at::addmv_out>));
}

}  // namespace vnpu::opapi::reordered
