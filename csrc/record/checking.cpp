// Whether the inputs of a call are as they were when they were read before: memory may be written by code that no
// recorder sees, by a kernel that goes beyond its results, or by another stream that has not waited.
#include "record/checking.h"

#include <algorithm>
#include <cstring>

#include "record/operators.h"

namespace torchport::record {
namespace {

constexpr size_t kMostSuspects = 16;

}  // namespace

void Recorder::remember_inputs(ActiveCall &call, const Tensors &tensors, const std::vector<int32_t> &rows,
                               size_t before) {
    if (level_ != Level::Tensor || reductions_ || reader_.load(std::memory_order_relaxed) == nullptr) return;
    for (size_t i = 0; i < tensors.size(); ++i) {
        if (rows[i] < 0 || !tensors[i]->is_privateuseone() || !tensors[i]->has_storage()) continue;
        const at::Tensor &tensor = *tensors[i];
        c10::StorageImpl *storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
        if (std::ranges::find(call.written, storage) != call.written.end()) continue;
        Check check;
        check.storage = storage;
        {
            const std::lock_guard lock(mutex_);
            if (call.step != step_) return;
            const std::lock_guard table(call.step->mutex);
            check.row = call.step->watches[static_cast<size_t>(rows[i])].first;
            // New ones were read just now.
            if (check.row < 0 || static_cast<size_t>(check.row) >= before) continue;
            const Watch &watch = call.step->watches[static_cast<size_t>(check.row)];
            // A storage that has given its memory up and has other now is none of this.
            if (watch.address == nullptr || watch.address != tensor.const_data_ptr()) continue;
            check.piece = {watch.address, watch.size};
            const Known::Storage &held = known_.storage(tensor);
            check.number = held.number;
            check.generation = held.generation;
        }
        if (std::ranges::any_of(call.checks, [&](const Check &one) { return one.row == check.row; })) continue;
        check.elements.emplace(tensor);
        call.checks.push_back(std::move(check));
    }
}

std::vector<Recorder::Check> Recorder::choose_checks(ActiveCall &call) {
    if (level_ != Level::Tensor) return {};
    const std::lock_guard lock(mutex_);
    if ((call.checks.empty() && followed_.empty()) || call.step != step_) return {};
    // Memory that was given back may be another's memory by now.
    const auto gone = [&](const Check &one) { return !known_.stands(one.storage, one.number, one.generation); };
    std::erase_if(call.checks, gone);
    std::erase_if(followed_, gone);
    for (const Check &one : followed_)
        if (std::ranges::none_of(call.checks, [&](const Check &other) { return other.row == one.row; }))
            call.checks.push_back(one);
    return std::move(call.checks);
}

void Recorder::follow_results(const ActiveCall &call, const Tensors &tensors, const std::vector<int32_t> &rows) {
    if (level_ != Level::Tensor) return;
    const std::lock_guard lock(mutex_);
    const Suspect made{call.known->name_text, call.module, call.source};
    if (call.step != step_ || std::ranges::find(suspects_, made) == suspects_.end()) return;
    for (size_t i = 0; i < tensors.size(); ++i) {
        if (rows[i] < 0 || !tensors[i]->has_storage()) continue;
        const at::Tensor &tensor = *tensors[i];
        const std::lock_guard table(call.step->mutex);
        const Watch &watch = call.step->watches[static_cast<size_t>(rows[i])];
        if (watch.address == nullptr) continue;
        const Known::Storage &held = known_.storage(tensor);
        followed_.push_back({tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl(), held.number,
                             held.generation, rows[i], Piece{watch.address, watch.size}, Elements(tensor)});
    }
}

void Recorder::verify(const Batch &batch, const Check &check, const void *data) {
    Step &step = *batch.step;
    std::vector<std::byte> room;
    const void *flat = check.elements->gathered(data, room);
    const size_t bytes = static_cast<size_t>(check.elements->count) * c10::elementSize(check.elements->dtype);
    const uint64_t now = checksum(flat, bytes);
    std::optional<Suspect> suspect;
    {
        const std::lock_guard lock(step.mutex);
        Watch &watch = step.watches[static_cast<size_t>(check.row)];
        if (watch.after == Watch::kUnread) return;  // in another stream, which has not come to it
        if (watch.checksum == now) {
            watch.after = std::max(watch.after, batch.after);
            return;
        }
        const Step::Room kept = step.room(bytes, waiting_bytes_);
        std::memcpy(kept.at(), flat, bytes);
        step.changed(check.row, batch.after, step.keep(kept, now, waiting_bytes_), now);
        for (const CallRow &call : step.calls) {
            const auto *results = step.links.data() + call.outputs;
            if (std::find(results, results + call.output_count, check.row) == results + call.output_count) continue;
            suspect = {step.text(call.name), step.text(call.module), step.text(call.source)};
            break;
        }
    }
    const std::lock_guard lock(mutex_);
    if (suspect && suspects_.size() < kMostSuspects && std::ranges::find(suspects_, *suspect) == suspects_.end())
        suspects_.push_back(*suspect);
}

void Recorder::written(c10::StorageImpl *storage) {
    const std::lock_guard lock(mutex_);
    if (storage == nullptr)
        known_.written_anywhere();
    else
        known_.written(storage);
}

}  // namespace torchport::record
