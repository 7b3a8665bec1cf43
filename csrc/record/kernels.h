// The inner loops of statistics.cpp, once for each set of instructions. Each works on whole stripes of 64 bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "record/statistics.h"

namespace torchport::record {

constexpr size_t kStripe = 64, kLanes = 8;
constexpr size_t kBlock = 256;  // stripes after which sums of floats are looked at; they stay in the first cache

// Bytes that other passes get at a time: a second look at them finds them in the cache.
constexpr size_t kPiece = 64 * 1024;

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

// The finaliser of splitmix64.
constexpr uint64_t mixed(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
    return value ^ (value >> 31);
}

struct Keys {
    alignas(64) std::array<uint64_t, kLanes> first{}, step{};
    constexpr Keys() {
        for (size_t lane = 0; lane < kLanes; ++lane) {
            first[lane] = mixed(kGolden * (lane + 1));
            step[lane] = mixed(kGolden * (lane + 101)) | 1;
        }
    }
};
inline constexpr Keys kKeys;

// The checksum while it grows.
struct Sums {
    alignas(64) std::array<uint64_t, kLanes> lanes{};
    uint64_t stripes = 0;
};

// `count` numbers, one or more and at most kPiece bytes. False, with nothing done, where one of them is not finite or
// their squares are too large.
template <class T>
using Pass = bool (*)(Statistics &found, const T *data, size_t count) noexcept;
using Passes = std::tuple<Pass<double>, Pass<uint8_t>, Pass<int8_t>, Pass<uint16_t>, Pass<int16_t>, Pass<uint32_t>,
                          Pass<int32_t>, Pass<uint64_t>, Pass<int64_t>>;
extern const Passes kScalarPasses, kAvx2Passes, kAvx512Passes;

struct Kernels {
    const char *name;
    void (*hash)(Sums &sums, const std::byte *data, size_t stripes) noexcept;
    // Floats with their checksum, and without (they were converted). False, with nothing but the checksum done, where
    // one of them is not finite.
    bool (*floats)(Statistics &found, Sums &sums, const float *data, size_t stripes) noexcept;
    bool (*converted)(Statistics &found, const float *data, size_t stripes) noexcept;
    // Stripes of floats from as many float16; null where there are no instructions for it.
    void (*widened)(float *to, const uint16_t *from, size_t stripes) noexcept;
    // To a multiple of 64, past the caches: nobody reads it soon.
    void (*copy)(std::byte *to, const std::byte *from, size_t stripes) noexcept;
    const Passes &numbers;
};

extern const Kernels kScalar, kAvx2, kAvx512;

}  // namespace torchport::record
