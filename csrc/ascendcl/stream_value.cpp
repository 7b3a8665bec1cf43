// Writing a value to device memory and waiting for one, as tasks of a stream.
#include <acl/acl_rt.h>

#include <atomic>
#include <thread>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "ascendcl/time_limits.h"
#include "device/abort.h"
#include "device/live_memory.h"
#include "device/machine.h"

using namespace vnpu;

namespace {

uint64_t *value_at(const void *address) {
    acl::not_null(address, "devAddr");
    if (reinterpret_cast<uintptr_t>(address) % sizeof(uint64_t) != 0)
        fail(FaultKind::InvalidArgument, "devAddr is {}; it must be a multiple of 8.", address);
    return reinterpret_cast<uint64_t *>(live_range(address, sizeof(uint64_t), "devAddr"));
}

bool satisfied(uint64_t seen, uint64_t wanted, uint32_t flag) {
    switch (flag) {
        case ACL_STREAM_WAIT_VALUE_GEQ:
            return static_cast<int64_t>(seen - wanted) >= 0;
        case ACL_STREAM_WAIT_VALUE_EQ:
            return seen == wanted;
        case ACL_STREAM_WAIT_VALUE_AND:
            return (seen & wanted) != 0;
        default:
            return ~(seen | wanted) != 0;
    }
}

}  // namespace

aclError aclrtValueWrite(void *devAddr, uint64_t value, uint32_t flag, aclrtStream stream) {
    return VNPU_API(devAddr, value, flag, stream) {
        if (flag != 0) fail(FaultKind::InvalidArgument, "flag is {}; it must be 0.", flag);
        value_at(devAddr);
        Machine::instance().stream(stream)->submit(
            make_task("ValueWrite", [devAddr, value] { std::atomic_ref(*value_at(devAddr)).store(value); }));
    };
}

aclError aclrtValueWait(void *devAddr, uint64_t value, uint32_t flag, aclrtStream stream) {
    return VNPU_API(devAddr, value, flag, stream) {
        if (flag > ACL_STREAM_WAIT_VALUE_NOR)
            fail(FaultKind::InvalidArgument, "flag is {}; it is 0 (>=), 1 (==), 2 (and) or 3 (nor).", flag);
        value_at(devAddr);
        Machine::instance().stream(stream)->submit(
            make_task("ValueWait", [devAddr, value, flag, limit = acl::wait_limit()] {
                const auto start = Clock::now();
                while (!satisfied(std::atomic_ref(*value_at(devAddr)).load(), value, flag)) {
                    if (limit && Clock::now() - start > *limit)
                        fail(FaultKind::EventTimeout, "The value did not come within {} ms.", limit->count());
                    refuse_aborted();
                    std::this_thread::sleep_for(std::chrono::microseconds(50));
                }
            }));
    };
}
