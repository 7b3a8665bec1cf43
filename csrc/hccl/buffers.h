// What HCCL keeps of a device's memory for a communicator. The virtual NPU's collectives need none of it: it is taken
// so that what does not fit beside it on hardware does not fit here either.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/machine.h"

namespace vnpu::hccl {

// One buffer for what is sent, one for what is received, and a megabyte behind them, in one piece (hcomm:
// ccl_buffer_manager.cc). Not counted: 40 MB more where HCCL chooses an algorithm that runs on the vector cores, which
// depends on sizes and links that are not modelled.
class Buffers {
  public:
    // Fault OutOfMemory.
    Buffers(Device &device, uint64_t each);
    ~Buffers();
    Buffers(const Buffers &) = delete;
    Buffers &operator=(const Buffers &) = delete;

    // Those of a communicator: its own, or the ones that communicators with this name have on the device together
    // (HcclCommConfig::hcclBufferName), as large as the first of them asked for.
    static std::shared_ptr<Buffers> take(Device &device, uint64_t each, const std::string &shared);

  private:
    Heap &heap_;
    const uint64_t offset_;
};

}  // namespace vnpu::hccl
