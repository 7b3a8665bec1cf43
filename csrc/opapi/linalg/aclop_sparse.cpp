// Sparse matrices of the old API: a product with a dense one, and compressed rows as coordinates, for which MindSpore
// has a kernel of its own (csr_sparse_matrix_to_sparse_tensor.cc).
#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kIndices{at::kInt, at::kLong};
constexpr DTypes kValues = DTypes{at::kHalf, at::kFloat, at::kDouble, at::kInt, at::kLong} | kComplex;

// in: coordinates [count, 2], values, the two sizes, the dense matrix.
void check_product(LegacyArguments &call) {
    allowed(call.in[0], kIndices, "x1_indices");
    sizes(call.in[0], {call.in[1].numel(), 2}, "x1_indices");
    allowed(call.in[1], kValues, "x1_values");
    sizes(call.in[1], {-1}, "x1_values");
    allowed(call.in[2], at::kLong, "x1_shape");
    holds(call.in[2], 2, "x1_shape");
    allowed(call.in[3], call.in[1].scalar_type(), "x2");
    sizes(call.in[3], {-1, -1}, "x2");
    allowed(call.out[0], call.in[1].scalar_type(), "the output");
    sizes(call.out[0], {-1, call.in[3].size(attribute<bool>(call.attributes, "adjoint_b", false) ? 0 : 1)},
          "the output");
}

void product(LegacyArguments &call) {
    const bool turned = attribute<bool>(call.attributes, "adjoint_a", false);
    const at::Tensor places = call.in[0].to(at::kLong);
    const at::Tensor values = widened(turned ? call.in[1].conj() : call.in[1]);
    const at::Tensor dense =
        widened(attribute<bool>(call.attributes, "adjoint_b", false) ? call.in[3].mH() : call.in[3]);
    const std::vector<int64_t> shape = ints(call.in[2]);
    const int64_t rows = shape[turned ? 1 : 0], columns = shape[turned ? 0 : 1];
    if (rows != call.out[0].size(0) || columns != dense.size(0))
        fail(FaultKind::InvalidArgument, "x1_shape is [{}, {}] for a product of {} and {}", shape[0], shape[1],
             describe(call.in[3]), describe(call.out[0]));
    if (places.lt(0).logical_or_(places.ge(call.in[2].to(at::kLong).reshape({1, 2}))).any().item<bool>())
        fail(FaultKind::OutOfBounds, "x1_indices has one outside of [{}, {}]", shape[0], shape[1]);
    const at::Tensor row = places.select(1, turned ? 1 : 0), column = places.select(1, turned ? 0 : 1);
    call.out[0].copy_(at::zeros(call.out[0].sizes(), values.options())
                          .index_add(0, row, values.unsqueeze(1) * dense.index_select(0, column)));
}

// in: the sizes, where each matrix of a batch begins among the values, where its rows do, columns, values.
void check_coordinates(LegacyArguments &call) {
    const int64_t rank = call.in[0].numel(), count = call.in[4].numel();
    if (rank != 2 && rank != 3) fail(FaultKind::InvalidArgument, "x_dense_shape has {} values, expected 2 or 3", rank);
    allowed(call.in[3], kIndices, "x_col_indices");
    for (const size_t i : {0, 1, 2}) allowed(call.in[i], call.in[3].scalar_type(), "an operand with integers");
    holds(call.in[3], count, "x_col_indices");
    allowed(call.in[4], DTypes{at::kFloat, at::kDouble} | kComplex, "x_values");
    sizes(call.out[0], {count, rank}, "the indices");
    alike(call.out[1], call.in[4], "the values");
    holds(call.out[2], rank, "the sizes");
    if (call.in[1].numel() < 2 || call.in[2].numel() % (call.in[1].numel() - 1) != 0)
        fail(FaultKind::InvalidArgument, "x_batch_pointers is {} and x_row_pointers {}", describe(call.in[1]),
             describe(call.in[2]));
}

void coordinates(LegacyArguments &call) {
    const std::vector<int64_t> shape = ints(call.in[0]), batches = ints(call.in[1]), rows = ints(call.in[2]);
    const auto rank = static_cast<int64_t>(shape.size());
    const int64_t count = call.in[4].numel(), height = shape[shape.size() - 2],
                  matrices = static_cast<int64_t>(batches.size()) - 1;
    if (static_cast<int64_t>(rows.size()) != matrices * (height + 1))
        fail(FaultKind::InvalidArgument, "x_row_pointers has {} values, expected {} of {} matrices", rows.size(),
             height + 1, matrices);
    at::Tensor made = at::zeros({count, rank}, at::kLong);
    made.select(1, rank - 1).copy_(call.in[3].flatten());
    for (int64_t matrix = 0; matrix < matrices; ++matrix)
        for (int64_t row = 0; row < height; ++row) {
            const auto at = static_cast<size_t>(matrix * (height + 1) + row);
            const int64_t first = batches[static_cast<size_t>(matrix)] + rows[at], length = rows[at + 1] - rows[at];
            if (rows[at] < 0 || length < 0 || first < 0 || first + length > count)
                fail(FaultKind::OutOfBounds, "row {} of matrix {} has values {} to {}, there are {}", row, matrix,
                     first, first + length, count);
            at::Tensor part = made.narrow(0, first, length);
            part.select(1, rank - 2).fill_(row);
            if (rank == 3) part.select(1, 0).fill_(matrix);
        }
    call.out[0].copy_(made);
    call.out[1].copy_(call.in[4]);
    put(call.out[2], call.in[0]);
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(SparseTensorDenseMatMul, check_product(arguments), product(arguments))
LEGACY(CustCSRSparseMatrixToSparseTensor, check_coordinates(arguments), coordinates(arguments))
