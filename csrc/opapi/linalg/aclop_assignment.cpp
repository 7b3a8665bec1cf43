// Which row gets which column, each at most one, so that the sum of the costs is the least (MindSpore's
// linear_sum_assignment.cc, behind mindspore.scipy.optimize.linear_sum_assignment): by shortest augmenting paths, as
// Crouse (2016) has them and SciPy, whose choice among equals it is.
#include <cmath>
#include <limits>
#include <numeric>

#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
using Ints = std::vector<int64_t>;

size_t at_of(int64_t i) { return static_cast<size_t>(i); }

// The costs of rows and no fewer columns, and what has been found so far.
struct Assignment {
    const double *cost;
    int64_t rows, columns;
    Ints column_of, row_of;              // -1: none yet
    std::vector<double> paid, refunded;  // the prices of rows and columns

    Assignment(const at::Tensor &costs)
        : cost(costs.const_data_ptr<double>()),
          rows(costs.size(0)),
          columns(costs.size(1)),
          column_of(at_of(rows), -1),
          row_of(at_of(columns), -1),
          paid(at_of(rows)),
          refunded(at_of(columns)) {}

    // The cheapest way from this row to a free column, over columns whose rows take others.
    void add(int64_t row) {
        Ints from(at_of(columns), -1), left(at_of(columns)), seen_rows;
        std::vector<double> nearest(at_of(columns), kInfinite);
        for (int64_t i = 0; i < columns; ++i) left[at_of(i)] = columns - 1 - i;
        Ints seen_columns;
        double low = 0;
        int64_t end = -1;
        for (int64_t i = row; end < 0;) {
            seen_rows.push_back(i);
            size_t best = 0;
            double lowest = kInfinite;
            for (size_t place = 0; place < left.size(); ++place) {
                const size_t j = at_of(left[place]);
                const double there = low + cost[i * columns + left[place]] - paid[at_of(i)] - refunded[j];
                if (there < nearest[j]) {
                    from[j] = i;
                    nearest[j] = there;
                }
                if (nearest[j] < lowest || (nearest[j] == lowest && row_of[j] < 0)) {
                    lowest = nearest[j];
                    best = place;
                }
            }
            if (lowest == kInfinite) fail(FaultKind::InvalidArgument, "no assignment has a finite cost");
            low = lowest;
            const int64_t column = left[best];
            seen_columns.push_back(column);
            left[best] = left.back();
            left.pop_back();
            if (row_of[at_of(column)] < 0)
                end = column;
            else
                i = row_of[at_of(column)];
        }
        paid[at_of(row)] += low;
        for (const int64_t i : seen_rows)
            if (i != row) paid[at_of(i)] += low - nearest[at_of(column_of[at_of(i)])];
        for (const int64_t j : seen_columns) refunded[at_of(j)] -= low - nearest[at_of(j)];
        for (int64_t j = end;;) {
            const int64_t i = from[at_of(j)];
            row_of[at_of(j)] = i;
            std::swap(column_of[at_of(i)], j);
            if (i == row) break;
        }
    }
};

void check_assignment(LegacyArguments &call) {
    allowed(call.in[0], kReals | at::kBool, "cost_matrix");
    sizes(call.in[0], {-1, -1}, "cost_matrix");
    allowed(call.in[1], at::kLong, "dimension_limit");
    allowed(call.in[2], at::kBool, "maximize");
    for (const size_t i : {1, 2}) holds(call.in[i], 1, i == 1 ? "dimension_limit" : "maximize");
    for (const size_t i : {0, 1}) {
        allowed(call.out[i], at::kLong, "an output");
        sizes(call.out[i], {std::min(call.in[0].size(0), call.in[0].size(1))}, "an output");
    }
}

// Of the columns the first `limit`. What no row or column is left for is -1.
void assign(LegacyArguments &call) {
    const int64_t given = ints(call.in[1]).front(), all = call.in[0].size(1);
    const int64_t limit = given == std::numeric_limits<int64_t>::max() ? all : given;
    if (limit < 0 || limit > all) fail(FaultKind::InvalidArgument, "dimension_limit is {} of {} columns", limit, all);
    at::Tensor costs = call.in[0].to(at::kDouble).narrow(1, 0, limit);
    if (ints(call.in[2]).front() != 0) costs = -costs;
    if (costs.isnan().logical_or(costs.eq(-kInfinite)).any().item<bool>())
        fail(FaultKind::InvalidArgument, "cost_matrix has NaN or an infinity that would be chosen first");
    const bool turned = limit < costs.size(0);
    costs = (turned ? costs.t() : costs).contiguous();
    Assignment found(costs);
    for (int64_t i = 0; i < found.rows; ++i) found.add(i);
    Ints order(at_of(found.rows));
    std::iota(order.begin(), order.end(), 0);
    if (turned)
        std::sort(order.begin(), order.end(),
                  [&](int64_t a, int64_t b) { return found.column_of[at_of(a)] < found.column_of[at_of(b)]; });
    for (at::Tensor &out : call.out) out.fill_(-1);
    for (size_t i = 0; i < order.size(); ++i) {
        const int64_t one = order[i], other = found.column_of[at_of(one)];
        call.out[0][static_cast<int64_t>(i)] = turned ? other : one;
        call.out[1][static_cast<int64_t>(i)] = turned ? one : other;
    }
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(CustLinearSumAssignment, check_assignment(arguments), assign(arguments))
