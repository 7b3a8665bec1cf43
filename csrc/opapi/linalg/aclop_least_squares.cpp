// Least squares and their gradient (MindSpore's lstsqv2.cc and lstsqv2_grad.cc, behind mindspore.scipy.linalg.lstsq).
// In double and rounded once.
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kExact{at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble};

at::Tensor wide(const at::Tensor &x) { return x.to(x.is_complex() ? at::kComplexDouble : at::kDouble); }

// One vector per matrix is a column.
at::Tensor columns(const at::Tensor &b, const at::Tensor &a) {
    return wide(b.dim() == a.dim() - 1 ? b.unsqueeze(-1) : b);
}

// Below this share of the largest one a singular value is none, by the precision of what is given.
double least(const at::Tensor &a) {
    const bool single = c10::toRealValueType(a.scalar_type()) == at::kFloat;
    const double step = single ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
    return step * static_cast<double>(std::max(a.size(-2), a.size(-1)));
}

at::Tensor pseudo_inverse(const at::Tensor &a) { return at::linalg_pinv(wide(a), std::nullopt, least(a), false); }

// The kernel asks for it: it may lie in the device's memory. gels, gelsy, gelsd and gelss of LAPACK, in this order;
// None stands for gelsy.
int64_t driver(LegacyArguments &call) {
    const at::Tensor &given = call.in[2];
    if (!given.defined()) return 1;
    holds(given, 1, "driver");
    const int64_t which = ints(given).front();
    if (which < 0 || which > 3) fail(FaultKind::InvalidArgument, "driver is {}, allowed are 0 to 3", which);
    return which;
}

void check_operands(const at::Tensor &a, const at::Tensor &b) {
    allowed(a, kExact, "a");
    allowed(b, a.scalar_type(), "b");
    if (a.dim() < 2 || b.dim() < 1 || (b.dim() != a.dim() && b.dim() != a.dim() - 1) ||
        b.size(b.dim() == a.dim() ? -2 : -1) != a.size(-2))
        fail(FaultKind::InvalidArgument, "a is {}, b {}", describe(a), describe(b));
}

void check_squares(LegacyArguments &call) {
    check_operands(call.in[0], call.in[1]);
    allowed(call.out[0], call.in[0].scalar_type(), "the solution");
    allowed(call.out[2], at::kLong, "the ranks");
}

void squares(LegacyArguments &call) {
    const at::Tensor &a = call.in[0];
    const at::Tensor b = columns(call.in[1], a), x = at::matmul(pseudo_inverse(a), b);
    const int64_t way = driver(call);
    put(call.out[0], x);
    if (way != 1 && a.size(-2) > a.size(-1)) put(call.out[1], at::abs(b - at::matmul(wide(a), x)).square().sum(-2));
    if (call.out[2].numel() > 0) put(call.out[2], at::linalg_matrix_rank(wide(a), std::nullopt, least(a), false));
    if (way > 1) put(call.out[3], at::linalg_svdvals(wide(a)));
}

void check_squares_grad(LegacyArguments &call) {
    check_operands(call.in[1], call.in[2]);
    allowed(call.in[0], call.in[1].scalar_type(), "the gradient");
    for (const size_t i : {0, 1}) alike(call.out[i], call.in[i + 1], "an output");
}

// The solution's gradient, a, b. That of a is the pseudo-inverse's (Golub and Pereyra 1973).
void squares_grad(LegacyArguments &call) {
    const at::Tensor a = wide(call.in[1]), p = pseudo_inverse(call.in[1]), b = columns(call.in[2], call.in[1]);
    const at::Tensor given = columns(call.in[0], call.in[1]);
    const at::Tensor slope = at::matmul(given, b.mH()).mH();  // of p, and as a is shaped
    const at::Tensor through = at::matmul(p, slope), back = at::matmul(slope, p);
    const at::Tensor own = -at::matmul(at::matmul(p, slope), p).mH();
    const at::Tensor rows = at::matmul(slope - at::matmul(a, through), at::matmul(p, p.mH()));
    const at::Tensor sides = at::matmul(at::matmul(p.mH(), p), slope - at::matmul(back, a));
    put(call.out[0], at::sum_to(own + rows + sides, call.out[0].sizes()));
    const at::Tensor right = at::matmul(p.mH(), given);
    put(call.out[1], at::sum_to(right, b.sizes()));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(CustLstsqV2, check_squares(arguments), squares(arguments))
LEGACY(CustLstsqV2Grad, check_squares_grad(arguments), squares_grad(arguments))
