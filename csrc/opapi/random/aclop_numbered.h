// What draws of the old API have in common: operators that count their calls, so that each call draws other numbers and
// a run repeats, and shapes that are operands.
#pragma once

#include <algorithm>
#include <atomic>
#include <utility>

#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"
#include "opapi/random/philox.h"

namespace vnpu::opapi {

// The last word of a key or a counter: what torch_npu puts before it is 0.
inline uint64_t word(const at::Tensor &tensor) {
    const std::vector<int64_t> words = ints(tensor);
    return words.empty() ? 0 : static_cast<uint64_t>(words.back());
}

// The first operand is the output's shape.
inline void check_drawn(LegacyArguments &call, DTypes dtypes) {
    allowed(call.out[0], dtypes, "the output");
    int64_t count = 1;
    for (const int64_t size : ints(call.in[0])) count *= size;
    holds(call.out[0], count, "the output");
}

// Another choice each time: calls are numbered when they are made, so that a run repeats.
inline void number_call(LegacyArguments &call) {
    static std::atomic<int64_t> calls{0};
    call.attributes.values["call"] = calls++;
}

// The seed and the place in its stream of an operator that has seeds as attributes and counts its calls.
inline std::pair<uint64_t, uint64_t> counted(const aclopAttr &attributes) {
    const auto number = [&](const char *name) {
        return static_cast<uint64_t>(attribute<int64_t>(attributes, name, 0));
    };
    return {number("seed") ^ number("seed2"), number("call") << 32};
}

inline std::vector<int64_t> shuffled(int64_t count, const Philox &philox) {
    std::vector<std::pair<uint32_t, int64_t>> order;
    for (int64_t i = 0; i < count; ++i) order.emplace_back(philox(static_cast<uint64_t>(i))[0], i);
    std::sort(order.begin(), order.end());
    std::vector<int64_t> made;
    for (const auto &[key, i] : order) made.push_back(i);
    return made;
}

}  // namespace vnpu::opapi
