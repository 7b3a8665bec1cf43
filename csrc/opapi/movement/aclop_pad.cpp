// Padding of the old API, as MindSpore's layers ask for it, and its gradients: what each element has been copied to is
// added up. In fp32 and rounded once where it adds.
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

enum class Edge { Constant, Reflect, Symmetric, Nearest, Around };

Edge edge(const aclopAttr &attributes, const char *otherwise) {
    const auto mode = attribute<std::string>(attributes, "mode", otherwise);
    if (mode == "constant") return Edge::Constant;
    if (mode == "reflect" || mode == "REFLECT") return Edge::Reflect;
    if (mode == "symmetric" || mode == "SYMMETRIC") return Edge::Symmetric;
    if (mode == "edge") return Edge::Nearest;
    if (mode == "circular") return Edge::Around;
    fail(FaultKind::InvalidArgument, "attribute mode is \"{}\"; it is constant, reflect, symmetric, edge or circular",
         mode);
}

// Before and after each dimension of `x`: in pairs or, where paddings_contiguous is false, first all that go before.
std::vector<std::pair<int64_t, int64_t>> margins(const at::Tensor &x, const at::Tensor &paddings,
                                                 const aclopAttr &attributes) {
    const std::vector<int64_t> given = ints(paddings);
    const auto rank = static_cast<size_t>(x.dim());
    if (given.size() != 2 * rank)
        fail(FaultKind::InvalidArgument, "there are {} paddings for {}", given.size(), describe(x));
    const bool pairs = attribute<bool>(attributes, "paddings_contiguous", true);
    std::vector<std::pair<int64_t, int64_t>> found;
    for (size_t i = 0; i < rank; ++i) found.emplace_back(given[pairs ? 2 * i : i], given[pairs ? 2 * i + 1 : rank + i]);
    return found;
}

// `small` padded is `large`.
void check_padding(LegacyArguments &call, const at::Tensor &small, const at::Tensor &large, const char *mode) {
    const Edge how = edge(call.attributes, mode);
    const auto around = margins(small, call.in[1], call.attributes);
    std::vector<int64_t> expected;
    for (size_t i = 0; i < around.size(); ++i) {
        const int64_t side = small.size(static_cast<int64_t>(i));
        const auto [before, after] = around[i];
        const int64_t most = how == Edge::Reflect ? side - 1 : side;
        if (how != Edge::Constant && how != Edge::Nearest && std::max(before, after) > most)
            fail(FaultKind::InvalidArgument, "{} and {} are more than a side of {} has", before, after, side);
        if (how != Edge::Constant && std::min(before, after) < 0)
            fail(FaultKind::InvalidArgument, "a padding is negative: {} and {}", before, after);
        expected.push_back(side + before + after);
    }
    sizes(large, expected, "the padded tensor");
}

// Which element of a side each of the padded side is a copy of.
at::Tensor origins(int64_t side, int64_t before, int64_t after, Edge how) {
    const at::Tensor place = at::arange(-before, side + after, at::kLong);
    const int64_t last = side - 1;
    if (how == Edge::Nearest) return place.clamp(0, last);
    if (how == Edge::Around) return place.remainder(side);
    const int64_t fold = how == Edge::Symmetric ? 1 : 0;
    const at::Tensor low = at::where(place < 0, -place - fold, place);
    return at::where(low > last, 2 * last - low + fold, low);
}

void pad(LegacyArguments &call, const char *mode) {
    const Edge how = edge(call.attributes, mode);
    const auto around = margins(call.in[0], call.in[1], call.attributes);
    if (how == Edge::Constant) {
        std::vector<int64_t> sides;
        for (size_t i = around.size(); i-- > 0;) sides.insert(sides.end(), {around[i].first, around[i].second});
        const bool given = call.in.size() > 2 && call.in[2].defined();
        call.out[0].copy_(at::constant_pad_nd(call.in[0], sides, given ? call.in[2].reshape({}).item() : 0));
        return;
    }
    at::Tensor x = call.in[0];
    for (size_t i = 0; i < around.size(); ++i) {
        const auto axis = static_cast<int64_t>(i);
        if (around[i].first != 0 || around[i].second != 0)
            x = x.index_select(axis, origins(x.size(axis), around[i].first, around[i].second, how));
    }
    call.out[0].copy_(x);
}

void pad_gradient(LegacyArguments &call, const char *mode) {
    const Edge how = edge(call.attributes, mode);
    const auto around = margins(call.out[0], call.in[1], call.attributes);
    at::Tensor slope = widened(call.in[0]);
    for (size_t i = 0; i < around.size(); ++i) {
        const auto axis = static_cast<int64_t>(i);
        const int64_t side = call.out[0].size(axis);
        if (around[i].first == 0 && around[i].second == 0) continue;
        if (how == Edge::Constant) {
            slope = slope.narrow(axis, around[i].first, side);
            continue;
        }
        std::vector<int64_t> form(slope.sizes().begin(), slope.sizes().end());
        form[i] = side;
        slope = at::zeros(form, slope.options())
                    .index_add(axis, origins(side, around[i].first, around[i].second, how), slope);
    }
    call.out[0].copy_(slope);
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(PadV3, check_padding(arguments, in[0], out[0], "constant"), pad(arguments, "constant"))
LEGACY(PadV3Grad, allowed(in[0], kNative, "the gradient");
       check_padding(arguments, out[0], in[0], "reflect"), pad_gradient(arguments, "reflect"))
LEGACY(MirrorPad, check_padding(arguments, in[0], out[0], "REFLECT"), pad(arguments, "REFLECT"))
LEGACY(MirrorPadGrad, allowed(in[0], kNative, "the gradient");
       check_padding(arguments, out[0], in[0], "REFLECT"), pad_gradient(arguments, "REFLECT"))
