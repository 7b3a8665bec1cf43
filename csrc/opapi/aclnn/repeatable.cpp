#include "opapi/aclnn/repeatable.h"

#include <mutex>
#include <unordered_map>

#include "opapi/aclnn/laid_over.h"
#include "opapi/aclnn/op.h"

namespace vnpu::opapi {

constinit std::atomic<bool> any_repeatable{false};

namespace {

constexpr aclnnStatus kInnerNullptr = 561103;  // ACLNN_ERR_INNER_NULLPTR: what CANN answers to null here

// An executor of the registry is never launched itself but copied: what is queued keeps the addresses that it was
// launched with, and several streams may have it at once.
struct Registry {
    std::mutex mutex;
    std::unordered_map<const void *, std::unique_ptr<Executor>> all;
};

Registry &registry() {
    static auto *made = new Registry;  // never destroyed: launches come until the very end
    return *made;
}

// The same elements at another address.
at::Tensor moved_to(const at::Tensor &tensor, void *address) {
    const size_t bytes = tensor.storage().nbytes();
    return laid_over(bytes == 0 ? nullptr : alias_of(address), bytes, tensor.dtype(), tensor.sizes(), tensor.strides(),
                     tensor.storage_offset());
}

// Gives the operands that `tensor` describes another tensor.
class Mover final : public Taker {
  public:
    Mover(const aclTensor *tensor, at::Tensor to) : tensor_(tensor), to_(std::move(to)) {}

    void take(std::initializer_list<Part> inputs, std::initializer_list<Part> outputs) override {
        for (const auto &parts : {inputs, outputs})
            for (const Part &part : parts) {
                if (part.one != nullptr) move(*part.one);
                if (part.list != nullptr)
                    for (const Operand &one : *part.list) move(one);
            }
    }
    bool found = false;

  private:
    // The executor owns its operands and shows them as they are; only here are they changed.
    void move(const Operand &operand) {
        if (!operand.defined() || operand.source() != tensor_) return;
        static_cast<at::Tensor &>(const_cast<Operand &>(operand)) = to_;
        found = true;
    }
    const aclTensor *const tensor_;
    const at::Tensor to_;
};

// The descriptor is the caller's and stands for the operand for as long as the executor is repeatable.
void set_address(aclOpExecutor *executor, aclTensor *tensor, void *address) {
    if (executor == nullptr) throw acl::Error(kInnerNullptr, "parameter executor is null");
    if (tensor == nullptr) throw acl::Error(kInnerNullptr, "parameter tensor is null");
    if (tensor->fault != nullptr) throw_fault(*tensor->fault, "tensor");
    const std::lock_guard lock(registry().mutex);
    const auto found = registry().all.find(executor);
    if (found == registry().all.end())
        fail(FaultKind::InvalidArgument, "parameter executor is not repeatable (aclSetAclOpExecutorRepeatable)");
    const at::Tensor moved = moved_to(tensor->view, address);
    Mover mover(tensor, moved);
    found->second->show_to(mover);
    if (!mover.found) fail(FaultKind::InvalidArgument, "parameter tensor is none that the executor was made with");
    tensor->view = moved;
}

}  // namespace

std::unique_ptr<Executor> once_more(const Executor *executor) {
    const std::lock_guard lock(registry().mutex);
    const auto found = registry().all.find(executor);
    return found == registry().all.end() ? nullptr : found->second->copy();
}

}  // namespace vnpu::opapi

// To be called between the first phase and the first launch. The executor is its caller's from then on.
OP_EXPORT aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor *executor) {
    return VNPU_OPERATOR_API(executor) {
        using namespace vnpu::opapi;
        if (executor == nullptr) throw vnpu::acl::Error(kInnerNullptr, "parameter executor is null");
        const std::lock_guard lock(registry().mutex);
        if (!registry().all.contains(executor))
            registry().all.emplace(executor, std::unique_ptr<Executor>(reinterpret_cast<Executor *>(executor)));
        any_repeatable.store(true, std::memory_order_relaxed);
    };
}

OP_EXPORT aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor *executor) {
    return VNPU_OPERATOR_API(executor) {
        using namespace vnpu::opapi;
        std::unique_ptr<Executor> last(reinterpret_cast<Executor *>(executor));
        if (!any_repeatable.load(std::memory_order_relaxed)) return;
        const std::lock_guard lock(registry().mutex);
        const auto found = registry().all.find(executor);
        if (found == registry().all.end()) return;
        static_cast<void>(found->second.release());  // it is `last`
        registry().all.erase(found);
    };
}

// CANN finds the tensor by its number among the parameters, here its descriptor tells: they are the caller's and the
// same ones that the first phase had.
OP_EXPORT aclnnStatus aclSetTensorAddr(aclOpExecutor *executor, size_t index, aclTensor *tensor, void *addr) {
    return VNPU_OPERATOR_API(executor, index, tensor, addr) { vnpu::opapi::set_address(executor, tensor, addr); };
}

OP_EXPORT aclnnStatus aclSetDynamicTensorAddr(aclOpExecutor *executor, size_t irIndex, size_t relativeIndex,
                                              aclTensorList *tensors, void *addr) {
    return VNPU_OPERATOR_API(executor, irIndex, relativeIndex, tensors, addr) {
        using namespace vnpu::opapi;
        if (tensors == nullptr) throw vnpu::acl::Error(kInnerNullptr, "parameter tensors is null");
        if (relativeIndex >= tensors->tensors.size())
            vnpu::fail(vnpu::FaultKind::InvalidArgument, "parameter relativeIndex is {} of {}", relativeIndex,
                       tensors->tensors.size());
        set_address(executor, const_cast<aclTensor *>(tensors->tensors[relativeIndex]), addr);
    };
}
