#include "record/statistics.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/complex.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "record/kernels.h"

namespace torchport::record {
namespace {

const Kernels &chosen() noexcept {
    static const Kernels &kernels = [&]() -> const Kernels & {
        // For tests and for a look at what a set of instructions brings.
        const char *wish = std::getenv("TORCHPORT_RECORD_INSTRUCTIONS");
        const std::string_view wanted = wish == nullptr ? "" : wish;
#if defined(__x86_64__)
        __builtin_cpu_init();
        const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                                __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
        if (has_avx512 && wanted != "avx2" && wanted != "scalar") return kAvx512;
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
            wanted != "scalar")
            return kAvx2;
#endif
        return kScalar;
    }();
    return kernels;
}

// One number whose modulus is `value`.
void count(Statistics &found, double value, bool zero) noexcept {
    if (std::isnan(value)) {
        ++found.nans;
        return;
    }
    found.minimum = std::min(found.minimum, value);
    found.maximum = std::max(found.maximum, value);
    found.zeros += zero;
    if (std::isinf(value)) {
        ++found.infinities;
        return;
    }
    found.sum += value;
    found.squares += value * value;
}

template <class T>
void one_by_one(Statistics &found, const void *data, int64_t size) noexcept {
    const T *values = static_cast<const T *>(data);
    for (int64_t i = 0; i < size; ++i) {
        const double value = static_cast<double>(values[i]);
        count(found, value, value == 0);
    }
}

template <class T>
void numbers(Statistics &found, const void *data, int64_t size) noexcept {
    const T *values = static_cast<const T *>(data);
    if (size > 0 && !std::get<Pass<T>>(chosen().numbers)(found, values, static_cast<size_t>(size)))
        one_by_one<T>(found, data, size);
}

template <class T>
void complexes(Statistics &found, const void *data, int64_t size) noexcept {
    const T *values = static_cast<const T *>(data);
    for (int64_t i = 0; i < size; ++i) {
        const double real = static_cast<double>(values[2 * i]), imaginary = static_cast<double>(values[2 * i + 1]);
        // hypot says infinity of an infinite and a NaN.
        const double modulus = std::isnan(real) || std::isnan(imaginary) ? NAN : std::hypot(real, imaginary);
        count(found, modulus, real == 0 && imaginary == 0);
    }
}

// Sixteen-bit floats, through float32 in pieces that stay in the cache.
template <class T>
void halves(Statistics &found, const void *data, int64_t size) noexcept {
    constexpr int64_t kFloats = kBlock * 16;
    alignas(64) std::array<float, kFloats> wide;
    const T *values = static_cast<const T *>(data);
    for (int64_t first = 0; first < size; first += kFloats) {
        const int64_t here = std::min(kFloats, size - first);
        const int64_t whole = here / 16 * 16;
        int64_t done = 0;
        if (std::is_same_v<T, c10::Half> && chosen().widened != nullptr) {
            chosen().widened(wide.data(), reinterpret_cast<const uint16_t *>(values + first), whole / 16);
            done = whole;
        }
        for (int64_t i = done; i < here; ++i) wide[i] = static_cast<float>(values[first + i]);
        if (!chosen().converted(found, wide.data(), whole / 16)) one_by_one<float>(found, wide.data(), whole);
        one_by_one<float>(found, wide.data() + whole, here - whole);
    }
}

uint64_t folded(const Sums &sums, uint64_t bytes) noexcept {
    uint64_t value = bytes * kGolden;
    for (const uint64_t lane : sums.lanes) value = mixed(value ^ lane);
    return value;
}

// What is left behind the last whole stripe, filled up with zeros.
void hash_rest(Sums &sums, const std::byte *data, size_t bytes) noexcept {
    if (bytes == 0) return;
    alignas(64) std::array<std::byte, kStripe> last{};
    std::memcpy(last.data(), data, bytes);
    chosen().hash(sums, last.data(), 1);
}

void floats(Statistics &found, Sums &sums, const void *data, int64_t size, std::byte *copy) noexcept {
    const float *values = static_cast<const float *>(data);
    const size_t stripes = static_cast<size_t>(size) / 16;
    for (size_t first = 0; first < stripes; first += kBlock) {
        const size_t here = std::min(kBlock, stripes - first);
        const float *block = values + first * 16;
        if (!chosen().floats(found, sums, block, here))
            one_by_one<float>(found, block, static_cast<int64_t>(here) * 16);
        if (copy != nullptr) chosen().copy(copy + first * kStripe, reinterpret_cast<const std::byte *>(block), here);
    }
    const int64_t rest = size % 16;
    one_by_one<float>(found, values + stripes * 16, rest);
    if (copy != nullptr && rest > 0)
        std::memcpy(copy + stripes * kStripe, values + stripes * 16, static_cast<size_t>(rest) * sizeof(float));
    hash_rest(sums, static_cast<const std::byte *>(data) + stripes * kStripe,
              static_cast<size_t>(rest) * sizeof(float));
}

using PassOf = void (*)(Statistics &, const void *, int64_t) noexcept;

PassOf pass_of(c10::ScalarType dtype) noexcept {
    switch (dtype) {
        case c10::ScalarType::Double:
            return numbers<double>;
        case c10::ScalarType::Half:
            return halves<c10::Half>;
        case c10::ScalarType::BFloat16:
            return halves<c10::BFloat16>;
        case c10::ScalarType::Bool:
        case c10::ScalarType::Byte:
            return numbers<uint8_t>;
        case c10::ScalarType::Char:
            return numbers<int8_t>;
        case c10::ScalarType::Short:
            return numbers<int16_t>;
        case c10::ScalarType::UInt16:
            return numbers<uint16_t>;
        case c10::ScalarType::Int:
            return numbers<int32_t>;
        case c10::ScalarType::UInt32:
            return numbers<uint32_t>;
        case c10::ScalarType::Long:
            return numbers<int64_t>;
        case c10::ScalarType::UInt64:
            return numbers<uint64_t>;
        case c10::ScalarType::ComplexFloat:
            return complexes<float>;
        case c10::ScalarType::ComplexDouble:
            return complexes<double>;
        default:
            return nullptr;
    }
}

}  // namespace

