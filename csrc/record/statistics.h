// One pass over a tensor's elements: extremes, sums, counts and a checksum.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace torchport::record {

struct Statistics {
    double minimum = std::numeric_limits<double>::infinity();  // of what is not NaN; until there is one, this
    double maximum = -std::numeric_limits<double>::infinity();
    double sum = 0, squares = 0;  // of the finite ones
    int64_t nans = 0, infinities = 0, zeros = 0;
    uint64_t checksum = 0;
};

// Whether there is a pass for elements of this type.
bool measurable(c10::ScalarType dtype) noexcept;

// Of `count` elements that lie side by side. Needs measurable(dtype). Complex numbers count by their modulus. Sums are
// float64; the checksum is that of src/torchport/record/operators/checksum.py. With `copy` the bytes are copied there
// on the way, while they are in the cache; it is at a multiple of 64.
Statistics measure(c10::ScalarType dtype, const void *data, int64_t count, std::byte *copy = nullptr) noexcept;

// The checksum alone, of as many bytes.
uint64_t checksum(const void *data, size_t bytes) noexcept;

// The instructions that measure() uses on this machine: "avx512", "avx2", "scalar".
const char *instructions() noexcept;

}  // namespace torchport::record
