// Tensors that are made of a length: windows, in double and rounded once, and places of triangles. MindSpore has
// kernels of its own for them.
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kPlain{at::kHalf, at::kFloat, at::kDouble}, kWhole{at::kInt, at::kLong};

// A window's length lies in host memory.
void check_window(LegacyArguments &call, DTypes lengths) {
    allowed(call.in[0], lengths, "the length");
    holds(call.in[0], 1, "the length");
    const int64_t length = ints(call.in[0]).front();
    if (length < 0) fail(FaultKind::InvalidArgument, "the length is {}, expected 0 or more", length);
    allowed(call.out[0], kPlain, "the output");
    sizes(call.out[0], {length}, "the output");
}

bool periodic(const aclopAttr &attributes) { return attribute<bool>(attributes, "periodic", true); }

at::Tensor hamming(int64_t length, const aclopAttr &attributes) {
    return at::hamming_window(length, periodic(attributes), attribute<float>(attributes, "alpha", 0.54F),
                              attribute<float>(attributes, "beta", 0.46F), at::kDouble);
}

int64_t number(const aclopAttr &attributes, const char *name) { return attribute<int64_t>(attributes, name, 0); }

at::Tensor triangle(const aclopAttr &attributes, bool lower) {
    const int64_t rows = number(attributes, "row"), columns = number(attributes, "col");
    if (rows < 0 || columns < 0)
        fail(FaultKind::InvalidArgument, "attributes row and col are {} and {}", rows, columns);
    return lower ? at::tril_indices(rows, columns, number(attributes, "offset"))
                 : at::triu_indices(rows, columns, number(attributes, "offset"));
}

void check_triangle(LegacyArguments &call, bool lower) {
    allowed(call.out[0], kWhole, "the output");
    sizes(call.out[0], triangle(call.attributes, lower).sizes(), "the output");
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(CustBartlettWindow, check_window(arguments, kWhole),
       out[0].copy_(at::bartlett_window(out[0].numel(), periodic(attributes), at::kDouble)))
LEGACY(CustBlackmanWindow, check_window(arguments, kWhole),
       out[0].copy_(at::blackman_window(out[0].numel(), periodic(attributes), at::kDouble)))
LEGACY(CustHammingWindow, check_window(arguments, kInts), out[0].copy_(hamming(out[0].numel(), attributes)))
LEGACY(CustTrilIndices, check_triangle(arguments, true), out[0].copy_(triangle(attributes, true)))
LEGACY(CustTriuIndices, check_triangle(arguments, false), out[0].copy_(triangle(attributes, false)))
