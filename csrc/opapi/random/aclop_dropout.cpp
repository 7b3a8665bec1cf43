// Dropout of the old API. DropOutGenMaskV3 and its users have a byte for each element, StatelessDropOutGenMask and
// DropOutDoMask a bit (random/dropout.h).
#include <ATen/Parallel.h>

#include <atomic>

#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"
#include "opapi/random/dropout.h"
#include "opapi/random/philox.h"

namespace vnpu::opapi {
namespace {

double probability(const at::Tensor &keep) {
    holds(keep, 1, "prob");
    const auto value = keep.reshape({}).item<double>();
    if (!(value >= 0 && value <= 1)) fail(FaultKind::InvalidArgument, "prob is {}, allowed is 0 to 1", value);
    return value;
}

int64_t elements(const at::Tensor &shape) {
    int64_t count = 1;
    for (const int64_t size : ints(shape)) count *= size;
    return count;
}

// torch_npu gives the same seed in each call and expects another mask: the operator counts its calls, here when they
// are made, so that a run repeats whatever its streams do.
void number_call(LegacyArguments &call) {
    static std::atomic<int64_t> calls{0};
    if (call.out[0].numel() < elements(call.in[0]))
        fail(FaultKind::InvalidArgument, "the mask is {}, expected a byte for each of {} elements",
             describe(call.out[0]), elements(call.in[0]));
    probability(call.in[1]);
    call.attributes.values["call"] = calls++;
}

// The same with a bit for each element.
void number_call_of_bits(LegacyArguments &call) {
    static std::atomic<int64_t> calls{0};
    holds(call.out[0], mask_bytes(elements(call.in[0])), "the mask");
    probability(call.in[1]);
    call.attributes.values["call"] = calls++;
}

void generate_bits(LegacyArguments &call) {
    const auto number = [&](const char *name) {
        return static_cast<uint64_t>(attribute<int64_t>(call.attributes, name, 0));
    };
    generate_mask(call.out[0], 1 - probability(call.in[1]), number("seed") ^ number("seed2"), number("call") << 32);
}

void generate_bytes(LegacyArguments &call) {
    at::Tensor &out = call.out[0];
    const auto threshold = static_cast<uint64_t>(probability(call.in[1]) * 0x1p32);
    const auto seed = attribute<int64_t>(call.attributes, "seed", 0) ^ attribute<int64_t>(call.attributes, "seed2", 0);
    const Philox philox(static_cast<uint64_t>(seed),
                        static_cast<uint64_t>(attribute<int64_t>(call.attributes, "call", 0)));
    uint8_t *bytes = out.mutable_data_ptr<uint8_t>();
    const int64_t count = out.numel();
    at::parallel_for(0, (count + 3) / 4, 1024, [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
            const Philox::Block numbers = philox(static_cast<uint64_t>(block));
            for (int64_t i = 4 * block; i < std::min(4 * block + 4, count); ++i)
                bytes[i] = numbers[static_cast<size_t>(i - 4 * block)] < threshold;
        }
    });
}

// Seed and offset are tensors of one number; the offset has its high word first.
uint64_t word(const at::Tensor &tensor) {
    const std::vector<int64_t> words = ints(tensor);
    return words.empty() ? 0 : static_cast<uint64_t>(words.back());
}

void check_mask(const at::Tensor &mask, const at::Tensor &x, bool bits) {
    allowed(mask, at::kByte, "the mask");
    const int64_t expected = bits ? mask_bytes(x.numel()) : x.numel();
    if (mask.numel() < expected)
        fail(FaultKind::InvalidArgument, "the mask is {}, expected {} bytes for {}", describe(mask), expected,
             describe(x));
}

at::Tensor kept(const at::Tensor &mask, const at::Tensor &x) {
    return mask.flatten().narrow(0, 0, x.numel()).ne(0).view(x.sizes());
}

at::Tensor dropped(const at::Tensor &x, const at::Tensor &mask, double keep) {
    return keep == 0 ? at::zeros_like(x) : (x * (1 / keep)).masked_fill_(kept(mask, x).logical_not_(), 0);
}

struct Softmax {
    double alpha, keep;
    int64_t axis;
};

Softmax softmax(const aclopAttr &attributes, const char *axes) {
    const auto axis = attribute<std::vector<int64_t>>(attributes, axes, {-1});
    const Softmax made{attribute<float>(attributes, "alpha", 1), attribute<float>(attributes, "input_keep_prob", 1),
                       axis.size() == 1 ? axis[0] : -1};
    if (axis.size() != 1) fail(FaultKind::InvalidArgument, "attribute {} has {} values, expected 1", axes, axis.size());
    if (!(made.keep >= 0 && made.keep <= 1))
        fail(FaultKind::InvalidArgument, "attribute input_keep_prob is {}, allowed is 0 to 1", made.keep);
    return made;
}

constexpr DTypes kHalves{at::kHalf, at::kFloat};

}  // namespace
}  // namespace vnpu::opapi

LEGACY(DropOutGenMaskV3, allowed(out[0], at::kByte, "the mask"); number_call(arguments), generate_bytes(arguments))
LEGACY(DropOutGenMask, allowed(out[0], at::kByte, "the mask"); number_call_of_bits(arguments), generate_bits(arguments))
// in: shape, prob, seed, seed1, offset.
LEGACY(StatelessDropOutGenMask, holds(out[0], mask_bytes(elements(in[0])), "the mask");
       probability(in[1]), generate_mask(out[0], 1 - probability(in[1]), word(in[2]), in.size() > 4 ? word(in[4]) : 0))
LEGACY(DropOutDoMask, allowed(in[0], kNative, "x"); alike(out[0], in[0], "the output"); check_mask(in[1], in[0], true);
       probability(in[2]), apply_mask(out[0], in[0], in[1], 1 - probability(in[2])))
LEGACY(DropOutDoMaskV3, allowed(in[0], kNative, "x"); alike(out[0], in[0], "the output");
       check_mask(in[1], in[0], false);
       probability(in[2]), out[0].copy_(dropped(widened(in[0]), in[1], probability(in[2]))))
// softmax(x1 + alpha * x2), and the same with elements left out.
LEGACY(AxpyWithSoftmaxAndDropOutDoMask, allowed(in[0], kHalves, "x1"); alike(in[1], in[0], "x2");
       check_mask(in[2], in[0], false); alike(out[0], in[0], "the first output");
       alike(out[1], in[0], "the second output");
       softmax(attributes, "axis"), const Softmax made = softmax(attributes, "axis");
       const at::Tensor y = at::softmax(at::add(widened(in[0]), widened(in[1]), made.alpha), made.axis);
       out[0].copy_(y); out[1].copy_(dropped(y, in[2], made.keep)))
// Of alpha * x2 in the operator above.
LEGACY(DropoutWithMulsAndSoftmaxGrad, allowed(in[0], kHalves, "the gradient"); alike(in[2], in[0], "the softmax");
       check_mask(in[1], in[0], false); alike(out[0], in[0], "the output");
       softmax(attributes, "axes"), const Softmax made = softmax(attributes, "axes");
       out[0].copy_(at::_softmax_backward_data(dropped(widened(in[0]), in[1], made.keep), widened(in[2]), made.axis,
                                               at::kFloat)
                        .mul_(made.alpha)))
