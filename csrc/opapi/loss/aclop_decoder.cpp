// CTC's best path: the most likely class of each step, in which the last class is the blank. Places and values are
// those of a sparse matrix, as in TensorFlow, with which CANN's prototype is compatible; the caller gives room for the
// longest.
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

// in: logits [steps, batch, classes], how many steps each of the batch has.
void greedy_check(LegacyArguments &call) {
    const at::Tensor &logits = call.in[0];
    allowed(logits, {at::kFloat, at::kDouble}, "inputs");
    sizes(logits, {-1, -1, -1}, "inputs");
    if (logits.size(2) < 1) fail(FaultKind::InvalidArgument, "inputs is {}, which has no classes", describe(logits));
    allowed(call.in[1], at::kInt, "sequence_length");
    sizes(call.in[1], {logits.size(1)}, "sequence_length");
    const int64_t most = logits.size(0) * logits.size(1);
    for (const size_t i : {0, 1, 2}) allowed(call.out[i], at::kLong, "a decoded output");
    holds(call.out[0], 2 * most, "decoded_indices");
    holds(call.out[1], most, "decoded_values");
    holds(call.out[2], 2, "decoded_shape");
    allowed(call.out[3], logits.scalar_type(), "log_probability");
    holds(call.out[3], logits.size(1), "log_probability");
}

void greedy(LegacyArguments &call) {
    const auto [best, classes] = call.in[0].to(at::kDouble).max(2);
    const int64_t steps = best.size(0), batch = best.size(1), blank = call.in[0].size(2) - 1;
    const bool merged = attribute<bool>(call.attributes, "merge_repeated", false);
    const std::vector<int64_t> lengths = ints(call.in[1]);
    std::vector<int64_t> places, values;
    std::vector<double> likelihoods;
    int64_t longest = 0;
    const auto value = best.accessor<double, 2>();
    const auto which = classes.accessor<int64_t, 2>();
    for (int64_t b = 0; b < batch; ++b) {
        const int64_t length = lengths[static_cast<size_t>(b)];
        if (length < 0 || length > steps)
            fail(FaultKind::OutOfBounds, "sequence_length has {}, there are {} steps", length, steps);
        double sum = 0;
        int64_t count = 0, before = -1;
        for (int64_t t = 0; t < length; ++t) {
            sum -= value[t][b];
            const int64_t now = which[t][b];
            if (now != blank && !(merged && now == before)) {
                places.insert(places.end(), {b, count++});
                values.push_back(now);
            }
            before = now;
        }
        likelihoods.push_back(sum);
        longest = std::max(longest, count);
    }
    const auto found = static_cast<int64_t>(values.size());
    call.out[0].view({-1}).narrow(0, 0, 2 * found).copy_(at::tensor(places, at::kLong));
    call.out[1].view({-1}).narrow(0, 0, found).copy_(at::tensor(values, at::kLong));
    (*call.found)[0] = {found, 2};
    (*call.found)[1] = {found};
    put(call.out[2], at::tensor({batch, longest}, at::kLong));
    put(call.out[3], at::tensor(likelihoods, at::kDouble));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(CTCGreedyDecoder, greedy_check(arguments), greedy(arguments))
