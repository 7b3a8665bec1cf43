// Rows of a tensor that are changed one after the other, where an index may name a row twice.
#pragma once

#include <unordered_map>

#include "opapi/aclop/legacy.h"

namespace vnpu::opapi {

// The positions in `indices` by how often their index came before: within one turn no row comes twice. Fault
// OutOfBounds for an index that is not one of `rows`.
inline std::vector<at::Tensor> turns(const at::Tensor &indices, int64_t rows) {
    std::unordered_map<int64_t, size_t> seen;
    std::vector<std::vector<int64_t>> all;
    const std::vector<int64_t> places = ints(indices);
    for (size_t i = 0; i < places.size(); ++i) {
        if (places[i] < 0 || places[i] >= rows)
            fail(FaultKind::OutOfBounds, "an index is {}, there are {} rows", places[i], rows);
        const size_t turn = seen[places[i]]++;
        if (turn == all.size()) all.emplace_back();
        all[turn].push_back(static_cast<int64_t>(i));
    }
    std::vector<at::Tensor> made;
    made.reserve(all.size());
    for (const std::vector<int64_t> &each : all) made.push_back(at::tensor(each, at::kLong));
    return made;
}

}  // namespace vnpu::opapi
