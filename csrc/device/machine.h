// The machine: devices with their memory and streams, and which device each thread has chosen.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device/address_space.h"
#include "device/chip.h"
#include "device/event.h"
#include "device/handles.h"
#include "device/heap.h"
#include "device/mapping.h"
#include "device/stream.h"

namespace vnpu {

struct Settings {
    int devices;           // VNPU_DEVICES, 1 to 64; default 8
    const Chip *chip;      // VNPU_SOC; default Ascend910B1
    uint64_t host_limit;   // VNPU_HOST_LIMIT, bytes or with a unit (GiB, GB, MiB ...); default 80 % of this machine's
    bool check_memory;     // VNPU_CHECK_MEMORY=1: guard pages and a quarantine for freed blocks; default 0
    bool hardware_checks;  // VNPU_CHECKS: operators refuse what hardware refuses; any = what the CPU can do as well
    bool dry;         // VNPU_MODE=dry: kernels do not run and device memory takes none of this machine's; default exact
    bool model_time;  // VNPU_TIME=model: events carry the virtual clock's times; default wall
    double dry_share;  // VNPU_DRY_SHARE: in dry mode, of what a data-dependent shape can be at most; default 1
    std::optional<uint64_t>
        sum_order;     // VNPU_SUM_ORDER: the seed of another order of adding than the CPU's; default none
    bool hidden_bugs;  // VNPU_HIDDEN_BUGS=hardware: what hardware does not notice gives a value; default error
    static Settings from_environment();  // Fault InvalidArgument names the variable, the value and what is allowed
};

class Device {
  public:
    Device(int index, uint64_t capacity, AddressSpace &space, HostBudget &budget, bool checked)
        : index_(index), heap_(index, capacity, space, budget, checked) {}
    int index() const noexcept { return index_; }
    Heap &heap() noexcept { return heap_; }
    // Takes what this process's context has of the device's memory, or gives it back. Fault OutOfMemory.
    void open(uint64_t context_bytes);
    void close();
    // Whether a reset of the device is going on: a stream made now would outlive the memory that it works on.
    std::atomic<bool> &resetting() noexcept { return resetting_; }

  private:
    const int index_;
    Heap heap_;
    std::optional<uint64_t> context_;  // where it lies in the heap
    std::atomic<bool> resetting_{false};
};

class Machine {
  public:
    // The one machine of this process, made at the first call from its environment and never destroyed: at exit other
    // libraries still call in. Fault ForkedProcess in a child made by fork(): the worker threads do not exist there.
    static Machine &instance();
    const Settings &settings() const noexcept { return settings_; }
    AddressSpace &space() noexcept { return space_; }
    HostBudget &budget() noexcept { return budget_; }
    Mappings &mappings() noexcept { return mappings_; }

    // The device of that number, made at its first use. Fault InvalidDevice.
    Device &device(int index);
    // The calling thread's device; the default device, which the thread has chosen from then on, where it had none.
    // Fault NoDevice without either.
    Device &current();
    int current_index() const noexcept;  // -1: none
    // The number of the device that current() would give, without choosing it.
    int chosen();
    // What a thread uses that has chosen no device: acl.json's defaultDevice.
    void set_default(std::optional<int> index) noexcept;
    void set_current(int index);  // Fault InvalidDevice
    // Takes away the device's streams, once what is queued on them has run, and its memory. Fault InvalidDevice when it
    // is not in use or being reset already, InvalidArgument in a host function on one of those streams.
    void reset(int index);
    // The device's memory, in use or reset; null when it was never used.
    Heap *heap(int index);
    // Whether the device has been used since the start or its last reset.
    bool active(int index) const noexcept;

    // A new stream on the current device; its address is its handle. Fault InvalidDevice during a reset of the device.
    std::shared_ptr<Stream> create_stream(int priority);
    // The stream behind a handle; nullptr means the current device's default stream. Fault InvalidHandle;
    // InvalidDevice for a default stream during a reset of its device.
    std::shared_ptr<Stream> stream(void *handle);
    // Forgets the stream and runs what is queued on it. Fault InvalidHandle, InvalidArgument in a host function on it.
    void destroy_stream(void *handle);
    // Waits for every stream of the device; then throws the first failure among them, or Fault Timeout.
    void synchronize(int device, Deadline deadline = std::nullopt);
    // The same without reporting failures.
    void drain(int device);
    // Whether every task submitted to the device so far has run.
    bool idle(int device);

    // The live memory that holds the device address (live_memory.h is the gate that asks); and why none does.
    std::optional<Allocation> allocation(const void *address);
    std::string why_dead(const void *address);
    // Device that holds the address; -1 when it is not device memory.
    int device_of(const void *address);
    // Whether the address is one of the devices', live or not: it lies in their range, and no host memory is mapped
    // there.
    bool on_device(const void *address) const {
        return space_.contains(address) && !(space_.in_window(address) && mappings_.on_host(address, 1));
    }

  private:
    Machine();
    std::shared_ptr<Stream> make_stream(int device, int priority);
    std::vector<std::shared_ptr<Stream>> streams_of(int device);

    const Settings settings_;
    AddressSpace space_;
    HostBudget budget_;
    Mappings mappings_;
    std::mutex devices_mutex_;
    std::vector<std::unique_ptr<Device>> devices_;
    std::vector<std::atomic<bool>> active_;
    std::atomic<int> default_{-1};       // -1: none
    Handles<Stream> streams_{"stream"};  // a device's default stream has the address of its Device as its handle
    std::atomic<int> next_stream_{0};
};

}  // namespace vnpu
