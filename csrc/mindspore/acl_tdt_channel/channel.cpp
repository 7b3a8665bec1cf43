// Tensors go through a channel in their order. A handle shares the channel of its name and device with the others of
// that name, and with kernels (opapi/movement/aclop_channels.cpp); it holds as much as the first says.
#include "mindspore/acl_tdt_channel/channel.h"

#include <acl/error_codes/rt_error_codes.h>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"

using namespace vnpu;
using acl::required;

namespace {

constexpr size_t kCapacity = 128;  // where none is asked for
constexpr size_t kLongestName = 128;

// `milliseconds`: -1 is for ever.
Deadline in(int32_t milliseconds) {
    if (milliseconds < 0) return std::nullopt;
    return Clock::now() + std::chrono::milliseconds(milliseconds);
}

[[noreturn]] void stopped(const std::string &name) {
    throw acl::Error(ACL_ERROR_FAILURE, fmt::format("Channel {} was stopped.", name));
}

}  // namespace

struct acltdtChannelHandle {
    explicit acltdtChannelHandle(std::shared_ptr<Channel> opened) : channel(std::move(opened)) {}
    acltdtChannelHandle(const acltdtChannelHandle &) = delete;
    acltdtChannelHandle &operator=(const acltdtChannelHandle &) = delete;
    ~acltdtChannelHandle() { close_channel(channel); }
    const std::shared_ptr<Channel> channel;
};

acltdtChannelHandle *acltdtCreateChannelWithCapacity(uint32_t deviceId, const char *name, size_t capacity) {
    return VNPU_API(deviceId, name, capacity) {
        acl::not_null(name, "name");
        const std::string called = name;
        if (called.size() >= kLongestName)
            fail(FaultKind::InvalidArgument, "name has {} characters, allowed are {}.", called.size(),
                 kLongestName - 1);
        if (capacity == 0) fail(FaultKind::InvalidArgument, "capacity is 0; a channel holds one dataset at least.");
        return new acltdtChannelHandle(open_channel(static_cast<int>(deviceId), called, capacity));
    };
}

acltdtChannelHandle *acltdtCreateChannel(uint32_t deviceId, const char *name) {
    return acltdtCreateChannelWithCapacity(deviceId, name, kCapacity);
}

aclError acltdtStopChannel(acltdtChannelHandle *handle) {
    return VNPU_API(handle) { required(handle, "handle").channel->stop(); };
}

aclError acltdtDestroyChannel(acltdtChannelHandle *handle) {
    return VNPU_API(handle) { delete &required(handle, "handle"); };
}

aclError acltdtCleanChannel(acltdtChannelHandle *handle) {
    return VNPU_API(handle) { required(handle, "handle").channel->clear(); };
}

aclError acltdtQueryChannelSize(const acltdtChannelHandle *handle, size_t *size) {
    return VNPU_API(handle, size) { required(size, "size") = required(handle, "handle").channel->size(); };
}

// `timeout`: milliseconds; -1 waits until there is room.
aclError acltdtSendTensor(const acltdtChannelHandle *handle, const acltdtDataset *dataset, int32_t timeout) {
    return VNPU_API(handle, dataset, timeout) {
        Channel &channel = *required(handle, "handle").channel;
        Shipment sent;
        for (const acltdtDataItem *item : required(dataset, "dataset").items) sent.parcels.push_back(*item);
        const Channel::Passed passed = channel.put(std::move(sent), in(timeout));
        if (passed == Channel::Passed::Late)
            throw acl::Error(ACL_ERROR_RT_QUEUE_FULL, fmt::format("Channel {} holds {} datasets, all it can.",
                                                                  channel.name(), channel.capacity()));
        if (passed == Channel::Passed::Stopped) stopped(channel.name());
    };
}

// `timeout`: milliseconds; -1 waits until there is a dataset.
aclError acltdtReceiveTensor(const acltdtChannelHandle *handle, acltdtDataset *dataset, int32_t timeout) {
    return VNPU_API(handle, dataset, timeout) {
        Channel &channel = *required(handle, "handle").channel;
        acltdtDataset &into = required(dataset, "dataset");
        if (!into.items.empty() && into.received.empty())
            fail(FaultKind::InvalidArgument, "dataset holds {} items to send; make another to receive.",
                 into.items.size());
        Shipment come;
        const Channel::Passed passed = channel.take(come, in(timeout));
        if (passed == Channel::Passed::Late)
            throw acl::Error(ACL_ERROR_RT_QUEUE_EMPTY, fmt::format("Nothing is in channel {}.", channel.name()));
        if (passed == Channel::Passed::Stopped) stopped(channel.name());
        into.items.clear();
        into.received.clear();
        into.name = std::move(come.name);
        for (Parcel &parcel : come.parcels) {
            into.received.push_back(std::make_unique<acltdtDataItem>(acltdtDataItem{std::move(parcel)}));
            into.items.push_back(into.received.back().get());
        }
    };
}
