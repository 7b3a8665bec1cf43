#include "record/elements.h"
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

void Known::written_anywhere() {
    for (auto &[_, held] : storages_) ++held.generation;
}

bool Known::stands(c10::StorageImpl *storage, int64_t number, int64_t generation) const {
    const auto found = storages_.find(storage);
    return found != storages_.end() && found->second.number == number && found->second.generation == generation &&
           !found->second.awaited && !found->second.held.expired();
}

void Known::begin_writing(const at::Tensor &tensor) { storage(tensor).awaited = true; }

void Known::finish_writing(const at::Tensor &tensor) {
    Storage &held = storage(tensor);
    held.awaited = false;
    ++held.generation;
}

void Known::Identity::add(uint64_t value) noexcept {
    first = mixed(first ^ value);
    second = (second ^ value) * kGolden + (second >> 29);
}

int32_t Known::find_bytes(const at::Tensor &tensor, const Elements &elements, int32_t row) {
    if (!elements.dense) return row;
    Identity identity;
    const Storage &held = storage(tensor);
    for (const int64_t value :
         {held.number, held.generation, tensor.is_inference() ? -1 : int64_t{tensor._version()},
          tensor.storage_offset(), static_cast<int64_t>(elements.dtype), elements.count, elements.times})
        identity.add(static_cast<uint64_t>(value));
    return bytes_.try_emplace(identity, row).first->second;
}

int32_t Known::find(const at::Tensor &tensor, const Storage &storage, int32_t row) {
    Identity identity;
    const auto add = [&](uint64_t value) { identity.add(value); };
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
    bytes_.clear();
    next_ = 0;
}

}  // namespace torchport::record
