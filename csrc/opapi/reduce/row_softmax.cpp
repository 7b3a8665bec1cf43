// Written in the compiler's vectors of 16 floats, of which it makes one, two or four instructions: each function is
// compiled for AVX-512, AVX2 and any x86-64, and the loader chooses.
#include "opapi/reduce/row_softmax.h"

#include <cstring>
#include <limits>

#pragma GCC diagnostic ignored "-Wpsabi"  // no vector crosses a call: everything below is inlined

#if defined(__x86_64__)
#define VNPU_FOR_THIS_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define VNPU_FOR_THIS_PROCESSOR
#endif

namespace vnpu::opapi::row {
namespace {

constexpr int64_t kLanes = 16;
typedef float Floats __attribute__((vector_size(kLanes * sizeof(float))));
typedef int32_t Ints __attribute__((vector_size(kLanes * sizeof(int32_t))));
typedef uint32_t Bits __attribute__((vector_size(kLanes * sizeof(uint32_t))));

#define VNPU_INLINE __attribute__((always_inline)) inline

VNPU_INLINE Floats load(const float *from) {
    Floats values;
    std::memcpy(&values, from, sizeof values);
    return values;
}

VNPU_INLINE void store(float *to, const Floats &values) { std::memcpy(to, &values, sizeof values); }

// The last values of a row, with `rest` behind them.
VNPU_INLINE Floats load(const float *from, int64_t count, float rest) {
    Floats values = Floats{} + rest;
    std::memcpy(&values, from, static_cast<size_t>(count) * sizeof(float));
    return values;
}

VNPU_INLINE void store(float *to, const Floats &values, int64_t count) {
    std::memcpy(to, &values, static_cast<size_t>(count) * sizeof(float));
}

// exp of numbers up to 0; 0 where the result would be smaller than a normal number. The polynomial is that of
// S. Moshier's Cephes library (expf), good to one unit in the last place.
VNPU_INLINE Floats exponential(const Floats &x) {
    constexpr float kLog2E = 1.44269504088896341F, kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
    constexpr float kSmallest = -87.33654F;    // log(FLT_MIN)
    constexpr float kToInteger = 12582912.0F;  // 1.5 * 2^23: numbers of this size have no fraction
    const Floats power = (x * kLog2E + kToInteger) - kToInteger;
    const Floats r = (x - power * kLn2High) - power * kLn2Low;
    Floats p = r * 1.9875691500e-4F + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * (r * r) + r + 1.0F;
    const Bits exponent = (reinterpret_cast<Bits>(__builtin_convertvector(power, Ints)) + 127U) << 23;
    return x < kSmallest ? Floats{} : p * reinterpret_cast<Floats>(exponent);
}

VNPU_INLINE Floats larger(const Floats &a, const Floats &b) { return a > b ? a : b; }

// The lanes brought together by halves.
template <class Combine>
VNPU_INLINE float combined(const Floats &lanes, Combine combine) {
    Floats values = combine(lanes, __builtin_shuffle(lanes, Bits{8, 9, 10, 11, 12, 13, 14, 15}));
    values = combine(values, __builtin_shuffle(values, Bits{4, 5, 6, 7}));
    values = combine(values, __builtin_shuffle(values, Bits{2, 3}));
    values = combine(values, __builtin_shuffle(values, Bits{1}));
    return values[0];
}

}  // namespace

VNPU_FOR_THIS_PROCESSOR Statistics softmax(float *scores, int64_t count) {
    constexpr float kLowest = std::numeric_limits<float>::lowest();
    const int64_t whole = count / kLanes * kLanes, rest = count - whole;
    Floats maxima = Floats{} - std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < whole; i += kLanes) maxima = larger(load(scores + i), maxima);
    if (rest > 0) maxima = larger(load(scores + whole, rest, scores[whole]), maxima);
    const float maximum =
        combined(maxima, [](const Floats &a, const Floats &b) __attribute__((always_inline)) { return larger(a, b); });

    Floats sums{};
    for (int64_t i = 0; i < whole; i += kLanes) {
        const Floats value = exponential(load(scores + i) - maximum);
        store(scores + i, value);
        sums += value;
    }
    if (rest > 0) {
        // What stands behind the row counts for nothing, whatever its maximum is.
        Floats value = exponential(load(scores + whole, rest, kLowest) - maximum);
        store(scores + whole, value, rest);
        sums += load(scores + whole, rest, 0);
    }
    const float sum = combined(sums,
                               [](const Floats &a, const Floats &b) __attribute__((always_inline)) { return a + b; }),
                share = 1 / sum;
    for (int64_t i = 0; i < whole; i += kLanes) store(scores + i, load(scores + i) * share);
    if (rest > 0) store(scores + whole, load(scores + whole, rest, 0) * share, rest);
    return {maximum, sum};
}

VNPU_FOR_THIS_PROCESSOR void probabilities(float *scores, int64_t count, Statistics known) {
    const int64_t whole = count / kLanes * kLanes, rest = count - whole;
    const float share = 1 / known.sum;
    for (int64_t i = 0; i < whole; i += kLanes)
        store(scores + i, exponential(load(scores + i) - known.maximum) * share);
    if (rest > 0)
        store(scores + whole, exponential(load(scores + whole, rest, known.maximum) - known.maximum) * share, rest);
}

VNPU_FOR_THIS_PROCESSOR void gradient(float *grad, const float *probabilities, int64_t count, float mean) {
    const int64_t whole = count / kLanes * kLanes, rest = count - whole;
    for (int64_t i = 0; i < whole; i += kLanes) store(grad + i, (load(grad + i) - mean) * load(probabilities + i));
    if (rest > 0)
        store(grad + whole, (load(grad + whole, rest, 0) - mean) * load(probabilities + whole, rest, 0), rest);
}

VNPU_FOR_THIS_PROCESSOR void add(float *to, const float *values, int64_t count, float factor) {
    const int64_t whole = count / kLanes * kLanes, rest = count - whole;
    for (int64_t i = 0; i < whole; i += kLanes) store(to + i, load(to + i) + load(values + i) * factor);
    if (rest > 0) store(to + whole, load(to + whole, rest, 0) + load(values + whole, rest, 0) * factor, rest);
}

VNPU_FOR_THIS_PROCESSOR float dot(const float *a, const float *b, int64_t count) {
    const int64_t whole = count / kLanes * kLanes, rest = count - whole;
    Floats sums{};
    for (int64_t i = 0; i < whole; i += kLanes) sums += load(a + i) * load(b + i);
    if (rest > 0) sums += load(a + whole, rest, 0) * load(b + whole, rest, 0);
    return combined(sums, [](const Floats &x, const Floats &y) __attribute__((always_inline)) { return x + y; });
}

}  // namespace vnpu::opapi::row
