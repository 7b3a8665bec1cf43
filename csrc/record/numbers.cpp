// The pass over float64 and integers, written once for the compiler to make vectors of, and compiled for each set of
// instructions.
#include <algorithm>
#include <cmath>

#include "record/kernels.h"

namespace torchport::record {
namespace {

// What sums of a type are kept in: at most kPiece bytes come at a time, so that these do not overflow.
template <size_t size>
struct Wide {
    using Sum = double;
    using Squares = double;
};
template <>
struct Wide<1> {
    using Sum = int32_t;
    using Squares = uint32_t;
};
template <>
struct Wide<2> {
    using Sum = int32_t;
    using Squares = uint64_t;
};
static_assert(kPiece * 255 * 255 <= UINT32_MAX && kPiece / 2 * 65535 <= INT32_MAX);

// Integers of 8 and 16 bits: any order of additions gives the same, so a plain loop will do.
template <class T>
[[gnu::always_inline]] inline bool narrow(Statistics &found, const T *data, size_t count) noexcept {
    T low = data[0], high = data[0];
    typename Wide<sizeof(T)>::Sum sum = 0;
    typename Wide<sizeof(T)>::Squares squares = 0;
    uint32_t zeros = 0;
    for (size_t i = 0; i < count; ++i) {
        const T value = data[i];
        low = value < low ? value : low;
        high = value > high ? value : high;
        sum += value;
        squares += static_cast<typename Wide<sizeof(T)>::Squares>(int64_t{value} * value);
        zeros += value == 0;
    }
    found.minimum = std::min(found.minimum, static_cast<double>(low));
    found.maximum = std::max(found.maximum, static_cast<double>(high));
    found.sum += static_cast<double>(sum);
    found.squares += static_cast<double>(squares);
    found.zeros += zeros;
    return true;
}

// Sums of float64 depend on the order: eight of them, which take turns.
template <class T>
[[gnu::always_inline]] inline bool lanes(Statistics &found, const T *data, size_t count) noexcept {
    T low[kLanes], high[kLanes];
    double sum[kLanes] = {}, squares[kLanes] = {};
    int64_t zeros[kLanes] = {};
    for (size_t lane = 0; lane < kLanes; ++lane) low[lane] = high[lane] = data[0];
    const size_t whole = count / kLanes * kLanes;
    for (size_t i = 0; i < whole; i += kLanes)
        for (size_t lane = 0; lane < kLanes; ++lane) {
            const T value = data[i + lane];
            const double wide = static_cast<double>(value);
            low[lane] = value < low[lane] ? value : low[lane];
            high[lane] = value > high[lane] ? value : high[lane];
            sum[lane] += wide;
            squares[lane] += wide * wide;
            zeros[lane] += value == 0;
        }
    for (size_t i = whole; i < count; ++i) {
        const double wide = static_cast<double>(data[i]);
        low[0] = data[i] < low[0] ? data[i] : low[0];
        high[0] = data[i] > high[0] ? data[i] : high[0];
        sum[0] += wide;
        squares[0] += wide * wide;
        zeros[0] += data[i] == 0;
    }
    for (size_t lane = 1; lane < kLanes; ++lane) {
        low[0] = low[lane] < low[0] ? low[lane] : low[0];
        high[0] = high[lane] > high[0] ? high[lane] : high[0];
        sum[0] += sum[lane];
        squares[0] += squares[lane];
        zeros[0] += zeros[lane];
    }
    // A sum is finite only where all of them are.
    if (!std::isfinite(sum[0]) || !std::isfinite(squares[0])) return false;
    found.minimum = std::min(found.minimum, static_cast<double>(low[0]));
    found.maximum = std::max(found.maximum, static_cast<double>(high[0]));
    found.sum += sum[0];
    found.squares += squares[0];
    found.zeros += zeros[0];
    return true;
}

template <class T>
[[gnu::always_inline]] inline bool pass(Statistics &found, const T *data, size_t count) noexcept {
    if constexpr (sizeof(T) <= 2)
        return narrow(found, data, count);
    else
        return lanes(found, data, count);
}

template <template <class> class Of>
constexpr Passes all() noexcept {
    return {Of<double>::run,   Of<uint8_t>::run, Of<int8_t>::run,   Of<uint16_t>::run, Of<int16_t>::run,
            Of<uint32_t>::run, Of<int32_t>::run, Of<uint64_t>::run, Of<int64_t>::run};
}

template <class T>
struct Scalar {
    static bool run(Statistics &found, const T *data, size_t count) noexcept { return pass(found, data, count); }
};

#if defined(__x86_64__)
template <class T>
struct Avx2 {
    [[gnu::target("avx2,fma")]] static bool run(Statistics &found, const T *data, size_t count) noexcept {
        return pass(found, data, count);
    }
};
template <class T>
struct Avx512 {
    [[gnu::target("avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")]] static bool run(
        Statistics &found, const T *data, size_t count) noexcept {
        return pass(found, data, count);
    }
};
#endif

}  // namespace

const Passes kScalarPasses = all<Scalar>();
#if defined(__x86_64__)
const Passes kAvx2Passes = all<Avx2>(), kAvx512Passes = all<Avx512>();
#endif

}  // namespace torchport::record
