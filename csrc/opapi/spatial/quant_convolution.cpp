// A convolution of int8 volumes, scaled for each channel.
#include <fmt/ranges.h>

#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

// What this generation of chips has of it (ops-nn: aclnnQuantConvolution.md).
void check_quant(const Operand &input, const Operand &weight, const Operand &bias, const Operand &scale,
                 const Operand &offset, const Ints &stride, const Ints &padding, const Ints &dilation, bool transposed,
                 int64_t groups, int64_t offset_x, const std::string &mode, const Operand &output) {
    for (const Operand *each : {&input, &weight, &scale, &output}) require(*each);
    dtype(input, {at::kChar});
    dtype(weight, {at::kChar});
    dtype(scale, {at::kFloat});
    dtype(output, {at::kHalf, at::kBFloat16});
    if (bias.defined()) {
        dtype(bias, {at::kFloat, at::kHalf, at::kBFloat16});
        shape(bias, {weight.size(0)});
    }
    rank(input, {5});
    rank(weight, {5});
    if (offset.defined() || transposed || groups != 1 || offset_x != 0 || !mode.empty())
        fail(FaultKind::InvalidArgument,
             "CANN offers a null offset, no transposition, 1 group, offsetx 0 and a null roundMode: here they are {}, "
             "{}, {}, {} and \"{}\"",
             describe(offset), transposed, groups, offset_x, mode);
    std::vector<int64_t> expected{input.size(0), weight.size(0)};
    for (const auto &[list, name, least] :
         {std::tuple{&stride, "stride", 1}, {&padding, "padding", 0}, {&dilation, "dilation", 1}})
        if (list->size() != 3 || std::ranges::any_of(*list, [&](int64_t value) { return value < least; }))
            fail(FaultKind::InvalidArgument, "parameter {} is [{}], expected 3 values of at least {}", name,
                 fmt::join(*list, ", "), least);
    if (input.size(1) != weight.size(1))
        fail(FaultKind::InvalidArgument, "parameter weight is {}, expected {} channels", describe(weight),
             input.size(1));
    shape(scale, {weight.size(0)});
    for (size_t i = 0; i < 3; ++i) {
        const auto at = static_cast<int64_t>(i) + 2;
        const int64_t room = input.size(at) + 2 * padding[i] - dilation[i] * (weight.size(at) - 1) - 1;
        if (room < 0)
            fail(FaultKind::InvalidArgument,
                 "parameter input is {}: the window of weight does not fit into dimension {}", describe(input), at);
        expected.push_back(room / stride[i] + 1);
    }
    shape(output, expected);
}

// Sums of int8 products are exact in double.
void quant_convolution(const at::Tensor &input, const at::Tensor &weight, const at::Tensor &bias,
                       const at::Tensor &scale, const Ints &stride, const Ints &padding, const Ints &dilation,
                       at::Tensor &output) {
    const auto per_channel = [](const at::Tensor &list) { return widened(list).reshape({1, -1, 1, 1, 1}); };
    at::Tensor value = at::conv3d(input.to(at::kDouble), weight.to(at::kDouble), {}, at::IntArrayRef(stride),
                                  at::IntArrayRef(padding), at::IntArrayRef(dilation))
                           .to(at::kFloat) *
                       per_channel(scale);
    output.copy_(bias.defined() ? value + per_channel(bias) : value);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnQuantConvolution, optional(bias, offset);
   check_quant(input, weight, bias, scale, offset, stride, padding, dilation, transposed, groups, offsetx, roundMode,
               output),
   quant_convolution(input, weight, bias, scale, stride, padding, dilation, output))
