// Which logits a sampler may choose from.
#include <limits>

#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

void check_sampling(const Operand &logits, const Operand &p, const Operand &k, const Operand &out) {
    rank(logits, {2});
    network(logits);
    same_shape(out, logits);
    same_dtype(out, logits);
    if (p.defined()) {
        same_dtype(p, logits);
        shape(p, {logits.size(0)});
    }
    if (k.defined()) {
        dtype(k, {at::kInt});
        shape(k, {logits.size(0)});
    }
}

// The k largest of a row, and of these as few as hold a share of p; all others become -inf. At least one stays.
void top_k_top_p(const at::Tensor &logits, const at::Tensor &p, const at::Tensor &k, at::Tensor &out) {
    if (logits.numel() == 0) return;
    const float nothing = -std::numeric_limits<float>::infinity();
    auto [value, index] = at::sort(widened(logits), true, -1, false);
    const int64_t count = logits.size(1);
    if (k.defined()) {
        const at::Tensor from = (count - k.to(at::kLong)).clamp_(0, count - 1).unsqueeze(1);
        value = value.masked_fill(value.lt(value.gather(1, from)), nothing);
    }
    if (p.defined()) {
        at::Tensor rare = at::softmax(value, -1).cumsum(-1).le(1 - widened(p).unsqueeze(1));
        rare.select(1, count - 1).fill_(false);
        value = value.masked_fill(rare, nothing);
    }
    out.copy_(at::empty_like(value).scatter_(1, index, value));
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnApplyTopKTopP, optional(p, k); check_sampling(logits, p, k, out), top_k_top_p(logits, p, k, out))
