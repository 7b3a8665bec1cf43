// Tensors go through a channel in their order. A handle shares the queue of its name and device with the others of that
// name, and the queue is as long as the first says.
#include "mindspore/acl_tdt_channel/channel.h"

#include <acl/error_codes/rt_error_codes.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"

using namespace vnpu;
using acl::required;

namespace {

using Items = std::vector<acltdtDataItem>;

struct Queue {
    explicit Queue(size_t most) : capacity(most) {}
    const size_t capacity;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Items> waiting;
    bool stopped = false;
};

constexpr size_t kCapacity = 128;  // where none is asked for
constexpr size_t kLongestName = 128;

struct Table {
    std::mutex mutex;
    std::map<std::pair<uint32_t, std::string>, std::weak_ptr<Queue>> queues;
};
Table &table() {
    static auto *all = new Table;  // never destroyed: channels are closed until the very end
    return *all;
}

template <class Condition>
bool waited(std::unique_lock<std::mutex> &lock, Queue &queue, int32_t milliseconds, Condition condition) {
    if (milliseconds < 0) {
        queue.changed.wait(lock, condition);
        return true;
    }
    return queue.changed.wait_for(lock, std::chrono::milliseconds(milliseconds), condition);
}

[[noreturn]] void stopped(const std::string &name) {
    throw acl::Error(ACL_ERROR_FAILURE, fmt::format("Channel {} was stopped.", name));
}

}  // namespace

struct acltdtChannelHandle {
    uint32_t device;
    std::string name;
    std::shared_ptr<Queue> queue;
};

acltdtChannelHandle *acltdtCreateChannelWithCapacity(uint32_t deviceId, const char *name, size_t capacity) {
    return VNPU_API(deviceId, name, capacity) {
        acl::not_null(name, "name");
        const std::string called = name;
        if (called.size() >= kLongestName)
            fail(FaultKind::InvalidArgument, "name has {} characters, allowed are {}.", called.size(),
                 kLongestName - 1);
        if (capacity == 0) fail(FaultKind::InvalidArgument, "capacity is 0; a channel holds one dataset at least.");
        const std::lock_guard lock(table().mutex);
        std::weak_ptr<Queue> &known = table().queues[{deviceId, called}];
        std::shared_ptr<Queue> queue = known.lock();
        if (queue == nullptr) known = queue = std::make_shared<Queue>(capacity);
        return new acltdtChannelHandle{deviceId, called, std::move(queue)};
    };
}

acltdtChannelHandle *acltdtCreateChannel(uint32_t deviceId, const char *name) {
    return acltdtCreateChannelWithCapacity(deviceId, name, kCapacity);
}

aclError acltdtStopChannel(acltdtChannelHandle *handle) {
    return VNPU_API(handle) {
        Queue &queue = *required(handle, "handle").queue;
        const std::lock_guard lock(queue.mutex);
        queue.stopped = true;
        queue.changed.notify_all();
    };
}

aclError acltdtDestroyChannel(acltdtChannelHandle *handle) {
    return VNPU_API(handle) { delete &required(handle, "handle"); };
}

aclError acltdtCleanChannel(acltdtChannelHandle *handle) {
    return VNPU_API(handle) {
        Queue &queue = *required(handle, "handle").queue;
        const std::lock_guard lock(queue.mutex);
        queue.waiting.clear();
        queue.changed.notify_all();
    };
}

aclError acltdtQueryChannelSize(const acltdtChannelHandle *handle, size_t *size) {
    return VNPU_API(handle, size) {
        Queue &queue = *required(handle, "handle").queue;
        const std::lock_guard lock(queue.mutex);
        required(size, "size") = queue.waiting.size();
    };
}

// `timeout`: milliseconds; -1 waits until there is room.
aclError acltdtSendTensor(const acltdtChannelHandle *handle, const acltdtDataset *dataset, int32_t timeout) {
    return VNPU_API(handle, dataset, timeout) {
        Queue &queue = *required(handle, "handle").queue;
        Items sent;
        for (const acltdtDataItem *item : required(dataset, "dataset").items) sent.push_back(*item);
        std::unique_lock lock(queue.mutex);
        if (!waited(lock, queue, timeout, [&] { return queue.stopped || queue.waiting.size() < queue.capacity; }))
            throw acl::Error(ACL_ERROR_RT_QUEUE_FULL,
                             fmt::format("Channel {} holds {} datasets, all it can.", handle->name, queue.capacity));
        if (queue.stopped) stopped(handle->name);
        queue.waiting.push_back(std::move(sent));
        queue.changed.notify_all();
    };
}

// `timeout`: milliseconds; -1 waits until there is a dataset.
aclError acltdtReceiveTensor(const acltdtChannelHandle *handle, acltdtDataset *dataset, int32_t timeout) {
    return VNPU_API(handle, dataset, timeout) {
        Queue &queue = *required(handle, "handle").queue;
        acltdtDataset &into = required(dataset, "dataset");
        if (!into.items.empty() && into.received.empty())
            fail(FaultKind::InvalidArgument, "dataset holds {} items to send; make another to receive.",
                 into.items.size());
        std::unique_lock lock(queue.mutex);
        if (!waited(lock, queue, timeout, [&] { return queue.stopped || !queue.waiting.empty(); }))
            throw acl::Error(ACL_ERROR_RT_QUEUE_EMPTY, fmt::format("Nothing is in channel {}.", handle->name));
        if (queue.waiting.empty()) stopped(handle->name);
        into.items.clear();
        into.received.clear();
        into.name = handle->name;
        for (acltdtDataItem &item : queue.waiting.front()) {
            into.received.push_back(std::make_unique<acltdtDataItem>(std::move(item)));
            into.items.push_back(into.received.back().get());
        }
        queue.waiting.pop_front();
        queue.changed.notify_all();
    };
}
