#include "calls.h"

namespace random_calls {
namespace {

// The same arguments for all functions that copy.
template <class Function, class... More>
int with_copy(Draw &draw, Function function, More... more) {
    const Draw::Copy copy = draw.copy();
    return function(copy.dst, copy.room, copy.src, copy.count, copy.kind, more...);
}

struct Batch {
    std::array<void *, 4> dsts, srcs;
    std::array<size_t, 4> rooms, counts;
    size_t number;

    explicit Batch(Draw &draw) : number(draw.below(5)) {
        for (size_t i = 0; i < dsts.size(); ++i) {
            const Draw::Copy copy = draw.copy();
            dsts[i] = copy.dst, rooms[i] = copy.room, srcs[i] = copy.src, counts[i] = copy.count;
        }
    }
};

template <class T>
T *or_null(Draw &draw, T *array) {
    return draw.once_in(16) ? nullptr : array;
}

int fill(Draw &draw, bool async) {
    Draw::Copy to = draw.copy();
    const int32_t value = draw.number();
    if (!async) return aclrtMemset(to.dst, to.room, value, to.count);
    return aclrtMemsetAsync(to.dst, to.room, value, to.count, draw.stream());
}

int allocate(Draw &draw, aclError (*function)(void **, size_t, aclrtMemMallocPolicy)) {
    const size_t size = draw.some_size();
    return function(draw.memory_made(size), size, draw.choice<aclrtMemMallocPolicy>(6));
}

// The one wait of a stream that its own program has to end; here the limit does (aclrtSetOpWaitTimeout).
int wait_for_value(Draw &draw) {
    const bool seldom = draw.once_in(64);
    return aclrtValueWait(draw.device_memory(), seldom ? draw.random()() : 0,
                          seldom ? static_cast<uint32_t>(draw.below(5)) : 0, draw.stream());
}

aclrtPhysicalMemProp property(Draw &draw) {
    aclrtPhysicalMemProp value{};
    value.location.type = draw.once_in(8) ? ACL_MEM_LOCATION_TYPE_HOST : ACL_MEM_LOCATION_TYPE_DEVICE;
    value.location.id = static_cast<uint32_t>(draw.device());
    return value;
}

int reserve(Draw &draw) {
    const size_t size = draw.granules();
    void *expected = draw.once_in(8) ? draw.anything() : nullptr;
    return aclrtReserveMemAddress(draw.reserved_made(size), size, draw.once_in(4) ? draw.size() : 0, expected, 0);
}

}  // namespace

std::vector<Call> memory_calls() {
    return {
        {"aclrtMalloc", [](Draw &draw) -> int { return allocate(draw, aclrtMalloc); }, 64},
        {"aclrtMallocAlign32", [](Draw &draw) -> int { return allocate(draw, aclrtMallocAlign32); }},
        {"aclrtMallocCached", [](Draw &draw) -> int { return allocate(draw, aclrtMallocCached); }},
        CALL(aclrtFree, draw.anything()),
        CALL(aclrtGetMemInfo, draw.choice<aclrtMemAttr>(6), draw.out<size_t>(), draw.out<size_t>()),
        CALL(aclrtGetMemUsageInfo, draw.device(), draw.out<aclrtMemUsageInfo>(), draw.below(2), draw.out<size_t>()),
        CALL(aclrtGetMemUceInfo, draw.device(), draw.out<aclrtMemUceInfo>(), draw.below(2), draw.out<size_t>()),
        CALL(aclrtPointerGetAttributes, draw.anything(), draw.out<aclrtPtrAttributes>()),

        CALL(aclrtMallocHost, draw.pinned_made(), draw.some_size()),
        CALL(aclrtMallocHostWithCfg, draw.pinned_made(), draw.some_size(), nullptr),
        CALL(aclrtFreeHost, draw.once_in(2) ? draw.anything() : draw.pools().pinned.any(draw.random()).at),
        {"aclrtHostRegister",
         [](Draw &draw) -> int {
             const Piece pages = draw.pages();
             return aclrtHostRegister(pages.at, pages.size, draw.choice<aclrtHostRegisterType>(2), draw.out<void *>());
         }},
        CALL(aclrtHostGetDevicePointer, draw.once_in(2) ? draw.pages().at : draw.host(), draw.out<void *>(),
             draw.choice<uint32_t>(2)),
        CALL(aclrtHostMemMapCapabilities, draw.choice<uint32_t>(10), draw.choice<aclrtHacType>(12),
             draw.out<aclrtHostMemMapCapability>()),
        {"aclrtHostRegisterV2",
         [](Draw &draw) -> int {
             static constexpr std::array<uint32_t, 6> kFlags = {0, 1, 2, 0x10000000, 0x10000002, UINT32_MAX};
             const uint32_t flag = kFlags[draw.below(kFlags.size())];
             if ((flag & ACL_HOST_REG_MAPPED) == 0) return aclrtHostRegisterV2(draw.anything(), draw.some_size(), flag);
             const Piece pages = draw.pages();
             return aclrtHostRegisterV2(pages.at, pages.size, flag);
         }},
        CALL(aclrtHostUnregister, draw.once_in(2) ? draw.anything() : draw.pages().at),

        {"aclrtMemcpy", [](Draw &draw) -> int { return with_copy(draw, aclrtMemcpy); }, 48},
        {"aclrtMemcpyAsync", [](Draw &draw) -> int { return with_copy(draw, aclrtMemcpyAsync, draw.stream()); }, 48},
        {"aclrtMemcpyAsyncWithCondition",
         [](Draw &draw) -> int { return with_copy(draw, aclrtMemcpyAsyncWithCondition, draw.stream()); }},
        {"aclrtMemcpyBatch",
         [](Draw &draw) -> int {
             Batch batch(draw);
             return aclrtMemcpyBatch(or_null(draw, batch.dsts.data()), or_null(draw, batch.rooms.data()),
                                     or_null(draw, batch.srcs.data()), or_null(draw, batch.counts.data()), batch.number,
                                     nullptr, nullptr, 0, draw.out<size_t>());
         }},
        {"aclrtMemcpyBatchAsync",
         [](Draw &draw) -> int {
             Batch batch(draw);
             return aclrtMemcpyBatchAsync(or_null(draw, batch.dsts.data()), or_null(draw, batch.rooms.data()),
                                          or_null(draw, batch.srcs.data()), or_null(draw, batch.counts.data()),
                                          batch.number, nullptr, nullptr, 0, draw.out<size_t>(), draw.stream());
         }},
        {"aclrtMemset", [](Draw &draw) -> int { return fill(draw, false); }},
        {"aclrtMemsetAsync", [](Draw &draw) -> int { return fill(draw, true); }},
        CALL(aclrtCmoAsync, draw.device_memory(), draw.some_size(), draw.choice<aclrtCmoType>(4), draw.stream()),
        CALL(aclrtValueWrite, draw.device_memory(), draw.below(3), static_cast<uint32_t>(draw.below(8) / 7),
             draw.stream()),
        {"aclrtValueWait", wait_for_value},

        {"aclrtReserveMemAddress", reserve},
        CALL(aclrtReleaseMemAddress, draw.anything()),
        CALL(aclrtMallocPhysical, draw.physical_made(), draw.granules(), draw.given(property(draw)), 0),
        CALL(aclrtFreePhysical, draw.physical()),
        {"aclrtMapMem",
         [](Draw &draw) -> int {
             void *at = draw.once_in(4) ? draw.anything() : draw.pools().reserved.any(draw.random()).at;
             return aclrtMapMem(at, draw.granules(), draw.once_in(4) ? draw.granules() : 0, draw.physical(), 0);
         },
         48},
        CALL(aclrtUnmapMem, draw.once_in(2) ? draw.anything() : draw.pools().reserved.any(draw.random()).at),
        CALL(aclrtMemGetAllocationGranularity, draw.given(property(draw)), draw.choice<aclrtMemGranularityOptions>(2),
             draw.out<size_t>()),
    };
}

}  // namespace random_calls
