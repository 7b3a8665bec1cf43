#include "opapi/distributed/group.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "device/machine.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/waiting.h"

namespace vnpu::opapi {
namespace {

HcclDataType hccl_type(at::ScalarType dtype) {
    switch (dtype) {
        case at::kHalf:
            return HCCL_DATA_TYPE_FP16;
        case at::kBFloat16:
            return HCCL_DATA_TYPE_BFP16;
        case at::kChar:
            return HCCL_DATA_TYPE_INT8;
        case at::kInt:
            return HCCL_DATA_TYPE_INT32;
        default:
            return HCCL_DATA_TYPE_FP32;
    }
}

hccl::Part part(const at::Tensor &tensor) {
    return {static_cast<std::byte *>(tensor.data_ptr()), static_cast<size_t>(tensor.nbytes())};
}

constexpr int kNoKernel = 561003;  // ACLNN_ERR_INNER_FIND_KERNEL_ERROR

void no_kernel(const char *operation, const char *chips) {
    if (chip_limits())
        throw acl::Error(kNoKernel, fmt::format("CANN has {} for {}, not for {}; with VNPU_CHECKS=any the virtual NPU "
                                                "computes it all the same",
                                                operation, chips, Machine::instance().settings().chip->name));
}

}  // namespace

WaitsForRanks::WaitsForRanks(const char *name) { waiting_operators().insert(name); }

at::Tensor Group::all_gather(const at::Tensor &mine) const {
    at::DimVector sizes(mine.sizes().begin(), mine.sizes().end());
    sizes[0] *= size();
    const at::Tensor all = at::empty(sizes, mine.options());
    const at::Tensor whole = mine.contiguous();
    const auto come = all.chunk(size());
    if (mine.numel() != 0) exchange(std::vector<at::Tensor>(static_cast<size_t>(size()), whole), come);
    return all;
}

void Group::all_reduce(at::Tensor &summed) const {
    at::Tensor whole = summed.contiguous();
    ranks_.all_reduce(operation_, whole.data_ptr(), static_cast<uint64_t>(whole.numel()),
                      hccl_type(whole.scalar_type()));
    if (!whole.is_same(summed)) summed.copy_(whole);
}

void Group::reduce_scatter(at::Tensor &out, const at::Tensor &summed) const {
    at::Tensor whole = out.contiguous();
    const at::Tensor from = summed.contiguous();
    ranks_.reduce_scatter(operation_, from.data_ptr(), whole.data_ptr(), static_cast<uint64_t>(whole.numel()),
                          hccl_type(whole.scalar_type()));
    if (!whole.is_same(out)) out.copy_(whole);
}

void Group::exchange(const std::vector<at::Tensor> &parts, const std::vector<at::Tensor> &come) const {
    std::vector<hccl::Part> out, in;
    std::vector<at::Tensor> kept;
    for (const at::Tensor &each : parts) out.push_back(part(kept.emplace_back(each.contiguous())));
    for (const at::Tensor &each : come) in.push_back(part(each));
    ranks_.exchange(operation_, out, in);
}

bool is_a3() { return Machine::instance().settings().chip->a3; }

void check_a3_only(const char *operation) {
    if (!is_a3()) no_kernel(operation, "A3 (Ascend910_93...) only");
}

void check_not_a3(const char *operation) {
    if (is_a3()) no_kernel(operation, "Ascend910B only");
}

int64_t ranks_of(const std::string &group, std::initializer_list<int64_t> on_910b,
                 std::initializer_list<int64_t> on_a3) {
    const hccl::OperatorGroup ranks(group);
    const auto &sizes = is_a3() ? on_a3 : on_910b;
    tiled(std::find(sizes.begin(), sizes.end(), ranks.size()) != sizes.end(),
          "parameter group is a communicator of {} ranks, allowed are {}", ranks.size(), fmt::join(sizes, ", "));
    ranks.take_buffers();
    return ranks.size();
}

}  // namespace vnpu::opapi
