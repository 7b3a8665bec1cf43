// Copies and fills. What is checked: the direction against what the pointers are, and that both ranges are live memory
// for their whole length. The check runs in the caller's thread, so an error names the call that is wrong.
#include <acl/acl_rt.h>

#include <cstring>
#include <memory>
#include <vector>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "ascendcl/graph.h"
#include "ascendcl/host_memory.h"
#include "device/abandoned.h"
#include "device/bytes.h"
#include "device/clock.h"
#include "device/dry.h"
#include "device/live_memory.h"
#include "device/machine.h"
#include "device/perform.h"
#include "device/timeline.h"

using namespace vnpu;

namespace {

// Kernel's view of a checked range: host memory as it is, device memory through its alias.
std::byte *view(const void *address, size_t size, bool device, const char *name) {
    if (device) return live_range(address, size, name);
    host_range(address, size, name);
    return static_cast<std::byte *>(const_cast<void *>(address));
}

struct Direction {
    bool from_device, to_device;
};

const char *place(bool device) { return device ? "device" : "host"; }

Direction direction(void *dst, const void *src, aclrtMemcpyKind kind) {
    const Machine &machine = Machine::instance();
    const Direction actual{machine.on_device(src), machine.on_device(dst)};
    Direction asked = actual;
    switch (kind) {
        case ACL_MEMCPY_HOST_TO_HOST:
            asked = {false, false};
            break;
        case ACL_MEMCPY_HOST_TO_DEVICE:
        case ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE:
            asked = {false, true};
            break;
        case ACL_MEMCPY_DEVICE_TO_HOST:
            asked = {true, false};
            break;
        case ACL_MEMCPY_DEVICE_TO_DEVICE:
        case ACL_MEMCPY_INNER_DEVICE_TO_DEVICE:
        case ACL_MEMCPY_INTER_DEVICE_TO_DEVICE:
            asked = {true, true};
            break;
        case ACL_MEMCPY_DEFAULT:
            break;
        default:
            fail(FaultKind::InvalidArgument, "kind is {}, which is none of aclrtMemcpyKind.", static_cast<int>(kind));
    }
    if (asked.from_device != actual.from_device || asked.to_device != actual.to_device)
        fail(FaultKind::WrongDirection,
             "The copy is said to go from {} to {}, but src ({}) is {} and dst ({}) {} memory.",
             place(asked.from_device), place(asked.to_device), src, place(actual.from_device), dst,
             place(actual.to_device));
    return actual;
}

struct Copy {
    std::byte *to;
    const std::byte *from;
    size_t count;
    Direction direction;
    // Memory that a copy of another device's stream, or of a graph, is given may have been freed since it was checked.
    void run() const {
        if (direction.to_device) still_live(to, count, "dst");
        if (direction.from_device) still_live(from, count, "src");
        if (dry::on()) [[unlikely]]
            dry::copy(to, from, count, direction.to_device, direction.from_device);
        else
            std::memmove(to, from, count);
    }
    // In the caller's own thread, where no stream tells that what is at `src` was never computed.
    void run_now(const void *src) const {
        if (direction.from_device && !direction.to_device) refuse_abandoned(Machine::instance().device_of(src));
        run();
        take_time();
    }
    // The program has waited for it.
    void take_time() const {
        if (observing()) [[unlikely]]
            clocks::waited(clocks::host() + clocks::duration(*Machine::instance().settings().chip, work()));
    }
    // Within the device's memory a read and a write, otherwise over PCIe.
    Work work() const noexcept {
        const auto bytes = static_cast<double>(count);
        const bool within = direction.to_device && direction.from_device;
        return {within ? Unit::Stream : Unit::HostCopy, 0, within ? 2 * bytes : bytes};
    }
};

Copy check(void *dst, size_t room, const void *src, size_t count, aclrtMemcpyKind kind) {
    acl::not_null(dst, "dst");
    acl::not_null(src, "src");
    if (count > room)
        fail(FaultKind::OutOfBounds, "{} bytes were to be copied to dst, which has room for {} (destMax).", count,
             room);
    const Direction way = direction(dst, src, kind);
    return {view(dst, count, way.to_device, "dst"), view(src, count, way.from_device, "src"), count, way};
}

// `finished`: from and to pageable memory the copy is over when the call returns. Otherwise pageable memory is read
// before the call returns (torch_npu passes it, with non_blocking=True, and may free it at once), and written later.
void enqueue(const Copy &copy, Stream &stream, bool finished) {
    if (!copy.direction.from_device && !copy.direction.to_device)
        fail(FaultKind::Unsupported, "An asynchronous copy from host to host is not offered, by hardware neither.");
    const bool from_pageable = !copy.direction.from_device && !acl::pinned(copy.from, copy.count);
    const bool to_pageable = !copy.direction.to_device && !acl::pinned(copy.to, copy.count);
    if (from_pageable || to_pageable) acl::outside_capture(stream, "A copy from or to pageable memory");
    if (finished && (from_pageable || to_pageable)) {
        stream.synchronize();
        copy.run();
        copy.take_time();
    } else if (!from_pageable || (dry::on() && copy.count > dry::kCarried)) {
        stream.submit(make_task("MemcpyAsync", [copy] { copy.run(); }, false, copy.work()));
    } else if (stream.idle() && !observing()) {
        copy.run();  // nothing is before it, so it need not wait, nor its bytes be kept
    } else {
        auto staged = std::make_unique_for_overwrite<std::byte[]>(copy.count);
        std::memcpy(staged.get(), copy.from, copy.count);
        stream.submit(make_task(
            "MemcpyAsync",
            [copy, staged = std::move(staged)] { Copy{copy.to, staged.get(), copy.count, copy.direction}.run(); },
            false, copy.work()));
    }
}

std::byte *check_fill(void *address, size_t room, size_t count) {
    acl::not_null(address, "devPtr");
    if (count > room)
        fail(FaultKind::OutOfBounds, "{} bytes were to be set at devPtr, which has room for {} (maxCount).", count,
             room);
    return view(address, count, Machine::instance().on_device(address), "devPtr");
}

void fill(std::byte *at, int32_t value, size_t count) {
    if (dry::on() && Machine::instance().space().contains(Machine::instance().space().unalias(at))) [[unlikely]]
        return dry::fill(at, value, count);
    std::memset(at, value, count);
}

struct Batch {
    void **dsts;
    size_t *rooms;
    void **srcs;
    size_t *sizes;
    size_t count;
    size_t *fail_index;

