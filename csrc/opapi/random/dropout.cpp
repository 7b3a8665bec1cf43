// Dropout: a mask of one bit per element (bit i % 8 of byte i / 8; 1 keeps the element), padded to 128 bits, and its
// use.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"
#include "opapi/random/dropout.h"
#include "opapi/random/philox.h"

namespace vnpu::opapi {

int64_t mask_bytes(int64_t elements) { return (elements / 128 + (elements % 128 != 0)) * 16; }

namespace {

void check_mask(const Operand &mask, int64_t elements) {
    dtype(mask, {at::kByte});
    if (mask.numel() != mask_bytes(elements))
        fail(FaultKind::InvalidArgument,
             "parameter {} has {} bytes, expected {}: a bit for each of {} elements, in multiples of 128 bits",
             mask.parameter(), mask.numel(), mask_bytes(elements), elements);
}

void check_probability(double prob) {
    if (!(prob >= 0 && prob <= 1)) fail(FaultKind::InvalidArgument, "parameter prob is {}, allowed is 0 to 1", prob);
}

}  // namespace

// Eight numbers, two blocks, decide over the eight elements of a byte.
void generate_mask(at::Tensor &out, double drop, uint64_t seed, uint64_t offset) {
    at::Tensor mask = out.contiguous();
    const Philox philox(seed, offset);
    // Those below stay, as bernoulli_ has it: dropout in place draws the same elements. drop = 0: above every number.
    const auto threshold = static_cast<uint64_t>((1 - drop) * 0x1p32);
    uint8_t *bytes = mask.mutable_data_ptr<uint8_t>();
    at::parallel_for(0, mask.numel(), 1024, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            uint8_t byte = 0;
            for (int half = 0; half < 2; ++half) {
                const Philox::Block block = philox(static_cast<uint64_t>(2 * i + half));
                for (int bit = 0; bit < 4; ++bit)
                    byte |= static_cast<uint8_t>((block[static_cast<size_t>(bit)] < threshold) << (4 * half + bit));
            }
            bytes[i] = byte;
        }
    });
    if (!mask.is_same(out)) out.copy_(mask);
}

// self / (1 - drop) where the mask has a 1, else 0. 1 - drop is a number of self's dtype, as CANN's kernel takes it.
void apply_mask(at::Tensor &out, const at::Tensor &self, const at::Tensor &mask, double drop) {
    if (drop == 0) return void(out.copy_(self));
    if (drop == 1) return void(out.zero_());
    const at::Tensor in = self.contiguous(), bits = mask.contiguous();
    at::Tensor result =
        out.is_contiguous() && out.scalar_type() == self.scalar_type() ? at::Tensor(out) : at::empty_like(in);
    const uint8_t *keep = bits.const_data_ptr<uint8_t>();
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, in.scalar_type(), "dropout", [&] {
        const scalar_t *from = in.const_data_ptr<scalar_t>();
        scalar_t *to = result.mutable_data_ptr<scalar_t>();
        const float scale = 1.0F / static_cast<float>(static_cast<scalar_t>(static_cast<float>(1 - drop)));
        at::parallel_for(0, in.numel(), 16384, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i)
                to[i] = keep[i / 8] >> (i % 8) & 1 ? static_cast<scalar_t>(static_cast<float>(from[i]) * scale)
                                                   : static_cast<scalar_t>(0);
        });
    });
    if (!result.is_same(out)) out.copy_(result);
}

namespace {

int64_t elements(const Ints &shape) {
    int64_t count = 1;
    for (const int64_t size : shape)
        if (size < 0 || __builtin_mul_overflow(count, size, &count))
            fail(FaultKind::InvalidArgument, "parameter shape is {}, expected the sizes of a tensor", show(shape));
    return count;
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnDropoutGenMask, check_probability(prob);
   check_mask(out, elements(shape)),
   generate_mask(out, prob, static_cast<uint64_t>(seed), static_cast<uint64_t>(offset)))
OP(aclnnDropoutGenMaskV2, check_probability(prob);
   check_mask(out, elements(shape)),
   generate_mask(out, prob, static_cast<uint64_t>(seed), static_cast<uint64_t>(offset)))
OP(aclnnDropoutGenMaskV2Tensor, check_probability(prob); dtype(seedTensor, {at::kLong});
   dtype(offsetTensor, {at::kLong}); one_element(seedTensor); one_element(offsetTensor);
   check_mask(out, elements(shape)), generate_mask(out, prob, static_cast<uint64_t>(seedTensor.item().toLong()),
                                                   static_cast<uint64_t>(offsetTensor.item().toLong()) + offset))
// Mask and use in one operator.
OP(aclnnDropoutV3, optional(optionalNoiseShape); check_probability(p); network(input, out); same_shape(out, input);
   check_mask(maskOut, input.numel());
   if (optionalNoiseShape.defined())
       fail(vnpu::FaultKind::InvalidArgument, "parameter optionalNoiseShape is {}, CANN allows null only",
            describe(optionalNoiseShape)),
   generate_mask(maskOut, p, seed, offset);
   apply_mask(out, input, maskOut, p))
OP(aclnnDropoutV3Grad, network(gradY, gradX); same_shape(gradX, gradY);
   check_mask(mask, gradY.numel()), const at::Tensor bit = at::tensor({1, 2, 4, 8, 16, 32, 64, 128}, at::kByte);
   const at::Tensor kept =
       mask.flatten().unsqueeze(1).bitwise_and(bit).ne(0).flatten().slice(0, 0, gradY.numel()).view(gradY.sizes());
   gradX.copy_(widened(gradY) * kept * scale))
// The mask has a number for each element.
OP(aclnnMaskedScale, network(self, out); same_shape(mask, self); dtype(mask, kNative | at::kByte | at::kChar);
   same_shape(out, self), out.copy_(widened(self) * widened(mask) * scale))
OP(aclnnDropoutDoMask, check_probability(prob); network(self, out); same_shape(out, self);
   check_mask(mask, self.numel()), apply_mask(out, self, mask, prob))
