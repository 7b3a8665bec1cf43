// What can go wrong on the virtual device. Vendor codes are somebody else's business:
// src/torchport/knowledge/faults.toml maps each kind to CANN's codes and words.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace vnpu {

enum class FaultKind {
    InvalidArgument,   // a value outside what the call allows
    NullArgument,      // a required pointer is null
    InvalidDevice,     // no such device
    NoDevice,          // the calling thread has not chosen a device
    InvalidHandle,     // not a live stream, event, context or memory handle
    InvalidAddress,    // not an address of live memory of the expected kind
    DoubleFree,        // memory that was freed before
    OutOfBounds,       // a range that runs past the end of its allocation
    WrongDirection,    // a copy whose kind does not match its pointers
    OutOfMemory,       // device memory is full
    HostLimit,         // VNPU_HOST_LIMIT: this machine's memory would be exhausted
    HostOutOfMemory,   // the host allocator failed
    Timeout,           // a wait for a stream or device ran out of time
    EventTimeout,      // a wait for an event did
    KernelFailure,     // a task threw while it ran on its stream
    VectorFailure,     // likewise, an operator of the vector cores
    DeviceCpuFailure,  // likewise, an operator of the device's own CPU
    GraphFailure,      // likewise, while its graph was replayed
    Aborted,           // the device's tasks were dropped during the call
    RankSilent,        // another rank does not take part in a collective
    RankGone,          // another rank has ended
    RanksDisagree,     // ranks called different collectives
    SharedDevice,      // two ranks of a communicator have one device
    NotReady,          // asked for a result that is not there yet
    Unsupported,       // the virtual NPU does not offer this
    TilingRefused,     // right parameters that the kernel of an operator that is one kernel has no plan for
    PartRefused,       // the same of one of the kernels that an operator is made of
    ForkedProcess,     // used in a child made by fork()
    // Faults of hardware; injection.h alone raises them.
    MemoryBroken,
    LinkBroken,
    KernelTimeout,
};

class Fault : public std::runtime_error {
  public:
    Fault(FaultKind kind, const std::string &message) : std::runtime_error(message), kind_(kind) {}
    FaultKind kind() const noexcept { return kind_; }

  private:
    FaultKind kind_;
};

template <class... Args>
[[noreturn]] void fail(FaultKind kind, fmt::format_string<Args...> text, Args &&...args) {
    throw Fault(kind, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace vnpu
