// Operators of the old API on diagonals, which MindSpore calls by their type. Prefixed with Cust: kernels that
// MindSpore brings for the chip's CPU.
#include <fmt/ranges.h>

#include <functional>

#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

// The diagonals `low` to `high` of matrices, as TensorFlow packs them: [..., diagonals, longest], from the highest on;
// a shorter one lies left or right in its row, as `align` says for those above and for those below the main one.
struct Band {
    int64_t low, high;
    bool above_left, below_left;

    int64_t longest(int64_t rows, int64_t columns) const {
        return std::min(rows + std::min<int64_t>(high, 0), columns - std::max<int64_t>(low, 0));
    }
    int64_t packed(const at::Tensor &matrix) const {
        const int64_t rows = matrix.size(-2), columns = matrix.size(-1), each = rows * columns;
        return each == 0 ? 0 : matrix.numel() / each * (high - low + 1) * longest(rows, columns);
    }
    // Calls what(diagonal of the matrix, its place in `packed`) for each.
    void each(const at::Tensor &matrix, const at::Tensor &packed,
              const std::function<void(at::Tensor, at::Tensor)> &what) const {
        const int64_t most = longest(matrix.size(-2), matrix.size(-1));
        std::vector<int64_t> shape = matrix.sizes().slice(0, static_cast<size_t>(matrix.dim() - 2)).vec();
        shape.insert(shape.end(), {high - low + 1, most});
        const at::Tensor rows = packed.view(shape);
        for (int64_t k = high; k >= low; --k) {
            const at::Tensor diagonal = matrix.diagonal(k, -2, -1);
            const int64_t length = diagonal.size(-1);
            const bool left = k > 0 ? above_left : below_left;
            what(diagonal, rows.select(-2, high - k).narrow(-1, left ? 0 : most - length, length));
        }
    }
};

Band band(LegacyArguments &call, const at::Tensor &matrix, size_t place) {
    const std::vector<int64_t> k = ints(call.in[place]);
    const auto align = attribute<std::string>(call.attributes, "align", "RIGHT_LEFT");
    const size_t middle = align.find('_');
    const std::string above = align.substr(0, middle), below = middle == align.npos ? "" : align.substr(middle + 1);
    for (const std::string &side : {above, below})
        if (side != "LEFT" && side != "RIGHT")
            fail(FaultKind::InvalidArgument,
                 "attribute align is \"{}\", allowed are LEFT_RIGHT, RIGHT_LEFT, LEFT_LEFT and RIGHT_RIGHT", align);
    if (k.empty() || k.size() > 2 || k.front() > k.back() || matrix.dim() < 2 || k.front() <= -matrix.size(-2) ||
        k.back() >= matrix.size(-1))
        fail(FaultKind::InvalidArgument, "k is {} for {}", fmt::join(k, ", "), describe(matrix));
    return {k.front(), k.back(), above == "LEFT", below == "LEFT"};
}

// diagonals, k, rows, columns, the value elsewhere: the output's descriptor has the sizes.
void check_made(LegacyArguments &call) {
    allowed(call.in[0], kAll, "the diagonal");
    holds(call.in[4], 1, "the padding");
    holds(call.in[0], band(call, call.out[0], 1).packed(call.out[0]), "the diagonal");
}

void made(LegacyArguments &call) {
    call.out[0].copy_(call.in[4].reshape({}).expand(call.out[0].sizes()));
    band(call, call.out[0], 1).each(call.out[0], call.in[0].contiguous(), [](at::Tensor diagonal, at::Tensor row) {
        diagonal.copy_(row);
    });
}

void check_set(LegacyArguments &call) {
    alike(call.out[0], call.in[0], "the output");
    holds(call.in[1], band(call, call.in[0], 2).packed(call.in[0]), "the diagonal");
}

void set(LegacyArguments &call) {
    call.out[0].copy_(call.in[0]);
    band(call, call.out[0], 2).each(call.out[0], call.in[1].contiguous(), [](at::Tensor diagonal, at::Tensor row) {
        diagonal.copy_(row);
    });
}

// x, k, the value that fills rows.
void check_part(LegacyArguments &call) {
    allowed(call.in[0], kAll, "x");
    holds(call.in[2], 1, "the padding");
    holds(call.out[0], band(call, call.in[0], 1).packed(call.in[0]), "the output");
}

void part(LegacyArguments &call) {
    at::Tensor packed = call.in[2].reshape({}).expand(call.out[0].sizes()).contiguous();
    band(call, call.in[0], 1).each(call.in[0], packed, [](at::Tensor diagonal, at::Tensor row) {
        row.copy_(diagonal);
    });
    call.out[0].copy_(packed);
}

// Of [a, b, ..., a, b, ...] the elements whose halves of indices are the same: [a, b, ...].
at::Tensor halves(const at::Tensor &x) {
    const auto half = static_cast<size_t>(x.dim() / 2);
    if (x.dim() == 0 || x.dim() % 2 != 0 || x.sizes().slice(0, half) != x.sizes().slice(half))
        fail(FaultKind::InvalidArgument, "x is {}, expected the same sizes twice", describe(x));
    const int64_t count = c10::multiply_integers(x.sizes().slice(0, half));
    return x.reshape({count, count}).diagonal();
}

at::Tensor any(const at::Tensor &x, const aclopAttr &attributes) {
    const auto whole = [&](const char *name, int64_t otherwise) {
        return attribute<int64_t>(attributes, name, otherwise);
    };
    const int64_t first = whole("dim1", 0), second = whole("dim2", 1), rank = x.dim();
    if (first < -rank || first >= rank || second < -rank || second >= rank || (first - second) % rank == 0)
        fail(FaultKind::InvalidArgument, "attributes dim1 and dim2 are {} and {} for {}", first, second, describe(x));
    return x.diagonal(whole("offset", 0), first, second);
}

// [a, b] becomes [a, b, a, b], with the values where both halves of the index are the same.
at::Tensor on_diagonal(const at::Tensor &x, const at::Tensor &out) {
    return at::diag(x.flatten()).reshape(out.sizes());
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(MatrixDiagV3, check_made(arguments), made(arguments))
LEGACY(MatrixSetDiagV3, check_set(arguments), set(arguments))
LEGACY(MatrixDiagPartV3, check_part(arguments), part(arguments))
// x times a matrix of ones on its diagonal, which the caller brings.
LEGACY(MatrixDiagD, alike(out[0], in[1], "the output");
       holds(in[1], in[0].numel() * (in[0].dim() == 0 ? 1 : in[0].size(-1)), "the matrix"),
       out[0].copy_(in[0].unsqueeze(-2) * in[1]))
LEGACY(DiagPart, holds(out[0], halves(in[0]).numel(), "the output"), put(out[0], halves(in[0])))
LEGACY(CustDiagonal, holds(out[0], any(in[0], attributes).numel(), "the output"), put(out[0], any(in[0], attributes)))
LEGACY(Diag, allowed(in[0], kAll, "x");
       holds(out[0], in[0].numel() * in[0].numel(), "the output"), out[0].copy_(on_diagonal(in[0], out[0])))
LEGACY(Triu, check_like_first(arguments, 1),
       out[0].copy_(at::triu(in[0], attribute<int64_t>(attributes, "diagonal", 0))))
LEGACY(Tril, check_like_first(arguments, 1),
       out[0].copy_(at::tril(in[0], attribute<int64_t>(attributes, "diagonal", 0))))
