// The numbers that an operator takes beside its tensors, as far as they are limited whatever the tensors are: of every
// operator's line (checks.json, check_rows.py). What limits them beside certain tensors stands in the lines.
#pragma once

#include <limits>

#include "opapi/aclnn/check.h"
#include "opapi/aclnn/limits.h"

namespace vnpu::opapi {

inline constexpr double kNoEnd = std::numeric_limits<double>::infinity();

// From `first`, which `above` leaves out, to `last`.
struct Range {
    double first = kNoEnd, last = -kNoEnd;
    bool above = false;
    constexpr bool has(double value) const { return (above ? value > first : value >= first) && value <= last; }
};

// What the chips of one generation take of one parameter.
struct Number {
    const char *parameter;
    const char *allowed;  // the ranges in words
    Range ranges[4];      // the most that any parameter has
    template <class T>
    void check(T value) const {
        for (const Range &each : ranges)
            if (each.has(static_cast<double>(value))) return;
        on_chip(false, "parameter {} is {}, allowed is {}", parameter, value, allowed);
    }
};

template <size_t N, class... T>
void numbers(const Number (&allowed)[N], T... values) {
    static_assert(N == sizeof...(T));
    size_t i = 0;
    (allowed[i++].check(values), ...);
}

}  // namespace vnpu::opapi
