// Histograms of the old API, and how far rows are from a largest norm.
#include <cmath>
#include <limits>

#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kCounted{at::kHalf, at::kFloat, at::kInt, at::kLong, at::kShort, at::kChar, at::kByte};

struct Bins {
    int64_t count;
    double low, high;
};

// Both ends 0 stand for those of the elements (PyTorch's histc, with which the operator is compatible).
Bins bins(const aclopAttr &attributes) {
    const Bins made{attribute<int64_t>(attributes, "bins", 100), attribute<float>(attributes, "min", 0),
                    attribute<float>(attributes, "max", 0)};
    if (made.count < 1) fail(FaultKind::InvalidArgument, "attribute bins is {}, expected 1 or more", made.count);
    if (!(made.low <= made.high) || std::isinf(made.low) || std::isinf(made.high))
        fail(FaultKind::InvalidArgument, "attributes min and max are {} and {}", made.low, made.high);
    return made;
}

at::Tensor counted(const at::Tensor &x, const Bins &into) {
    const at::Tensor real = at::isFloatingType(x.scalar_type()) ? widened(x) : x.to(at::kDouble);
    return at::histc(real, into.count, into.low, into.high);
}

// x, both ends of the range, how many bins.
void check_fixed(LegacyArguments &call) {
    allowed(call.in[0], {at::kHalf, at::kFloat, at::kInt, at::kLong}, "x");
    allowed(call.in[1], call.in[0].scalar_type(), "range");
    holds(call.in[1], 2, "range");
    holds(call.in[2], 1, "nbins");
    const int64_t count = ints(call.in[2]).front();
    if (count < 1) fail(FaultKind::InvalidArgument, "nbins is {}, expected 1 or more", count);
    allowed(call.out[0], at::kInt, "the output");
    sizes(call.out[0], {count}, "the output");
}

// What lies outside is in the first bin or the last one.
void fixed(LegacyArguments &call) {
    const int64_t count = call.out[0].numel();
    const bool real = at::isFloatingType(call.in[0].scalar_type());
    const at::Tensor x = real ? widened(call.in[0]) : call.in[0].to(at::kDouble);
    const at::Tensor ends = call.in[1].to(x.scalar_type()).flatten();
    if (!(ends[0] < ends[1]).item<bool>())
        fail(FaultKind::InvalidArgument, "the range begins at {} and ends at {}", ends[0].item<double>(),
             ends[1].item<double>());
    const at::Tensor step = (ends[1] - ends[0]) / static_cast<double>(count);
    const at::Tensor bin = ((x.flatten() - ends[0]) / step).floor().clamp(0, static_cast<double>(count - 1));
    call.out[0].copy_(at::bincount(bin.to(at::kLong), {}, count));
}

struct Norm {
    double p, most;
    int64_t dim;
};

// A factor for each part of x along `dim`.
Norm norm(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    const Norm made{attribute<float>(call.attributes, "p", 0), attribute<float>(call.attributes, "maxnorm", 0),
                    attribute<int64_t>(call.attributes, "dim", 0)};
    allowed(x, kNative, "x");
    if (x.dim() < 2 || made.dim < -x.dim() || made.dim >= x.dim())
        fail(FaultKind::InvalidArgument, "attribute dim is {} for {}, expected 2 dimensions or more", made.dim,
             describe(x));
    if (!(made.p >= 0) || !(made.most >= 0))
        fail(FaultKind::InvalidArgument, "attributes p and maxnorm are {} and {}, expected 0 or more", made.p,
             made.most);
    std::vector<int64_t> expected(static_cast<size_t>(x.dim()), 1);
    expected[static_cast<size_t>(made.dim < 0 ? made.dim + x.dim() : made.dim)] = x.size(made.dim);
    sizes(call.out[0], expected, "the output");
    return made;
}

// The caller multiplies with them. A norm has 1e-7 added before something is divided by it, as in PyTorch.
void factors(LegacyArguments &call) {
    const Norm by = norm(call);
    const at::Tensor rows = widened(call.in[0]).transpose(0, by.dim).flatten(1);
    const at::Tensor norms = at::linalg_vector_norm(rows.to(at::kDouble), by.p, {1});
    put(call.out[0], at::where(norms.gt(by.most), by.most / (norms + 1e-7), 1.0));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(Histogram, allowed(in[0], kCounted, "x");
       sizes(out[0], {bins(attributes).count}, "the output"), out[0].copy_(counted(in[0], bins(attributes))))
LEGACY(HistogramFixedWidth, check_fixed(arguments), fixed(arguments))
LEGACY(Renorm, norm(arguments), factors(arguments))
