// Host memory that devices reach (aclrtHostRegister): its pages lie at the program's own address and, while it is
// registered, also behind a device address in the window, which is live memory of no device.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device/address_space.h"

namespace vnpu {

class ReachedMemory {
  public:
    static ReachedMemory &instance();  // never destroyed: tensors are freed until the very end of the process

    // Shows the whole pages at `host` to the devices and gives the device address. Faults: InvalidArgument (not at the
    // start of a page, shown already), InvalidAddress (not all of it is the program's memory), OutOfMemory (addresses),
    // HostOutOfMemory.
    void *show(AddressSpace &space, void *host, size_t size);
    // The program's alone again. False where it was not shown. Work that uses the device address is over by then.
    bool hide(AddressSpace &space, void *host);
    // The device address of what lies at `host` and was shown; null where nothing was.
    void *device_address(const void *host) const;
    // The memory that a device address shows.
    std::optional<Allocation> allocation(const void *address) const;

  private:
    struct Pages {
        std::byte *at;
        size_t size;
    };
    struct Shown {
        std::byte *address;        // the device's
        size_t size;               // whole pages
        std::vector<Pages> moved;  // of the program's: they were private, and made such as two addresses can have
    };
    static void move_back(const std::vector<Pages> &moved);
    mutable std::mutex mutex_;
    std::map<uintptr_t, Shown> shown_;  // by the program's address
};

}  // namespace vnpu
