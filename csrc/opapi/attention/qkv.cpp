// What nn.MultiheadAttention's fast path asks for before attention itself.
#include "device/fault.h"
#include "opapi/aclnn/op.h"

namespace vnpu::opapi {
namespace {

void check_projection(const Operand &qkv, const Operand &bias, int64_t heads, const Operand &q, const Operand &k,
                      const Operand &v) {
    rank(qkv, {3});
    floating(qkv);
    if (heads < 1 || qkv.size(2) % (3 * heads) != 0)
        fail(FaultKind::InvalidArgument,
             "parameter numHeads is {}, which does not divide a third of the last size of {}", heads, describe(qkv));
    shape(bias, {qkv.size(2)});
    for (const Operand *out : {&q, &k, &v}) {
        shape(*out, {qkv.size(0), heads, qkv.size(1), qkv.size(2) / 3 / heads});
        same_dtype(*out, qkv);
    }
}

// [B, T, 3 D] to three of [B, H, T, D / H]: the bias added, the query divided by sqrt(D / H). ATen has no out= form.
void project(at::Tensor &q, at::Tensor &k, at::Tensor &v, const at::Tensor &qkv, const at::Tensor &bias,
             int64_t heads) {
    const auto [query, key, value] = at::_transform_bias_rescale_qkv(qkv, bias, heads);
    q.copy_(query);
    k.copy_(key);
    v.copy_(value);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnTransformBiasRescaleQkv, check_projection(qkv, qkvBias, numHeads, qOut, kOut, vOut),
   project(qOut, kOut, vOut, qkv, qkvBias, numHeads))
