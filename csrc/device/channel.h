// Channels: queues of tensors by name, between the program and the kernels of a device. Either end puts and takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "device/doorbell.h"

namespace vnpu {

// A tensor on its way; `kind` and `dtype` are numbers of whoever sends and receives.
struct Parcel {
    int32_t kind = -1, dtype = -1;
    std::vector<int64_t> sizes;
    std::vector<std::byte> bytes;
};

// What travels at once.
struct Shipment {
    std::string name;  // which the sender has given it
    std::vector<Parcel> parcels;
};

class Channel {
  public:
    enum class Passed { Yes, Late, Stopped };

    Channel(int device, std::string name, size_t capacity);
    // Waits until there is room; leaves what it could not put.
    Passed put(Shipment &&shipment, Deadline deadline);
    // Waits until there is one; the first that was put. A stopped channel gives what it has.
    Passed take(Shipment &into, Deadline deadline);
    void stop();
    void clear();
    size_t size() const;
    size_t capacity() const;
    int device() const noexcept { return device_; }
    const std::string &name() const noexcept { return name_; }

  private:
    friend std::shared_ptr<Channel> open_channel(int device, const std::string &name, size_t capacity);
    friend void close_channel(const std::shared_ptr<Channel> &channel);

    const int device_;
    const std::string name_;
    mutable std::mutex mutex_;
    size_t capacity_;  // 0: the program has not opened it yet, and nothing has room in it
    size_t opened_ = 0;
    std::deque<Shipment> waiting_;
    bool stopped_ = false;
    Doorbell changed_;
};

// The program's end of the device's channel of that name, which is made at need. The first who opens says how much it
// holds; the last who closes stops it, and the name is free again.
std::shared_ptr<Channel> open_channel(int device, const std::string &name, size_t capacity);
void close_channel(const std::shared_ptr<Channel> &channel);
// For kernels: makes the channel's name known, so that they wait until the program opens it.
void announce_channel(int device, const std::string &name);
// For kernels. Fault DeviceCpuFailure where none of that name is open or announced.
std::shared_ptr<Channel> find_channel(int device, const std::string &name);
// put() and take() on a stream's worker: they end, too, when the device's tasks are aborted (device/abort.h). Fault
// DeviceCpuFailure where the channel was stopped, and behind the deadline.
void put_from_kernel(Channel &channel, Shipment shipment, Deadline deadline);
Shipment take_in_kernel(Channel &channel, Deadline deadline);

}  // namespace vnpu
