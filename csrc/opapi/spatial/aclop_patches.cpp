// Patches of images as columns and back, NCHW, and patches in the channels. For each place of the kernel there is a
// view of the padded image; columns are copies of them, and an image is their sum, in fp32 and rounded once.
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

using List = std::vector<int64_t>;

struct Patches {
    int64_t kernel[2], stride[2], dilation[2], before[2], after[2], steps[2];
};

// One number, or one for the height and one for the width.
void pair(const aclopAttr &attributes, const char *name, int64_t least, int64_t (&to)[2]) {
    const List given = attribute<List>(attributes, name, {1});
    if (given.empty() || given.size() > 2)
        fail(FaultKind::InvalidArgument, "attribute {} has {} values, expected 1 or 2", name, given.size());
    to[0] = given.front();
    to[1] = given.back();
    for (const int64_t each : to)
        if (each < least)
            fail(FaultKind::InvalidArgument, "attribute {} has the value {}, expected {} or more", name, each, least);
}

// Those of NHWC have the sizes of the kernel in the middle.
void inner(const aclopAttr &attributes, const char *name, int64_t (&to)[2]) {
    const List given = attribute<List>(attributes, name, {});
    if (given.size() != 4 || given[0] != 1 || given[1] != 1)
        fail(FaultKind::InvalidArgument, "attribute {} is not 1, 1 and a number for height and width", name);
    to[0] = given[2];
    to[1] = given[3];
    if (to[0] < 1 || to[1] < 1) fail(FaultKind::InvalidArgument, "attribute {} has a value below 1", name);
}

void pad(Patches &made, int64_t height, int64_t width, const std::string &padding) {
    const int64_t side[2] = {height, width};
    for (size_t i : {0, 1}) {
        const int64_t reach = (made.kernel[i] - 1) * made.dilation[i] + 1;
        if (padding == "SAME") {
            made.steps[i] = (side[i] + made.stride[i] - 1) / made.stride[i];
            const int64_t missing = std::max<int64_t>(0, (made.steps[i] - 1) * made.stride[i] + reach - side[i]);
            made.before[i] = missing / 2;
            made.after[i] = missing - missing / 2;
            continue;
        }
        if (padding == "VALID") made.before[i] = made.after[i] = 0;
        const int64_t whole = side[i] + made.before[i] + made.after[i];
        if (whole < reach)
            fail(FaultKind::InvalidArgument, "a kernel that reaches over {} pixels does not fit into {}", reach, whole);
        made.steps[i] = (whole - reach) / made.stride[i] + 1;
    }
}

Patches columns_of(const at::Tensor &x, const aclopAttr &attributes) {
    sizes(x, {-1, -1, -1, -1}, "x");
    Patches made{};
    pair(attributes, "ksizes", 1, made.kernel);
    pair(attributes, "strides", 1, made.stride);
    pair(attributes, "dilations", 1, made.dilation);
    List pads = attribute<List>(attributes, "pads", {0});
    if (pads.size() == 1) pads = List(4, pads[0]);
    if (pads.size() == 2) pads = {pads[0], pads[0], pads[1], pads[1]};
    if (pads.size() != 4 || *std::min_element(pads.begin(), pads.end()) < 0)
        fail(FaultKind::InvalidArgument, "attribute pads has {} values or one below 0", pads.size());
    for (size_t i : {0, 1}) {
        made.before[i] = pads[2 * i];
        made.after[i] = pads[2 * i + 1];
    }
    const auto mode = attribute<std::string>(attributes, "padding_mode", "CALCULATED");
    if (mode != "CALCULATED" && mode != "SAME" && mode != "VALID")
        fail(FaultKind::InvalidArgument, "attribute padding_mode is \"{}\"", mode);
    pad(made, x.size(2), x.size(3), mode);
    return made;
}

Patches image_from(const at::Tensor &size, const aclopAttr &attributes) {
    const List side = ints(size);
    if (side.size() != 2 || side[0] < 1 || side[1] < 1)
        fail(FaultKind::InvalidArgument, "output_size has {} values, expected 2 positive ones", side.size());
    Patches made{};
    pair(attributes, "kernel_size", 1, made.kernel);
    pair(attributes, "stride", 1, made.stride);
    pair(attributes, "dilation", 1, made.dilation);
    pair(attributes, "padding", 0, made.before);
    std::copy(std::begin(made.before), std::end(made.before), std::begin(made.after));
    pad(made, side[0], side[1], "CALCULATED");
    return made;
}

