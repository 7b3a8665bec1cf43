// TopKRouter, which MindSpore brings for the chip's CPU: places of tokens at experts that take `capacity` each.
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

// in: experts [batch, tokens, k], capacity, number of experts, which tokens come first: 0 by token, 1 by choice.
// out: the tokens of each expert's places, from 1 on, 0 where none is; the places [batch, tokens, k] of all experts in
// one row with an empty one before each expert's, which dropped tokens get.
void check_router(LegacyArguments &call) {
    allowed(call.in[0], at::kInt, "the experts");
    sizes(call.in[0], {-1, -1, -1}, "the experts");
    const int64_t capacity = one(call.in[1], "the capacity"), experts = one(call.in[2], "the number of experts"),
                  order = one(call.in[3], "drop_type");
    if (capacity < 1 || experts < 1 || order < 0 || order > 1)
        fail(FaultKind::InvalidArgument, "capacity is {}, the number of experts {}, drop_type {}", capacity, experts,
             order);
    sizes(call.out[0], {call.in[0].size(0), experts, capacity}, "dispatch_idx");
    alike(call.out[0], call.in[0].new_empty(call.out[0].sizes()), "dispatch_idx");
    alike(call.out[1], call.in[0], "combine_idx");
}

void router(LegacyArguments &call) {
    const at::Tensor experts = call.in[0].contiguous();
    const int64_t capacity = one(call.in[1], "the capacity"), count = one(call.in[2], "the number of experts"),
                  tokens = experts.size(1), k = experts.size(2);
    const bool by_choice = one(call.in[3], "drop_type") == 1;
    at::Tensor dispatch = at::zeros(call.out[0].sizes(), at::kInt), combine = at::zeros(experts.sizes(), at::kInt);
    const int32_t *given = experts.const_data_ptr<int32_t>();
    int32_t *places = dispatch.mutable_data_ptr<int32_t>(), *rows = combine.mutable_data_ptr<int32_t>();
    for (int64_t batch = 0; batch < experts.size(0); ++batch) {
        std::vector<int64_t> taken(static_cast<size_t>(count), 0);
        for (int64_t i = 0; i < tokens * k; ++i) {
            const int64_t token = by_choice ? i % tokens : i / k, choice = by_choice ? i / tokens : i % k;
            const int64_t at = (batch * tokens + token) * k + choice, expert = given[at];
            if (expert < 0 || expert >= count)
                fail(FaultKind::OutOfBounds, "expert {} of {} is asked for", expert, count);
            int64_t &place = taken[static_cast<size_t>(expert)];
            rows[at] = static_cast<int32_t>(expert * (capacity + 1));
            if (place == capacity) continue;
            places[(batch * count + expert) * capacity + place] = static_cast<int32_t>(token + 1);
            rows[at] += static_cast<int32_t>(++place);
        }
    }
    call.out[0].copy_(dispatch);
    call.out[1].copy_(combine);
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(CustTopKRouter, check_router(arguments), router(arguments))
