// CTC's best path: the most likely class of each step, in which the last class is the blank. Places and values are
// those of a sparse matrix, as in TensorFlow, with which CANN's prototype is compatible; the caller gives room for the
// longest.
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

// in: logits [steps, batch, classes], how many steps each of the batch has.
void check_greedy(LegacyArguments &call) {
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

// --- CTC: logits [time, batch, classes], [batch, place] of each label, the labels, lengths. The last class is the
// blank.

void check_ctc_loss(LegacyArguments &call) {
    allowed(call.in[0], at::kFloat, "the logits");
    sizes(call.in[0], {-1, -1, -1}, "the logits");
    sizes(call.in[1], {call.in[2].numel(), 2}, "the places of the labels");
    holds(call.in[3], call.in[0].size(1), "the lengths");
    holds(call.out[0], call.in[0].size(1), "the loss");
    alike(call.out[1], call.in[0], "the gradient");
    if (attribute<bool>(call.attributes, "preprocess_collapse_repeated", false) ||
        !attribute<bool>(call.attributes, "ctc_merge_repeated", true))
        fail(FaultKind::Unsupported,
             "The virtual NPU has CTCLoss with preprocess_collapse_repeated false and ctc_merge_repeated true only.");
}

void ctc(LegacyArguments &call) {
    const at::Tensor logits = widened(call.in[0]), places = call.in[1].to(at::kLong), labels = call.in[2].to(at::kLong);
    const int64_t batch = logits.size(1), blank = logits.size(2) - 1;
    const std::vector<int64_t> steps = ints(call.in[3]);
    std::vector<int64_t> lengths(static_cast<size_t>(batch), 0);
    for (int64_t i = 0; i < labels.numel(); ++i) {
        const auto row = places[i][0].item<int64_t>();
        if (row < 0 || row >= batch) fail(FaultKind::OutOfBounds, "label {} is of sequence {} of {}", i, row, batch);
        ++lengths[static_cast<size_t>(row)];
    }
    for (size_t i = 0; i < steps.size(); ++i)
        if (lengths[i] > steps[i] && !attribute<bool>(call.attributes, "ignore_longer_outputs_than_inputs", false))
            fail(FaultKind::InvalidArgument, "sequence {} has {} labels in {} steps", i, lengths[i], steps[i]);
    // Sorted by sequence and place, as a sparse tensor is.
    const at::Tensor targets = labels.index_select(0, at::argsort(places.select(1, 0), /*stable=*/true, 0, false));
    const at::Tensor chances = at::log_softmax(logits, 2);
    const auto [loss, alpha] = at::_ctc_loss(chances, targets, steps, lengths, blank, /*zero_infinity=*/true);
    call.out[0].copy_(loss);
    const at::Tensor slope = at::_ctc_loss_backward(at::ones_like(loss), chances, targets, steps, lengths, loss, alpha,
                                                    blank, /*zero_infinity=*/true);
    call.out[1].copy_(at::_log_softmax_backward_data(slope, chances, 2, at::kFloat));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(CTCGreedyDecoder, check_greedy(arguments), greedy(arguments))
LEGACY(CTCLoss, check_ctc_loss(arguments), ctc(arguments))
