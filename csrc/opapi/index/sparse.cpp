// What torch_npu's coalesce() of sparse tensors is made of.
#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"

namespace vnpu::opapi {
namespace {

// Entry i is entry places[i] of the result; `distinct` is looked at for its size alone.
void check_coalesce(const Operand &distinct, const Operand &places, const Operand &indices, const Operand &values,
                    const Operand &new_indices, const Operand &new_values) {
    for (const Operand *each : {&distinct, &places, &indices, &values, &new_indices, &new_values}) require(*each);
    rank(indices, {2});
    if (values.dim() < 1 || places.numel() != indices.size(0) || values.size(0) != indices.size(0))
        fail(FaultKind::InvalidArgument,
             "uniqueIndices is {}, indices {} and values {}, expected as many of each along the first dimension",
             describe(places), describe(indices), describe(values));
    same_dtype(distinct, places);
    same_dtype(new_indices, indices);
    same_dtype(new_values, values);
    at::DimVector sizes(values.sizes());
    sizes[0] = distinct.numel();
    shape(new_indices, {distinct.numel(), indices.size(1)});
    shape(new_values, sizes);
}

// Values are added to what the result holds (ops-math: coalesce_sparse.h), of entries at one place the last one's
// indices stay, which are the same for all.
void coalesce(const at::Tensor &places, const at::Tensor &indices, const at::Tensor &values, at::Tensor &new_indices,
              at::Tensor &new_values) {
    const at::Tensor at = places.to(at::kLong).reshape({-1});
    new_indices.index_copy_(0, at, indices);
    new_values.index_add_(0, at, values);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnCoalesceSparse, check_coalesce(uniqueLen, uniqueIndices, indices, values, newIndicesOut, newValuesOut),
   coalesce(uniqueIndices, indices, values, newIndicesOut, newValuesOut))
