#include "record/kernels.h"

#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace torchport::record {
namespace {

void hash_scalar(Sums &sums, const std::byte *data, size_t stripes) noexcept {
    for (size_t stripe = 0; stripe < stripes; ++stripe, data += kStripe, ++sums.stripes)
        for (size_t lane = 0; lane < kLanes; ++lane) {
            uint64_t value = 0;
            std::memcpy(&value, data + lane * sizeof value, sizeof value);
            const uint64_t key = value ^ (kKeys.first[lane] + sums.stripes * kKeys.step[lane]);
            sums.lanes[lane] += (key & 0xFFFFFFFF) * (key >> 32) + value;
        }
}

bool converted_scalar(Statistics &found, const float *data, size_t stripes) noexcept {
    Statistics here;
    for (size_t i = 0; i < stripes * 16; ++i) {
        const double value = data[i];
        if (!std::isfinite(value)) return false;
        here.minimum = value < here.minimum ? value : here.minimum;
        here.maximum = value > here.maximum ? value : here.maximum;
        here.sum += value;
        here.squares += value * value;
        here.zeros += value == 0;
    }
    found.minimum = std::min(found.minimum, here.minimum);
    found.maximum = std::max(found.maximum, here.maximum);
    found.sum += here.sum;
    found.squares += here.squares;
    found.zeros += here.zeros;
    return true;
}

bool floats_scalar(Statistics &found, Sums &sums, const float *data, size_t stripes) noexcept {
    hash_scalar(sums, reinterpret_cast<const std::byte *>(data), stripes);
    return converted_scalar(found, data, stripes);
}

void copy_scalar(std::byte *to, const std::byte *from, size_t stripes) noexcept {
    std::memcpy(to, from, stripes * kStripe);
}

#if defined(__x86_64__)

#define AVX512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
#define AVX2 __attribute__((target("avx2,fma,f16c")))

// Adds a block's numbers where all of them are finite: a sum of floats in float64 is finite if and only if they are.
bool merge(Statistics &found, double minimum, double maximum, double sum, double squares, int64_t zeros) noexcept {
    if (!std::isfinite(sum) || !std::isfinite(squares)) return false;
    found.minimum = std::min(found.minimum, minimum);
    found.maximum = std::max(found.maximum, maximum);
    found.sum += sum;
    found.squares += squares;
    found.zeros += zeros;
    return true;
}

AVX512 void hash_avx512(Sums &sums, const std::byte *data, size_t stripes) noexcept {
    const __m512i step = _mm512_load_si512(kKeys.step.data());
    __m512i key = _mm512_add_epi64(_mm512_load_si512(kKeys.first.data()),
                                   _mm512_mullo_epi64(step, _mm512_set1_epi64(static_cast<int64_t>(sums.stripes))));
    __m512i total = _mm512_load_si512(sums.lanes.data());
    for (size_t stripe = 0; stripe < stripes; ++stripe) {
        const __m512i value = _mm512_loadu_si512(data + stripe * kStripe);
        const __m512i mix = _mm512_xor_si512(value, key);
        total = _mm512_add_epi64(_mm512_add_epi64(total, value), _mm512_mul_epu32(mix, _mm512_srli_epi64(mix, 32)));
        key = _mm512_add_epi64(key, step);
    }
    _mm512_store_si512(sums.lanes.data(), total);
    sums.stripes += stripes;
}

// The sums of every other stripe: two of them take turns, so that no sum waits for its own last addition.
struct Sums512 {
    __m512i total = _mm512_setzero_si512(), zeros = _mm512_setzero_si512();
    __m512 low, high;
    __m512d sum[2] = {}, squares[2] = {};
    AVX512 Sums512()
        : low(_mm512_set1_ps(std::numeric_limits<float>::infinity())), high(_mm512_sub_ps(_mm512_setzero_ps(), low)) {}
    template <bool hashed>
    AVX512 [[gnu::always_inline]] inline void add(const float *data, __m512i key) noexcept {
        const __m512 value = _mm512_loadu_ps(data);
        if constexpr (hashed) {
            const __m512i bits = _mm512_castps_si512(value), mix = _mm512_xor_si512(bits, key);
            total = _mm512_add_epi64(total, _mm512_add_epi64(bits, _mm512_mul_epu32(mix, _mm512_srli_epi64(mix, 32))));
        }
        low = _mm512_min_ps(value, low);
        high = _mm512_max_ps(value, high);
        zeros = _mm512_mask_sub_epi32(zeros, _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_EQ_OQ), zeros,
                                      _mm512_set1_epi32(-1));
        const __m512d left = _mm512_cvtps_pd(_mm256_loadu_ps(data)), right = _mm512_cvtps_pd(_mm256_loadu_ps(data + 8));
        sum[0] = _mm512_add_pd(sum[0], left);
        sum[1] = _mm512_add_pd(sum[1], right);
        squares[0] = _mm512_fmadd_pd(left, left, squares[0]);
        squares[1] = _mm512_fmadd_pd(right, right, squares[1]);
    }
};

