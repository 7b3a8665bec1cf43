// What can go wrong on the virtual device. Vendor codes are somebody else's business:
// csrc/ascendcl/error.cpp maps each kind to CANN's code in one table.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace vnpu {

enum class FaultKind {
    InvalidArgument,  // a value outside what the call allows
    NullArgument,     // a required pointer is null
    InvalidDevice,    // no such device
    NoDevice,         // the calling thread has not chosen a device
    InvalidHandle,    // not a live stream, event, context or memory handle
    InvalidAddress,   // not an address of live memory of the expected kind
    DoubleFree,       // memory that was freed before
    OutOfBounds,      // a range that runs past the end of its allocation
    WrongDirection,   // a copy whose kind does not match its pointers
    OutOfMemory,      // device memory is full
    HostLimit,        // VNPU_HOST_LIMIT: this machine's memory would be exhausted
    HostOutOfMemory,  // the host allocator failed
    Timeout,          // a wait for a stream or device ran out of time
    EventTimeout,     // a wait for an event did
    KernelFailure,    // an operator threw while it ran on its stream
    NotReady,         // asked for a result that is not there yet
    Unsupported,      // the virtual NPU does not offer this
    ForkedProcess,    // used in a child made by fork()
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