    // All copies, checked before the first runs. On failure *fail_index says which one is wrong.
    std::vector<Copy> check_all() const {
        host_range(dsts, bytes::product(count, sizeof *dsts, "numBatches"), "dsts");
        acl::not_null(dsts, "dsts");
        acl::not_null(rooms, "destMaxs");
        acl::not_null(srcs, "srcs");
        acl::not_null(sizes, "sizes");
        if (fail_index != nullptr) *fail_index = SIZE_MAX;
        std::vector<Copy> copies;
        for (size_t i = 0; i < count; ++i) {
            try {
                copies.push_back(check(dsts[i], rooms[i], srcs[i], sizes[i], ACL_MEMCPY_DEFAULT));
            } catch (const Fault &fault) {
                if (fail_index != nullptr) *fail_index = i;
                fail(fault.kind(), "Copy {} of {}: {}", i, count, fault.what());
            }
        }
        return copies;
    }
};

}  // namespace

aclError aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind) {
    const CallScope call(__func__);
    return VNPU_API(dst, destMax, src, count, kind) { check(dst, destMax, src, count, kind).run_now(src); };
}

aclError aclrtMemcpyAsync(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind,
                          aclrtStream stream) {
    const CallScope call(__func__);
    return VNPU_API(dst, destMax, src, count, kind, stream) {
        enqueue(check(dst, destMax, src, count, kind), *Machine::instance().stream(stream), false);
    };
}

aclError aclrtMemcpyAsyncWithCondition(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind,
                                       aclrtStream stream) {
    return VNPU_API(dst, destMax, src, count, kind, stream) {
        enqueue(check(dst, destMax, src, count, kind), *Machine::instance().stream(stream), true);
    };
}

// Which way each copy goes is told by its pointers; the attributes could only repeat it.
aclError aclrtMemcpyBatch(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes, size_t numBatches,
                          aclrtMemcpyBatchAttr *, size_t *, size_t, size_t *failIndex) {
    return VNPU_API(numBatches, failIndex) {
        for (const Copy &copy : Batch{dsts, destMaxs, srcs, sizes, numBatches, failIndex}.check_all()) copy.run();
    };
}

aclError aclrtMemcpyBatchAsync(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes, size_t numBatches,
                               aclrtMemcpyBatchAttr *, size_t *, size_t, size_t *failIndex, aclrtStream stream) {
    return VNPU_API(numBatches, failIndex, stream) {
        const auto queue = Machine::instance().stream(stream);
        for (const Copy &copy : Batch{dsts, destMaxs, srcs, sizes, numBatches, failIndex}.check_all())
            enqueue(copy, *queue, false);
    };
}

aclError aclrtMemset(void *devPtr, size_t maxCount, int32_t value, size_t count) {
    const CallScope call(__func__);
    return VNPU_API(devPtr, maxCount, value, count) { fill(check_fill(devPtr, maxCount, count), value, count); };
}

aclError aclrtMemsetAsync(void *devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream) {
    const CallScope call(__func__);
    return VNPU_API(devPtr, maxCount, value, count, stream) {
        check_fill(devPtr, maxCount, count);
        Machine::instance().stream(stream)->submit(
            make_task("MemsetAsync",
                      [devPtr, maxCount, value, count] { fill(check_fill(devPtr, maxCount, count), value, count); },
                      false, {Unit::Stream, 0, static_cast<double>(count)}));
    };
}

// The virtual NPU models no caches: a prefetch warms this machine's, and what makes caches and memory agree has nothing
// to do. The range is checked all the same.
aclError aclrtCmoAsync(void *src, size_t size, aclrtCmoType cmoType, aclrtStream stream) {
    return VNPU_API(src, size, cmoType, stream) {
        acl::not_null(src, "src");
        live_range(src, size, "src");
        Machine::instance().stream(stream)->submit(make_task("CmoAsync", [src, size, cmoType] {
            const std::byte *from = live_range(src, size, "src");
            if (cmoType != ACL_RT_CMO_TYPE_PREFETCH) return;
            for (size_t at = 0; at < size; at += 64) __builtin_prefetch(from + at);
        }));
    };
}
