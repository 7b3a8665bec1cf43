// Rows of the old API that indices pick, and the gradient of an embedding in fp32, rounded once.
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

void check_gather(LegacyArguments &call) {
    allowed(call.in[1], {at::kInt, at::kLong}, "indices");
    if (attribute<int64_t>(call.attributes, "batch_dims", 0) != 0)
        fail(FaultKind::Unsupported, "The virtual NPU does not have batch_dims of GatherV2.");
    const int64_t size = call.in[0].size(axis_input(call.in[0], call.in[2]));
    holds(call.out[0], size == 0 ? 0 : call.in[0].numel() / size * call.in[1].numel(), "the output");
}

void gather(LegacyArguments &call) {
    const int64_t axis = axis_input(call.in[0], call.in[2]);
    put(call.out[0], call.in[0].index_select(axis, call.in[1].flatten().to(at::kLong)));
}

void check_embedding_grad(LegacyArguments &call) {
    allowed(call.in[0], kNative, "the gradient");
    allowed(call.in[1], {at::kInt, at::kLong}, "indices");
    const int64_t width = call.in[0].size(-1);
    holds(call.in[0], call.in[1].numel() * width, "the gradient");
    sizes(call.out[0], {attribute<int64_t>(call.attributes, "num_weights", 0), width}, "the output");
}

void embedding_grad(LegacyArguments &call) {
    const at::Tensor grad = widened(call.in[0]).reshape({-1, call.in[0].size(-1)});
    call.out[0].copy_(at::embedding_dense_backward(grad, call.in[1].flatten().to(at::kLong), call.out[0].size(0),
                                                   attribute<int64_t>(call.attributes, "padding_idx", -1),
                                                   attribute<bool>(call.attributes, "scale_grad_by_freq", false)));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(GatherV2, check_gather(arguments), gather(arguments))
LEGACY(EmbeddingDenseGrad, check_embedding_grad(arguments), embedding_grad(arguments))
