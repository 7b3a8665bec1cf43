// The other ranks, as operators see them that exchange data while they run. Each is written
//
//     RANKS_OP(aclnnMatmulAllReduce, check(...), kernel)
//
// as any operator, and is never run by the thread that launches it: it waits.
#pragma once

#include <vector>

#include "hccl/operator_group.h"
#include "opapi/aclnn/op.h"

namespace vnpu::opapi {

// Tells the launch that the operator of this name waits for other ranks.
struct WaitsForRanks {
    explicit WaitsForRanks(const char *name);
};

class Group {
  public:
    // Of the kernel of the operator of that name, on the communicator that `group` names.
    Group(const char *operation, const std::string &group) : operation_(operation), ranks_(group) {}

    int64_t rank() const { return ranks_.rank(); }
    int64_t size() const { return ranks_.size(); }

    // Every rank's tensor, which has one shape on all, one behind another along dimension 0.
    at::Tensor all_gather(const at::Tensor &mine) const;
    // Sums over the ranks, added in their order and rounded once.
    void all_reduce(at::Tensor &summed) const;
    // Of sums over the ranks the rows that are this rank's, into `out`.
    void reduce_scatter(at::Tensor &out, const at::Tensor &summed) const;
    // parts[r] goes to rank r, and what rank r has for this one comes back, in a tensor that the caller has made.
    void exchange(const std::vector<at::Tensor> &parts, const std::vector<at::Tensor> &come) const;
    void barrier() const { ranks_.barrier(operation_); }

  private:
    const char *const operation_;
    const hccl::OperatorGroup ranks_;
};

// In the first phase: how many ranks the group has, one of those that CANN has a kernel for on this chip, which takes
// its buffers. Faults TilingRefused, OutOfMemory.
int64_t ranks_of(const std::string &group, std::initializer_list<int64_t> on_910b,
                 std::initializer_list<int64_t> on_a3);

// Whether the chip is half of an A3's package, which CANN knows as 910_93.
bool is_a3();
// In the first phase of operators that CANN has for A3 only, or not for A3: the other answers that there is no kernel
// (561003).
void check_a3_only(const char *operation);
void check_not_a3(const char *operation);

}  // namespace vnpu::opapi

#define RANKS_OP(NAME, ...)                                         \
    static const vnpu::opapi::WaitsForRanks waits_of_##NAME(#NAME); \
    OP(NAME, __VA_ARGS__)
