#include "device/channel.h"

#include <algorithm>
#include <map>
#include <utility>

#include "device/abort.h"
#include "device/fault.h"

namespace vnpu {
namespace {

struct Table {
    std::mutex mutex;
    std::map<std::pair<int, std::string>, std::shared_ptr<Channel>> channels;
};
Table &table() {
    static auto *all = new Table;  // never destroyed: channels are closed until the very end
    return *all;
}

// Looks for an abort now and then.
constexpr std::chrono::milliseconds kTurn{50};

template <class Try>
void until_passed(const Channel &channel, Deadline deadline, const char *what, Try attempt) {
    for (;;) {
        const Clock::time_point turn = Clock::now() + kTurn;
        const Channel::Passed passed = attempt(deadline ? std::min(*deadline, turn) : turn);
        if (passed == Channel::Passed::Yes) return;
        if (passed == Channel::Passed::Stopped)
            fail(FaultKind::DeviceCpuFailure, "Channel {} of device {} was stopped while a kernel waited to {} it.",
                 channel.name(), channel.device(), what);
        if (deadline && Clock::now() >= *deadline)
            fail(FaultKind::DeviceCpuFailure, "A kernel waited too long to {} channel {} of device {}.", what,
                 channel.name(), channel.device());
        refuse_aborted();
    }
}

}  // namespace

Channel::Channel(int device, std::string name, size_t capacity)
    : device_(device), name_(std::move(name)), capacity_(capacity) {}

Channel::Passed Channel::put(Shipment &&shipment, Deadline deadline) {
    Passed passed = Passed::Late;
    changed_.wait(
        [&] {
            const std::lock_guard lock(mutex_);
            if (stopped_) {
                passed = Passed::Stopped;
            } else if (waiting_.size() < capacity_) {
                waiting_.push_back(std::move(shipment));
                passed = Passed::Yes;
            }
            return passed != Passed::Late;
        },
        deadline);
    if (passed == Passed::Yes) changed_.ring();
    return passed;
}

Channel::Passed Channel::take(Shipment &into, Deadline deadline) {
    Passed passed = Passed::Late;
    changed_.wait(
        [&] {
            const std::lock_guard lock(mutex_);
            if (!waiting_.empty()) {
                into = std::move(waiting_.front());
                waiting_.pop_front();
                passed = Passed::Yes;
            } else if (stopped_) {
                passed = Passed::Stopped;
            }
            return passed != Passed::Late;
        },
        deadline);
    if (passed == Passed::Yes) changed_.ring();
    return passed;
}

void Channel::stop() {
    {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
    }
    changed_.ring();
}

void Channel::clear() {
    {
        const std::lock_guard lock(mutex_);
        waiting_.clear();
    }
    changed_.ring();
}

size_t Channel::size() const {
    const std::lock_guard lock(mutex_);
    return waiting_.size();
}

size_t Channel::capacity() const {
    const std::lock_guard lock(mutex_);
    return capacity_;
}

std::shared_ptr<Channel> open_channel(int device, const std::string &name, size_t capacity) {
    const std::lock_guard lock(table().mutex);
    std::shared_ptr<Channel> &channel = table().channels[{device, name}];
    if (channel == nullptr) channel = std::make_shared<Channel>(device, name, capacity);
    {
        const std::lock_guard inside(channel->mutex_);
        if (channel->capacity_ == 0) channel->capacity_ = capacity;
        ++channel->opened_;
    }
    channel->changed_.ring();
    return channel;
}

void close_channel(const std::shared_ptr<Channel> &channel) {
    {
        const std::lock_guard lock(table().mutex);
        const std::lock_guard inside(channel->mutex_);
        if (--channel->opened_ > 0) return;
        table().channels.erase({channel->device_, channel->name_});
    }
    channel->stop();
}

void announce_channel(int device, const std::string &name) {
    const std::lock_guard lock(table().mutex);
    std::shared_ptr<Channel> &channel = table().channels[{device, name}];
    if (channel == nullptr) channel = std::make_shared<Channel>(device, name, 0);
}

std::shared_ptr<Channel> find_channel(int device, const std::string &name) {
    const std::lock_guard lock(table().mutex);
    const auto found = table().channels.find({device, name});
    if (found == table().channels.end())
        fail(FaultKind::DeviceCpuFailure, "no channel \"{}\" is open on device {}", name, device);
    return found->second;
}

void put_from_kernel(Channel &channel, Shipment shipment, Deadline deadline) {
    until_passed(channel, deadline, "put into",
                 [&](Clock::time_point turn) { return channel.put(std::move(shipment), turn); });
}

Shipment take_in_kernel(Channel &channel, Deadline deadline) {
    Shipment taken;
    until_passed(channel, deadline, "take from", [&](Clock::time_point turn) { return channel.take(taken, turn); });
    return taken;
}

}  // namespace vnpu
