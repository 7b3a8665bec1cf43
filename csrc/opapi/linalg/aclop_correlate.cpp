// Correlate, which MindSpore brings for the chip's CPU: sums of products of two sequences at each of their distances,
// as NumPy's correlate has them. In double and rounded once.
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

// Where the results of `mode` begin among all a + v - 1, and how many they are.
std::pair<int64_t, int64_t> wanted(int64_t a, int64_t v, const aclopAttr &attributes) {
    const auto mode = attribute<std::string>(attributes, "mode", "valid");
    const int64_t less = std::min(a, v), more = std::max(a, v), all = a + v - 1;
    if (mode == "full") return {0, all};
    if (mode == "valid") return {less - 1, more - less + 1};
    if (mode == "same") {  // one more before than behind where they are not even; the longer one stays in place
        const int64_t before = less - 1 - less / 2;
        return {a >= v ? before : all - before - more, more};
    }
    fail(FaultKind::InvalidArgument, "attribute mode is \"{}\", allowed are valid, same and full", mode);
}

void check_correlate(LegacyArguments &call) {
    for (const size_t i : {0, 1}) {
        allowed(call.in[i], kReals | kComplex, "a sequence");
        sizes(call.in[i], {-1}, "a sequence");
        if (call.in[i].numel() == 0) fail(FaultKind::InvalidArgument, "a sequence is empty");
    }
    sizes(call.out[0], {wanted(call.in[0].size(0), call.in[1].size(0), call.attributes).second}, "the output");
}

void correlate(LegacyArguments &call) {
    const auto wide = call.in[0].is_complex() || call.in[1].is_complex() ? at::kComplexDouble : at::kDouble;
    const at::Tensor a = call.in[0].to(wide), v = call.in[1].to(wide).conj();
    const int64_t more = v.size(0) - 1;
    const at::Tensor windows = at::constant_pad_nd(a, {more, more}).unfold(0, v.size(0), 1);
    const auto [first, count] = wanted(a.size(0), v.size(0), call.attributes);
    call.out[0].copy_(windows.narrow(0, first, count).matmul(v));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(CustCorrelate, check_correlate(arguments), correlate(arguments))