template <bool hashed>
AVX512 bool floats_with_avx512(Statistics &found, Sums *sums, const float *data, size_t stripes) noexcept {
    __m512i step{}, key{};
    if constexpr (hashed) {
        step = _mm512_load_si512(kKeys.step.data());
        key = _mm512_add_epi64(_mm512_load_si512(kKeys.first.data()),
                               _mm512_mullo_epi64(step, _mm512_set1_epi64(static_cast<int64_t>(sums->stripes))));
    }
    Sums512 even, odd;
    size_t stripe = 0;
    for (; stripe + 2 <= stripes; stripe += 2, data += 32) {
        const __m512i next = _mm512_add_epi64(key, step);
        even.add<hashed>(data, key);
        odd.add<hashed>(data + 16, next);
        key = _mm512_add_epi64(next, step);
    }
    if (stripe < stripes) even.add<hashed>(data, key);
    if constexpr (hashed) {
        const __m512i before = _mm512_load_si512(sums->lanes.data());
        _mm512_store_si512(sums->lanes.data(), _mm512_add_epi64(before, _mm512_add_epi64(even.total, odd.total)));
        sums->stripes += stripes;
    }
    const __m512d sum = _mm512_add_pd(_mm512_add_pd(even.sum[0], even.sum[1]), _mm512_add_pd(odd.sum[0], odd.sum[1]));
    const __m512d squares =
        _mm512_add_pd(_mm512_add_pd(even.squares[0], even.squares[1]), _mm512_add_pd(odd.squares[0], odd.squares[1]));
    return merge(found, static_cast<double>(_mm512_reduce_min_ps(_mm512_min_ps(even.low, odd.low))),
                 static_cast<double>(_mm512_reduce_max_ps(_mm512_max_ps(even.high, odd.high))),
                 _mm512_reduce_add_pd(sum), _mm512_reduce_add_pd(squares),
                 _mm512_reduce_add_epi32(_mm512_add_epi32(even.zeros, odd.zeros)));
}

AVX512 bool floats_avx512(Statistics &found, Sums &sums, const float *data, size_t stripes) noexcept {
    return floats_with_avx512<true>(found, &sums, data, stripes);
}
AVX512 bool converted_avx512(Statistics &found, const float *data, size_t stripes) noexcept {
    return floats_with_avx512<false>(found, nullptr, data, stripes);
}

AVX512 void widened_avx512(float *to, const uint16_t *from, size_t stripes) noexcept {
    for (size_t stripe = 0; stripe < stripes; ++stripe, to += 16, from += 16)
        _mm512_storeu_ps(to, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(from))));
}

AVX512 void copy_avx512(std::byte *to, const std::byte *from, size_t stripes) noexcept {
    for (size_t stripe = 0; stripe < stripes; ++stripe, to += kStripe, from += kStripe)
        _mm512_stream_si512(reinterpret_cast<__m512i *>(to), _mm512_loadu_si512(from));
    _mm_sfence();  // whoever is told of it sees it
}

// The lower 64 bits of products of 64 bits, which AVX2 lacks.
AVX2 inline __m256i multiply(__m256i a, __m256i b) noexcept {
    const __m256i cross =
        _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(a, 32), b), _mm256_mul_epu32(a, _mm256_srli_epi64(b, 32)));
    return _mm256_add_epi64(_mm256_mul_epu32(a, b), _mm256_slli_epi64(cross, 32));
}

AVX2 inline __m256i half(const std::array<uint64_t, kLanes> &lanes, int which) noexcept {
    return _mm256_load_si256(reinterpret_cast<const __m256i *>(lanes.data()) + which);
}

struct Hash2 {
    __m256i step, key, total;
    AVX2 Hash2(const Sums &sums, int which)
        : step(half(kKeys.step, which)),
          key(_mm256_add_epi64(half(kKeys.first, which),
                               multiply(step, _mm256_set1_epi64x(static_cast<int64_t>(sums.stripes))))),
          total(half(sums.lanes, which)) {}
    AVX2 void add(__m256i value) noexcept {
        const __m256i mix = _mm256_xor_si256(value, key);
        total = _mm256_add_epi64(_mm256_add_epi64(total, value), _mm256_mul_epu32(mix, _mm256_srli_epi64(mix, 32)));
        key = _mm256_add_epi64(key, step);
    }
    AVX2 void store(Sums &sums, int which) const noexcept {
        _mm256_store_si256(reinterpret_cast<__m256i *>(sums.lanes.data()) + which, total);
    }
};