Patches channels_of(const at::Tensor &x, const aclopAttr &attributes) {
    sizes(x, {-1, -1, -1, -1}, "x");
    Patches made{};
    inner(attributes, "ksizes", made.kernel);
    inner(attributes, "strides", made.stride);
    inner(attributes, "rates", made.dilation);
    const auto padding = attribute<std::string>(attributes, "padding", "");
    if (padding != "SAME" && padding != "VALID")
        fail(FaultKind::InvalidArgument, "attribute padding is \"{}\", allowed are SAME and VALID", padding);
    pad(made, x.size(2), x.size(3), padding);
    return made;
}

int64_t places(const Patches &of) { return of.kernel[0] * of.kernel[1]; }
int64_t steps(const Patches &of) { return of.steps[0] * of.steps[1]; }

at::Tensor padded(const at::Tensor &x, const Patches &by) {
    return at::constant_pad_nd(x, {by.before[1], by.after[1], by.before[0], by.after[0]});
}

// What one place of the kernel sees of the padded image, [N, C, rows, columns].
at::Tensor seen(const at::Tensor &whole, const Patches &by, int64_t place) {
    at::Tensor part = whole;
    const int64_t at[2] = {place / by.kernel[1], place % by.kernel[1]};
    for (size_t i : {0, 1}) {
        const int64_t first = at[i] * by.dilation[i];
        part =
            part.slice(static_cast<int64_t>(i) + 2, first, first + (by.steps[i] - 1) * by.stride[i] + 1, by.stride[i]);
    }
    return part;
}

// [N, C, places, rows, columns].
at::Tensor cut(const at::Tensor &x, const Patches &by) {
    const at::Tensor whole = padded(x, by);
    std::vector<at::Tensor> parts;
    for (int64_t i = 0; i < places(by); ++i) parts.push_back(seen(whole, by, i));
    return at::stack(parts, 2);
}

void join(LegacyArguments &call) {
    const Patches by = image_from(call.in[1], call.attributes);
    at::Tensor &out = call.out[0];
    const at::Tensor columns =
        widened(call.in[0]).reshape({out.size(0), out.size(1), places(by), by.steps[0], by.steps[1]});
    at::Tensor whole = padded(at::zeros(out.sizes(), columns.options()), by);
    for (int64_t i = 0; i < places(by); ++i) seen(whole, by, i).add_(columns.select(2, i));
    out.copy_(whole.narrow(2, by.before[0], out.size(2)).narrow(3, by.before[1], out.size(3)));
}

void check_join(LegacyArguments &call) {
    const Patches by = image_from(call.in[1], call.attributes);
    const List side = ints(call.in[1]);
    allowed(call.in[0], kNative, "x");
    sizes(call.in[0], {-1, -1, places(by), steps(by)}, "x");
    allowed(call.out[0], call.in[0].scalar_type(), "the output");
    sizes(call.out[0], {call.in[0].size(0), call.in[0].size(1), side[0], side[1]}, "the output");
}

void check_cut(LegacyArguments &call) {
    const Patches by = columns_of(call.in[0], call.attributes);
    allowed(call.out[0], call.in[0].scalar_type(), "the output");
    sizes(call.out[0], {call.in[0].size(0), call.in[0].size(1), places(by), steps(by)}, "the output");
}

void check_channels(LegacyArguments &call) {
    const Patches by = channels_of(call.in[0], call.attributes);
    allowed(call.out[0], call.in[0].scalar_type(), "the output");
    sizes(call.out[0], {call.in[0].size(0), call.in[0].size(1) * places(by), by.steps[0], by.steps[1]}, "the output");
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(CustIm2col, check_cut(arguments), put(out[0], cut(in[0], columns_of(in[0], attributes))))
LEGACY(Col2im, check_join(arguments), join(arguments))
// The places of the kernel come before the channels, as in TensorFlow, with which CANN's prototype is compatible.
LEGACY(ExtractImagePatches, check_channels(arguments),
       put(out[0], cut(in[0], channels_of(in[0], attributes)).transpose(1, 2)))
