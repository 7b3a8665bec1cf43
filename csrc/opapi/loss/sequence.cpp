// Losses over sequences and sets of labels.
#include <algorithm>
#include <numeric>

#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"

namespace vnpu::opapi {
namespace {

// --- connectionist temporal classification: log_probs [T, N, C] (N may be missing), targets [N, S] or all in a row.

void check_ctc_fits(const at::Tensor &log_probs, const at::Tensor &targets, at::IntArrayRef input_lengths,
                    at::IntArrayRef target_lengths, int64_t blank) {
    const int64_t batch = log_probs.dim() == 3 ? log_probs.size(1) : 1, classes = log_probs.size(-1);
    if (batch < 1)
        fail(FaultKind::InvalidArgument, "parameter logProbs is {}, expected at least one sequence",
             describe(log_probs));
    if (blank < 0 || blank >= classes)
        fail(FaultKind::InvalidArgument, "parameter blank is {}, allowed is 0 to {}", blank, classes - 1);
    for (const auto &[name, lengths] : {std::pair("inputLengths", &input_lengths), {"targetLengths", &target_lengths}})
        if (static_cast<int64_t>(lengths->size()) != batch)
            fail(FaultKind::InvalidArgument, "parameter {} has {} values, expected {}, one for each sequence", name,
                 lengths->size(), batch);
    for (const int64_t length : input_lengths)
        if (length < 0 || length > log_probs.size(0))
            fail(FaultKind::InvalidArgument, "parameter inputLengths has the value {}, allowed is 0 to {}", length,
                 log_probs.size(0));
    // CANN asks for their sum and their largest value alone, and reads before the targets.
    for (const int64_t length : target_lengths)
        if (length < 0)
            fail(FaultKind::InvalidArgument,
                 "parameter targetLengths has the value {}, which hardware takes; allowed is 0 or more", length);
    // (ops-nn: aclnn_ctc_loss.cpp, CheckTargetAndOutShapeParameterValue, and aclnn_ctc_loss_backward.cpp)
    if (targets.dim() == 2 && targets.size(0) != batch)
        fail(FaultKind::InvalidArgument, "parameter targets is {}, expected [{}, ...], one row for each sequence",
             describe(targets), batch);
    const int64_t room = targets.size(-1);
    const int64_t used = targets.dim() > 1 ? *std::max_element(target_lengths.begin(), target_lengths.end())
                                           : std::accumulate(target_lengths.begin(), target_lengths.end(), int64_t{0});
    if (used > room || (targets.dim() == 1 && used != room))
        fail(FaultKind::InvalidArgument, "parameter targetLengths asks for {} labels, targets has {}", used, room);
}

void check_ctc(const Operand &log_probs, const Operand &targets, const Ints &input_lengths, const Ints &target_lengths,
               int64_t blank) {
    rank(log_probs, {2, 3});
    floating(log_probs);
    dtype(targets, {at::kLong, at::kInt, at::kBool, at::kFloat, at::kHalf});
    rank(targets, {1, 2});
    check_ctc_fits(log_probs, targets, input_lengths, target_lengths, blank);
}

// torch_npu tells the old operator the longest target within `blank`, as a multiple of the classes.
int64_t old_blank(const LegacyArguments &call, const at::Tensor &log_probs) {
    return attribute<int64_t>(call.attributes, "blank", 0) % log_probs.size(-1);
}

void check_old_ctc(LegacyArguments &call) {
    const at::Tensor &log_probs = call.in[0], &targets = call.in[1];
    if (log_probs.dim() != 3 || log_probs.scalar_type() != at::kFloat || log_probs.size(-1) == 0)
        fail(FaultKind::InvalidArgument, "log_probs is {}, expected three dimensions of float32", describe(log_probs));
    if (targets.dim() < 1 || targets.dim() > 2)
        fail(FaultKind::InvalidArgument, "targets is {}, expected one or two dimensions", describe(targets));
    check_ctc_fits(log_probs, targets, ints(call.in[2]), ints(call.in[3]), old_blank(call, log_probs));
}

// The lengths lie on the device.
void check_old_ctc_backward(LegacyArguments &call) {
    const at::Tensor &log_probs = call.in[1];
    if (log_probs.dim() < 2 || log_probs.scalar_type() != at::kFloat || call.out[0].sizes() != log_probs.sizes())
        fail(FaultKind::InvalidArgument, "log_probs is {} and its gradient {}, expected one shape, and float32",
             describe(log_probs), describe(call.out[0]));
    for (size_t i = 3; i < 7; ++i) call.in[i];
}

at::Tensor batched(const at::Tensor &tensor, bool single, int64_t dim) {
    return single ? widened(tensor).unsqueeze(dim) : widened(tensor);
}

// `log_alpha` is ours alone: between forward and backward it may be larger than what a kernel fills (CANN aligns it).
void ctc_loss(at::Tensor &loss, at::Tensor &log_alpha, const at::Tensor &log_probs, const at::Tensor &targets,
              at::IntArrayRef input_lengths, at::IntArrayRef target_lengths, int64_t blank, bool zero_infinity) {
    const bool single = log_probs.dim() == 2;
    const auto [values, alpha] = at::_ctc_loss(batched(log_probs, single, 1).contiguous(), targets.to(at::kLong),
                                               input_lengths, target_lengths, blank, zero_infinity);
    loss.copy_(values.reshape(loss.sizes()));
    at::Tensor room = single && log_alpha.dim() == 2 ? log_alpha.unsqueeze(0) : log_alpha;
    room.narrow(1, 0, alpha.size(1)).narrow(2, 0, alpha.size(2)).copy_(alpha);
}

void check_alpha(const Operand &log_alpha, const Operand &log_probs, const Ints &target_lengths) {
    rank(log_alpha, {2, 3});
    const int64_t states = 2 * *std::max_element(target_lengths.begin(), target_lengths.end()) + 1;
    if (log_alpha.size(-2) < log_probs.size(0) || log_alpha.size(-1) < states)
        fail(FaultKind::InvalidArgument, "parameter {} is {}, expected at least {} steps of {} states",
             log_alpha.parameter(), describe(log_alpha), log_probs.size(0), states);
}

void ctc_loss_backward(at::Tensor &out, const at::Tensor &grad, const at::Tensor &log_probs, const at::Tensor &targets,
                       at::IntArrayRef input_lengths, at::IntArrayRef target_lengths, const at::Tensor &loss,
                       const at::Tensor &log_alpha, int64_t blank, bool zero_infinity) {
    const bool single = log_probs.dim() == 2;
    const int64_t states = 2 * *std::max_element(target_lengths.begin(), target_lengths.end()) + 1;
    const at::Tensor alpha = batched(log_alpha, single && log_alpha.dim() == 2, 0)
                                 .narrow(1, 0, log_probs.size(0))
                                 .narrow(2, 0, states)
                                 .contiguous();
    const at::Tensor result = at::_ctc_loss_backward(
        widened(grad).reshape({-1}), batched(log_probs, single, 1).contiguous(), targets.to(at::kLong), input_lengths,
        target_lengths, widened(loss).reshape({-1}), alpha, blank, zero_infinity);
    out.copy_(result.reshape(out.sizes()));
}

// --- margins between the labels that hold and those that do not.

void check_multilabel(const Operand &self, const Operand &target, int64_t reduction, const Operand &out,
                      const Operand &is_target) {
    rank(self, {0, 1, 2});
    network(self, out);
    dtype(target, {at::kLong, at::kInt});
    same_shape(target, self);
    same_shape(is_target, self);
    if (reduction < 0 || reduction > 2)
        fail(FaultKind::InvalidArgument, "parameter reduction is {}, allowed are 0 (none), 1 (mean) and 2 (sum)",
             reduction);
    if (reduction == at::Reduction::None && self.dim() == 2)
        shape(out, {self.size(0)});
    else
        shape(out, {});
}

void multilabel_margin(at::Tensor &out, at::Tensor &is_target, const at::Tensor &self, const at::Tensor &target,
                       int64_t reduction) {
    const auto [loss, mask] =
        at::multilabel_margin_loss_forward(widened(self).contiguous(), target.to(at::kLong).contiguous(), reduction);
    out.copy_(loss.reshape(out.sizes()));
    is_target.copy_(mask);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnCtcLoss, check_ctc(logProbs, targets, inputLengths, targetlengths, blank);
   check_alpha(logAlphaOut, logProbs, targetlengths),
   ctc_loss(negLogLikelihoodOut, logAlphaOut, logProbs, targets, inputLengths, targetlengths, blank, zeroInfinity))
OP(aclnnCtcLossBackward, check_ctc(logProbs, targets, inputLengths, targetLengths, blank); same_shape(out, logProbs);
   check_alpha(logAlpha, logProbs, targetLengths),
   ctc_loss_backward(out, gradOut, logProbs, targets, inputLengths, targetLengths, negLogLikelihood, logAlpha, blank,
                     zeroInfinity))
OP(aclnnMultilabelMarginLoss, check_multilabel(self, target, reduction, out, isTarget),
   multilabel_margin(out, isTarget, self, target, reduction))

LEGACY(CTCLossV2, check_old_ctc(arguments),
       ctc_loss(out[0], out[1], in[0], in[1], ints(in[2]), ints(in[3]), old_blank(arguments, in[0]),
                attribute<bool>(attributes, "zero_infinity", false)))
LEGACY(CTCLossV2Grad, check_old_ctc_backward(arguments),
       ctc_loss_backward(out[0], in[0], in[1], in[2], ints(in[3]), ints(in[4]), in[5], in[6],
                         old_blank(arguments, in[1]), attribute<bool>(attributes, "zero_infinity", false)))
