// The communicator of an operator that exchanges data with other ranks while it runs (a matrix product fused with a
// collective, the dispatch of MoE). The operator names it by what HcclGetCommName answers. Its exchanges are in no
// order with the program's collectives, as on hardware, where they go through memory and notifications of their own.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "hccl/api.h"

namespace vnpu::hccl {

class Communicator;
struct Plan;

// Where a part of a message lies, on the host's side of the memory or anywhere else that the kernel may use.
struct Part {
    std::byte *at;
    size_t bytes;
};

class [[gnu::visibility("default")]] OperatorGroup {
  public:
    // That of the name on the caller's or the kernel's device. Fault TilingRefused when there is none, Unsupported when
    // it is one between machines.
    explicit OperatorGroup(const std::string &name);

    int rank() const noexcept;
    int size() const noexcept;
    // What it keeps of the device's memory for an exchange: HCCL_BUFFSIZE, or what it was made with.
    uint64_t buffer_size() const noexcept;
    // In the first phase. Fault OutOfMemory.
    void take_buffers() const;

    // Of a kernel, on every rank of the group. `operation` says for whom, in messages. Faults as those of a collective.
    //
    // out[r] goes to rank r, in[r] comes from rank r. What the ranks tell each other of a part has to match.
    void exchange(const char *operation, std::span<const Part> out, std::span<const Part> in) const;
    void all_reduce(const char *operation, void *at, uint64_t count, HcclDataType type) const;
    // `from` has `count` elements for each rank; sums, in the order of the ranks.
    void reduce_scatter(const char *operation, void *from, void *to, uint64_t count, HcclDataType type) const;
    void barrier(const char *operation) const;

  private:
    void perform(Plan &plan, const char *operation, const char *name, HcclCMDType kind, uint64_t count,
                 int32_t type) const;

    std::shared_ptr<Communicator> comm_;
};

}  // namespace vnpu::hccl