const char *instructions() noexcept { return chosen().name; }

bool measurable(c10::ScalarType dtype) noexcept { return dtype == c10::ScalarType::Float || pass_of(dtype) != nullptr; }

Statistics measure(c10::ScalarType dtype, const void *data, int64_t count, std::byte *copy) noexcept {
    Statistics found;
    Sums sums;
    const size_t bytes = static_cast<size_t>(count) * c10::elementSize(dtype);
    if (dtype == c10::ScalarType::Float) {
        floats(found, sums, data, count, copy);
    } else {
        // Piece by piece, so that the second look at the bytes finds them in the cache.
        const PassOf pass = pass_of(dtype);
        const std::byte *at = static_cast<const std::byte *>(data);
        Statistics part;
        for (size_t first = 0; first < bytes; first += kPiece) {
            const size_t here = std::min(kPiece, bytes - first);
            part = Statistics{};
            pass(part, at + first, static_cast<int64_t>(here / c10::elementSize(dtype)));
            found.minimum = std::min(found.minimum, part.minimum);
            found.maximum = std::max(found.maximum, part.maximum);
            found.sum += part.sum;
            found.squares += part.squares;
            found.nans += part.nans;
            found.infinities += part.infinities;
            found.zeros += part.zeros;
            if (copy != nullptr) std::memcpy(copy + first, at + first, here);
            chosen().hash(sums, at + first, here / kStripe);
            hash_rest(sums, at + first + here / kStripe * kStripe, here % kStripe);
        }
    }
    found.checksum = folded(sums, bytes);
    return found;
}

uint64_t checksum(const void *data, size_t bytes) noexcept {
    Sums sums;
    const std::byte *at = static_cast<const std::byte *>(data);
    chosen().hash(sums, at, bytes / kStripe);
    hash_rest(sums, at + bytes / kStripe * kStripe, bytes % kStripe);
    return folded(sums, bytes);
}

}  // namespace torchport::record
