// Device memory.
#include <acl/acl_rt.h>

#include <algorithm>
#include <cstring>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "ascendcl/visible_devices.h"
#include "device/bytes.h"
#include "device/machine.h"
#include "device/timeline.h"

using namespace vnpu;
using acl::required;

namespace {

constexpr size_t kAlignment = 32;  // what CANN rounds sizes up to
constexpr size_t kPadding = 32;  // what torch_npu 2.13 asks for beyond a tensor's size, for kernels that read in blocks

// `padding`: bytes of the size that nothing may use. Memory that is checked ends where it was asked to.
void *allocate(size_t size, size_t padding = 0) {
    Machine &machine = Machine::instance();
    if (machine.settings().check_memory)
        return machine.current().heap().allocate(size > padding ? size - padding : size);
    return machine.current().heap().allocate(bytes::round_up(size, kAlignment, "size"));
}

}  // namespace

// Every policy (huge pages first, huge only, normal ...) gives the same memory: pages here have one size. An ONLY
// policy can therefore not fail where hardware has run out of huge pages.
aclError aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy) {
    const CallScope call(__func__);
    return VNPU_API(devPtr, size, policy) {
        acl::not_null(devPtr, "devPtr");
        *devPtr = allocate(size);
    };
}

// What torch_npu takes all its memory with.
aclError aclrtMallocAlign32(void **devPtr, size_t size, aclrtMemMallocPolicy policy) {
    const CallScope call(__func__);
    return VNPU_API(devPtr, size, policy) {
        acl::not_null(devPtr, "devPtr");
        *devPtr = allocate(size, kPadding);
    };
}

aclError aclrtMallocCached(void **devPtr, size_t size, aclrtMemMallocPolicy policy) {
    const CallScope call(__func__);
    return VNPU_API(devPtr, size, policy) {
        acl::not_null(devPtr, "devPtr");
        *devPtr = allocate(size);
    };
}

// Runs what is queued on the memory's device before the pages go back.
aclError aclrtFree(void *devPtr) {
    const CallScope call(__func__);
    return VNPU_API(devPtr) {
        acl::not_null(devPtr, "devPtr");
        Machine &machine = Machine::instance();
        const int device = machine.space().in_window(devPtr) ? -1 : machine.device_of(devPtr);
        Heap *heap = machine.heap(device);
        if (heap == nullptr) fail(FaultKind::InvalidAddress, "{} is not memory given by aclrtMalloc.", devPtr);
        machine.drain(device);
        heap->free(devPtr);
    };
}

// `free` is what an allocation could get: the chip's memory or what VNPU_HOST_LIMIT leaves, whichever is less.
aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t *free, size_t *total) {
    return VNPU_API(attr, free, total) {
        Machine &machine = Machine::instance();
        const Heap &heap = machine.current().heap();
        const uint64_t left = machine.budget().limit() - machine.budget().used();
        required(free, "free") = std::min(heap.capacity() - heap.used(), left);
        required(total, "total") = heap.capacity();
    };
}

// One entry: all memory of the device, which only this process uses.
aclError aclrtGetMemUsageInfo(int32_t deviceId, aclrtMemUsageInfo *memUsageInfo, size_t inputNum, size_t *outputNum) {
    return VNPU_API(deviceId, inputNum, outputNum) {
        acl::not_null(memUsageInfo, "memUsageInfo");
        if (inputNum == 0) fail(FaultKind::InvalidArgument, "inputNum is 0.");
        const Heap &heap = Machine::instance().device(deviceId).heap();
        aclrtMemUsageInfo answer{};
        std::strncpy(answer.name, "APP", sizeof answer.name - 1);
        answer.curMemSize = heap.used();
        answer.memPeakSize = heap.peak();
        *memUsageInfo = answer;
        required(outputNum, "outputNum") = 1;
    };
}
