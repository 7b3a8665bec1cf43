// Contexts. Each device has one of its own (the primary one, chosen by aclrtSetDevice); aclrtCreateContext makes more.
// All a context does here is to name a device: streams and memory belong to the device.
#include <acl/acl_rt.h>

#include <array>
#include <mutex>
#include <unordered_map>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "device/machine.h"

using namespace vnpu;
using acl::required;

namespace {

struct Context {
    int device;
};

class Contexts {
  public:
    Context *primary(int device) { return &primary_[static_cast<size_t>(device)]; }

    Context *create(int device) {
        auto made = std::make_unique<Context>(device);
        const std::lock_guard lock(mutex_);
        Context *handle = made.get();
        created_.emplace(handle, std::move(made));
        return handle;
    }

    void destroy(aclrtContext handle) {
        const std::lock_guard lock(mutex_);
        if (created_.erase(handle) == 0)
            fail(FaultKind::InvalidHandle, "{} is not a context made by aclrtCreateContext.", handle);
    }

    int device(aclrtContext handle) {
        const auto *context = static_cast<Context *>(handle);
        if (context >= primary_.data() && context < primary_.data() + primary_.size())
            return static_cast<int>(context - primary_.data());
        const std::lock_guard lock(mutex_);
        const auto it = created_.find(handle);
        if (it == created_.end()) fail(FaultKind::InvalidHandle, "{} is not a live context.", handle);
        return it->second->device;
    }

  private:
    std::array<Context, 64> primary_{};  // VNPU_DEVICES is at most 64
    std::mutex mutex_;
    std::unordered_map<void *, std::unique_ptr<Context>> created_;
};

Contexts &contexts() {
    static auto *all = new Contexts;  // never destroyed: other libraries call in while the process ends
    return *all;
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
        acl::present(context, "context");
        Machine::instance().device(deviceId);
        *context = contexts().create(deviceId);
        choose(*context, deviceId);
    };
}

aclError aclrtDestroyContext(aclrtContext context) {
    return VNPU_API(context) {
        acl::present(context, "context");
        contexts().destroy(context);
        if (chosen == context) chosen = nullptr;
    };
}

aclError aclrtSetCurrentContext(aclrtContext context) {
    return VNPU_API(context) {
        acl::present(context, "context");
        choose(context, contexts().device(context));
    };
}

aclError aclrtGetCurrentContext(aclrtContext *context) {
    return VNPU_API(context) {
        const int device = Machine::instance().current().index();
        required(context, "context") =
            chosen != nullptr && chosen_device == device ? chosen : contexts().primary(device);
    };
}
