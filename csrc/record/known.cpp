#include "record/kernels.h"
#include "record/recorder.h"

namespace torchport::record {

Known::Storage &Known::storage(const at::Tensor &tensor) {
    const c10::Storage &storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
    c10::StorageImpl *impl = storage.unsafeGetStorageImpl();
    const auto found = storages_.find(impl);
    if (found != storages_.end()) return found->second;
    return storages_.emplace(impl, Storage{storage.getWeakStorageImpl(), next_++, 0}).first->second;
}

void Known::written(c10::StorageImpl *storage) {
    const auto found = storages_.find(storage);
    if (found != storages_.end()) ++found->second.generation;
}

int32_t Known::find(const at::Tensor &tensor, const Storage &storage, int32_t row) {
    Identity identity{0x243F6A8885A308D3, 0x13198A2E03707344};
    const auto add = [&](uint64_t value) {
        identity.first = mixed(identity.first ^ value);
        identity.second = (identity.second ^ value) * kGolden + (identity.second >> 29);
    };
    add(static_cast<uint64_t>(storage.number));
    add(static_cast<uint64_t>(storage.generation));
    // Both are needed: what writes beside the dispatcher counts up torch's number, what writes through `.data` ours.
    add(tensor.is_inference() ? ~uint64_t{0} : static_cast<uint64_t>(tensor._version()));
    add(static_cast<uint64_t>(tensor.storage_offset()));
    add(static_cast<uint64_t>(tensor.scalar_type()) * 2 + tensor.requires_grad());
    for (const int64_t size : tensor.sizes()) add(static_cast<uint64_t>(size));
    for (const int64_t stride : tensor.strides()) add(static_cast<uint64_t>(stride) + kGolden);
    return rows_.try_emplace(identity, row).first->second;
}

void Known::forget() {
    storages_.clear();
    rows_.clear();
    next_ = 0;
}

}  // namespace torchport::record