AVX2 void hash_avx2(Sums &sums, const std::byte *data, size_t stripes) noexcept {
    Hash2 left(sums, 0), right(sums, 1);
    for (size_t stripe = 0; stripe < stripes; ++stripe, data += kStripe) {
        left.add(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(data)));
        right.add(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(data) + 1));
    }
    left.store(sums, 0);
    right.store(sums, 1);
    sums.stripes += stripes;
}

AVX2 bool converted_avx2(Statistics &found, const float *data, size_t stripes) noexcept {
    __m256 low = _mm256_set1_ps(std::numeric_limits<float>::infinity()), high = _mm256_sub_ps(_mm256_setzero_ps(), low);
    __m256d sum[2] = {}, squares[2] = {};
    __m256i zeros = _mm256_setzero_si256();
    for (size_t part = 0; part < stripes * 2; ++part, data += 8) {
        const __m256 value = _mm256_loadu_ps(data);
        low = _mm256_min_ps(value, low);
        high = _mm256_max_ps(value, high);
        zeros = _mm256_sub_epi32(zeros, _mm256_castps_si256(_mm256_cmp_ps(value, _mm256_setzero_ps(), _CMP_EQ_OQ)));
        const __m256d left = _mm256_cvtps_pd(_mm_loadu_ps(data)), right = _mm256_cvtps_pd(_mm_loadu_ps(data + 4));
        sum[0] = _mm256_add_pd(sum[0], left);
        sum[1] = _mm256_add_pd(sum[1], right);
        squares[0] = _mm256_fmadd_pd(left, left, squares[0]);
        squares[1] = _mm256_fmadd_pd(right, right, squares[1]);
    }
    alignas(32) std::array<float, 8> lows, highs;
    alignas(32) std::array<double, 4> totals, powers;
    alignas(32) std::array<int32_t, 8> counts;
    _mm256_store_ps(lows.data(), low);
    _mm256_store_ps(highs.data(), high);
    _mm256_store_pd(totals.data(), _mm256_add_pd(sum[0], sum[1]));
    _mm256_store_pd(powers.data(), _mm256_add_pd(squares[0], squares[1]));
    _mm256_store_si256(reinterpret_cast<__m256i *>(counts.data()), zeros);
    int64_t count = 0;
    for (size_t i = 0; i < 8; ++i) {
        lows[0] = std::min(lows[0], lows[i]);
        highs[0] = std::max(highs[0], highs[i]);
        count += counts[i];
    }
    return merge(found, static_cast<double>(lows[0]), static_cast<double>(highs[0]),
                 totals[0] + totals[1] + totals[2] + totals[3], powers[0] + powers[1] + powers[2] + powers[3], count);
}

AVX2 bool floats_avx2(Statistics &found, Sums &sums, const float *data, size_t stripes) noexcept {
    hash_avx2(sums, reinterpret_cast<const std::byte *>(data), stripes);  // what it reads stays in the cache
    return converted_avx2(found, data, stripes);
}

AVX2 void widened_avx2(float *to, const uint16_t *from, size_t stripes) noexcept {
    for (size_t half = 0; half < stripes * 2; ++half, to += 8, from += 8)
        _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from))));
}

AVX2 void copy_avx2(std::byte *to, const std::byte *from, size_t stripes) noexcept {
    for (size_t half = 0; half < stripes * 2; ++half, to += 32, from += 32)
        _mm256_stream_si256(reinterpret_cast<__m256i *>(to),
                            _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)));
    _mm_sfence();
}

#endif

}  // namespace

const Kernels kScalar{"scalar", hash_scalar, floats_scalar, converted_scalar, nullptr, copy_scalar, kScalarPasses};
#if defined(__x86_64__)
const Kernels kAvx2{"avx2", hash_avx2, floats_avx2, converted_avx2, widened_avx2, copy_avx2, kAvx2Passes};
const Kernels kAvx512{"avx512",       hash_avx512, floats_avx512, converted_avx512,
                      widened_avx512, copy_avx512, kAvx512Passes};
#else
const Kernels kAvx2 = kScalar, kAvx512 = kScalar;
#endif

}  // namespace torchport::record
