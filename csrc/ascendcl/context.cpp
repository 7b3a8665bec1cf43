// Contexts. Each device has one of its own (the primary one, chosen by aclrtSetDevice); aclrtCreateContext makes more.
// All a context does here is to name a device: streams and memory belong to the device.
#include <acl/acl_rt.h>

#include <array>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "device/machine.h"

using namespace vnpu;
using acl::required;

namespace {

struct Context {
    int device;
};

std::array<Context, 64> primary;  // VNPU_DEVICES is at most 64
Handles<Context> created("context");

int device_of(aclrtContext handle) {
    const auto *context = static_cast<Context *>(handle);
    if (context >= primary.data() && context < primary.data() + primary.size())
        return static_cast<int>(context - primary.data());
    return created.find(handle)->device;
}

// The context this thread chose itself; it counts while the thread's device is still that context's.
thread_local aclrtContext chosen = nullptr;
thread_local int chosen_device = -1;

void choose(aclrtContext context, int device) {
    Machine::instance().set_current(device);
    chosen = context;
    chosen_device = device;
}

}  // namespace

aclError aclrtCreateContext(aclrtContext *context, int32_t deviceId) {
    return VNPU_API(context, deviceId) {
        acl::not_null(context, "context");
        Machine::instance().device(deviceId);
        *context = created.add(std::make_shared<Context>(deviceId));
        choose(*context, deviceId);
    };
}

aclError aclrtDestroyContext(aclrtContext context) {
    return VNPU_API(context) {
        acl::not_null(context, "context");
        created.remove(context);
        if (chosen == context) chosen = nullptr;
    };
}

aclError aclrtSetCurrentContext(aclrtContext context) {
    return VNPU_API(context) {
        acl::not_null(context, "context");
        choose(context, device_of(context));
    };
}

aclError aclrtGetCurrentContext(aclrtContext *context) {
    return VNPU_API(context) {
        const int device = Machine::instance().current().index();
        required(context, "context") =
            chosen != nullptr && chosen_device == device ? chosen : &primary[static_cast<size_t>(device)];
    };
}
