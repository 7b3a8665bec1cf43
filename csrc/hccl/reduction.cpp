#include "hccl/reduction.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <array>
#include <cstdint>
#include <type_traits>

#include "device/fault.h"

// Loops over whole chunks, worth the vectorizer that -O2 does not run in full.
#pragma GCC optimize("O3")

namespace vnpu::hccl {
namespace {

struct Type {
    HcclDataType type;
    const char *name;
    size_t size;
};
constexpr Type kTypes[] = {
    {HCCL_DATA_TYPE_INT8, "int8", 1},           {HCCL_DATA_TYPE_INT16, "int16", 2},
    {HCCL_DATA_TYPE_INT32, "int32", 4},         {HCCL_DATA_TYPE_FP16, "float16", 2},
    {HCCL_DATA_TYPE_FP32, "float32", 4},        {HCCL_DATA_TYPE_INT64, "int64", 8},
    {HCCL_DATA_TYPE_UINT64, "uint64", 8},       {HCCL_DATA_TYPE_UINT8, "uint8", 1},
    {HCCL_DATA_TYPE_UINT16, "uint16", 2},       {HCCL_DATA_TYPE_UINT32, "uint32", 4},
    {HCCL_DATA_TYPE_FP64, "float64", 8},        {HCCL_DATA_TYPE_BFP16, "bfloat16", 2},
    {HCCL_DATA_TYPE_INT128, "int128", 16},      {HCCL_DATA_TYPE_HIF8, "hifloat8", 1},
    {HCCL_DATA_TYPE_FP8E4M3, "float8_e4m3", 1}, {HCCL_DATA_TYPE_FP8E5M2, "float8_e5m2", 1},
    {HCCL_DATA_TYPE_FP8E8M0, "float8_e8m0", 1},
};

constexpr std::array kOpNames = {"sum", "prod", "max", "min"};

template <HcclReduceOp op, class T>
T apply(T a, T b) {
    // Signed overflow is undefined: wrap in the unsigned type. 16 bits and fewer are computed as int, which holds them.
    if constexpr (std::is_integral_v<T> && (op == HCCL_REDUCE_SUM || op == HCCL_REDUCE_PROD)) {
        using Bits = std::conditional_t<sizeof(T) < 4, uint32_t, std::make_unsigned_t<T>>;
        const auto x = static_cast<Bits>(a), y = static_cast<Bits>(b);
        return static_cast<T>(op == HCCL_REDUCE_SUM ? x + y : x * y);
    } else if constexpr (op == HCCL_REDUCE_SUM) {
        return a + b;
    } else if constexpr (op == HCCL_REDUCE_PROD) {
        return a * b;
    } else if constexpr (op == HCCL_REDUCE_MAX) {
        return b > a || b != b ? b : a;
    } else {
        return b < a || b != b ? b : a;
    }
}

template <class T>
using Wide = std::conditional_t<std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>, float, T>;

template <class T, HcclReduceOp op>
constexpr Reduction kReduction = {
    sizeof(T),
    sizeof(Wide<T>),
    [](void *wide, const void *from, size_t count) {
        for (size_t i = 0; i < count; ++i) static_cast<Wide<T> *>(wide)[i] = static_cast<const T *>(from)[i];
    },
    [](void *wide, const void *with, size_t count) {
        auto *sum = static_cast<Wide<T> *>(wide);
        for (size_t i = 0; i < count; ++i)
            sum[i] = apply<op, Wide<T>>(sum[i], static_cast<Wide<T>>(static_cast<const T *>(with)[i]));
    },
    [](void *to, const void *wide, size_t count) {
        for (size_t i = 0; i < count; ++i)
            static_cast<T *>(to)[i] = static_cast<T>(static_cast<const Wide<T> *>(wide)[i]);
    },
};

template <class T>
const Reduction &of(HcclReduceOp op) {
    static constexpr std::array kAll = {kReduction<T, HCCL_REDUCE_SUM>, kReduction<T, HCCL_REDUCE_PROD>,
                                        kReduction<T, HCCL_REDUCE_MAX>, kReduction<T, HCCL_REDUCE_MIN>};
    return kAll[op];
}

const Type &find(HcclDataType type) {
    for (const Type &each : kTypes)
        if (each.type == type) return each;
    fail(FaultKind::InvalidArgument, "dataType is {}, which is none of HcclDataType.", static_cast<int>(type));
}

}  // namespace

size_t size_of(HcclDataType type) { return find(type).size; }

const char *name_of(HcclDataType type) noexcept {
    for (const Type &each : kTypes)
        if (each.type == type) return each.name;
    return "no type";
}

const char *name_of(HcclReduceOp op) noexcept {
    return op >= HCCL_REDUCE_SUM && op <= HCCL_REDUCE_MIN ? kOpNames[op] : "no reduction";
}

const Reduction &reduction(HcclDataType type, HcclReduceOp op) {
    find(type);
    if (op < HCCL_REDUCE_SUM || op > HCCL_REDUCE_MIN)
        fail(FaultKind::InvalidArgument, "op is {}, which is none of HcclReduceOp.", static_cast<int>(op));
    switch (type) {
        case HCCL_DATA_TYPE_INT8:
            return of<int8_t>(op);
        case HCCL_DATA_TYPE_INT16:
            return of<int16_t>(op);
        case HCCL_DATA_TYPE_INT32:
            return of<int32_t>(op);
        case HCCL_DATA_TYPE_INT64:
            return of<int64_t>(op);
        case HCCL_DATA_TYPE_UINT8:
            return of<uint8_t>(op);
        case HCCL_DATA_TYPE_UINT16:
            return of<uint16_t>(op);
        case HCCL_DATA_TYPE_UINT32:
            return of<uint32_t>(op);
        case HCCL_DATA_TYPE_UINT64:
            return of<uint64_t>(op);
        case HCCL_DATA_TYPE_FP16:
            return of<c10::Half>(op);
        case HCCL_DATA_TYPE_BFP16:
            return of<c10::BFloat16>(op);
        case HCCL_DATA_TYPE_FP32:
            return of<float>(op);
        case HCCL_DATA_TYPE_FP64:
            return of<double>(op);
        default:
            fail(FaultKind::Unsupported, "No reduction of {} is offered, by hardware neither.", name_of(type));
    }
}

}  // namespace vnpu::hccl
