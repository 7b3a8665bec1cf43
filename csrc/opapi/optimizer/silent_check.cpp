// Detection of silent faults (NPU_ASD_ENABLE): whether the norm of a gradient is out of all proportion, by its value or
// by its jump from the last one. torch_npu asks before each collective of a backward pass; MindSpore likewise.
//
// From CANN's page of aclnnSilentCheck: the levels, what raises them, and that the state is the last, the smallest and
// the largest value. What a jump is measured by is on no public page; here by the distance of smallest and largest, the
// only scale that the state has, and not before `least` values have been seen, nor where all have been the same.
#include <algorithm>
#include <cmath>

#include "opapi/aclnn/op.h"
#include "opapi/aclop/legacy.h"

namespace vnpu::opapi {
namespace {

enum Level : int32_t { kNormal = 0, kError = 1, kWarning = 2 };  // the numbers of `result`

struct Thresholds {
    int64_t least;
    double error, error_jump, warning, warning_jump;
};

struct Seen {
    float last, smallest, largest;
};

Level judge(float value, const Seen &seen, int64_t step, const Thresholds &limits) {
    const double jump = std::abs(double{value} - seen.last), scale = double{seen.largest} - seen.smallest;
    const bool jumps = step >= limits.least && scale > 0;
    if (!std::isfinite(value) || value > limits.error || (jumps && jump > limits.error_jump * scale)) return kError;
    if (value > limits.warning || (jumps && jump > limits.warning_jump * scale)) return kWarning;
    return kNormal;
}

Seen updated(float value, const Seen &seen, bool first) {
    if (first) return {value, value, value};
    return {value, std::min(seen.smallest, value), std::max(seen.largest, value)};
}

// The gradient is zeroed before the task fails, so that what is read in spite of it does no harm.
[[noreturn]] void stop(float value, at::Tensor &gradient) {
    gradient.zero_();
    fail(
        FaultKind::DeviceCpuFailure,
        "Silent check: the norm of a gradient is {}, an error of level 1 by the thresholds of NPU_ASD_UPPER_THRESH and "
        "NPU_ASD_SIGMA_THRESH. NPU_ASD_ENABLE=1 would go on.",
        value);
}

void check_state(const Operand &val, const Operand &sfda, const Operand &step, const Operand &result) {
    one_element(val);
    one_element(step);
    one_element(result);
    dtype(result, at::kInt);
    if (sfda.numel() != 3)
        fail(FaultKind::InvalidArgument, "sfdaRef holds the last, smallest and largest value, not {} values",
             sfda.numel());
}

// `detect` is NPU_ASD_ENABLE: 1 only tells, 2 and 3 end the run at an error.
void silent_check(const at::Tensor &val, at::Tensor &gradient, at::Tensor &sfda, at::Tensor &step,
                  const Thresholds &limits, int64_t detect, at::Tensor &result) {
    const auto value = val.item<float>();
    const auto number = step.item<int64_t>();
    const at::Tensor state = sfda.reshape({3});
    const Seen seen{state[0].item<float>(), state[1].item<float>(), state[2].item<float>()};
    const Level level = judge(value, seen, number, limits);
    result.fill_(static_cast<int32_t>(level));
    if (level == kError && detect != 1) stop(value, gradient);
    const Seen now = updated(value, seen, number == 0);
    sfda.copy_(at::tensor({now.last, now.smallest, now.largest}).view_as(sfda));
    step.add_(1);
}

// The operator before, whose state is three tensors, whose caller counts the steps, and which always ends the run.
void first_silent_check(const LegacyTensors &in, LegacyTensors &out, const Thresholds &limits) {
    const auto value = in.at(0).item<float>();
    const Seen seen{in.at(2).item<float>(), in.at(3).item<float>(), in.at(4).item<float>()};
    const Level level = judge(value, seen, in.at(5).item<int64_t>(), limits);
    out[4].fill_(static_cast<int32_t>(level));
    if (level == kError) stop(value, out[0]);
    const Seen now = updated(value, seen, false);
    out[1].fill_(now.last);
    out[2].fill_(now.smallest);
    out[3].fill_(now.largest);
}

void check_first(LegacyTensors &in, LegacyTensors &out) {
    for (size_t index : {0, 2, 3, 4, 5})
        if (in[index].numel() != 1)
            fail(FaultKind::InvalidArgument, "input {} of SilentCheck holds {} values, not one", index,
                 in[index].numel());
    static_cast<void>(out[4]);
}

Thresholds thresholds(const aclopAttr &attributes) {
    return {attribute<int64_t>(attributes, "c_min_steps", 7), attribute<float>(attributes, "c_thresh_l1", 1e6F),
            attribute<float>(attributes, "c_coeff_l1", 1e5F), attribute<float>(attributes, "c_thresh_l2", 1e4F),
            attribute<float>(attributes, "c_coeff_l2", 5e3F)};
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnSilentCheck, check_state(val, sfdaRef, stepRef, result),
   silent_check(val, inputGradRef, sfdaRef, stepRef, {cMinSteps, cThreshL1, cCoeffL1, cThreshL2, cCoeffL2},
                npuAsdDetect, result))

LEGACY(SilentCheck, check_first(in, out), first_silent_check(in, out, thresholds(attributes)))
