// Dropout of whole channels, for which MindSpore has kernels of its own (dropout2d.cc, dropout3d.cc). There the clock
// is the seed; here calls are numbered when they are made, so that a run repeats.
#include <atomic>

#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"
#include "opapi/random/philox.h"

namespace vnpu::opapi {
namespace {

double keep_prob(const aclopAttr &attributes) {
    const double keep = attribute<float>(attributes, "keep_prob", 0.5F);
    if (!(keep >= 0 && keep <= 1))
        fail(FaultKind::InvalidArgument, "attribute keep_prob is {}, allowed is 0 to 1", keep);
    return keep;
}

void number_call(LegacyArguments &call, int64_t rank) {
    static std::atomic<int64_t> calls{0};
    const at::Tensor &x = call.in[0];
    if (x.dim() != rank) fail(FaultKind::InvalidArgument, "x is {}, expected {} dimensions", describe(x), rank);
    alike(call.out[0], x, "the output");
    allowed(call.out[1], at::kBool, "the mask");
    sizes(call.out[1], x.sizes(), "the mask");
    keep_prob(call.attributes);
    call.attributes.values["call"] = calls++;
}

// x / keep_prob, both in x's dtype, but that integers are divided by the number itself and truncated.
void drop(LegacyArguments &call) {
    const at::Tensor x = widened(call.in[0]);
    const double keep = keep_prob(call.attributes);
    const Philox philox(/*seed=*/0, static_cast<uint64_t>(attribute<int64_t>(call.attributes, "call", 0)));
    at::Tensor kept = at::empty({x.size(0), x.size(1)}, at::kBool);
    bool *each = kept.mutable_data_ptr<bool>();
    for (int64_t i = 0; i < kept.numel(); ++i)
        each[i] = philox(static_cast<uint64_t>(i))[0] < static_cast<uint64_t>(keep * 0x1p32);
    while (kept.dim() < x.dim()) kept = kept.unsqueeze(-1);
    call.out[1].copy_(kept.expand_as(x));
    const bool real = at::isFloatingType(x.scalar_type());
    const at::Tensor share = at::scalar_tensor(keep, real ? call.in[0].scalar_type() : at::kDouble);
    const at::Tensor grown = keep == 0 || keep == 1 ? x : (real ? x : x.to(at::kDouble)) / widened(share);
    call.out[0].copy_(grown.masked_fill(kept.logical_not(), 0));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(CustDropout2D, number_call(arguments, 4), drop(arguments))
LEGACY(CustDropout3D, number_call(arguments, 5), drop(arguments))
