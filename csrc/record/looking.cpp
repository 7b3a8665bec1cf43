// What the recorder makes of one tensor: a row, and its statistics now, in the device's stream, or at the step's end.
#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "record/checking.h"

namespace torchport::record {

namespace {

// What a script has shrunk (`untyped_storage().resize_(0)`, as FSDP does) or a kernel has left out (zeros of forward
// derivatives) keeps its sizes.
bool has_memory(const at::Tensor &tensor, const Elements &elements) {
    if (elements.count == 0) return true;
    const auto ends = static_cast<size_t>(tensor.storage_offset() + elements.span) * c10::elementSize(elements.dtype);
    return tensor.storage().nbytes() >= ends && tensor.storage().data() != nullptr;
}

Piece piece_of(const at::Tensor &tensor, const Elements &elements) {
    return {tensor.const_data_ptr(), static_cast<size_t>(elements.span) * c10::elementSize(elements.dtype)};
}

}  // namespace

std::vector<int32_t> Recorder::look_at(const std::shared_ptr<Step> &step, const Tensors &tensors, const char *reason,
                                       int32_t after, std::vector<Check> checks) {
    std::vector<int32_t> rows;
    rows.reserve(tensors.size());
    std::unique_ptr<Batch> later;
    for (const at::Tensor *tensor : tensors)
        rows.push_back(tensor == nullptr ? -1 : look_at(step, *tensor, reason, after, later));
    if (!checks.empty()) {
        if (!later) later.reset(new Batch{this, step, after});
        for (const Check &check : checks) later->pieces.push_back(check.piece);
        later->checks = std::move(checks);
    }
    if (later) submit(std::move(later));
    return rows;
}

int32_t Recorder::look_at(const std::shared_ptr<Step> &step, const at::Tensor &tensor, const char *reason,
                          int32_t after, std::unique_ptr<Batch> &later) {
    const c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
    const bool plain = impl->has_storage() && impl->layout() == at::kStrided && !tensor.is_meta() &&
                       !impl->key_set().has_any(c10::DispatchKeySet(
                           {c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched,
                            c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize}));
    TensorRow *row = nullptr;
    int32_t number = -1;
    {
        const std::lock_guard lock(mutex_);
        const std::lock_guard rows(step->mutex);
        require_open(*step);
        number = static_cast<int32_t>(step->tensors.size());
        TensorRow made;
        int32_t name = -1;
        if (plain) {
            const Known::Storage &storage = known_.storage(tensor);
            const int32_t known = known_.find(tensor, storage, number);
            if (known != number) return known;
            if (storage.awaited && reason == nullptr) reason = kWrittenLater;
            made.storage = storage.number;
            made.version = storage.generation + (tensor.is_inference() ? 0 : static_cast<int64_t>(tensor._version()));
            made.offset = tensor.storage_offset();
            const auto named = names_.find(impl->unsafe_storage().unsafeGetStorageImpl());
            if (named != names_.end())
                for (const auto &[offset, text] : named->second.at)
                    if (offset == made.offset) name = text;
        }
        made.elements = tensor.numel();
        made.rank = static_cast<uint16_t>(tensor.dim());
        made.flags = (tensor.requires_grad() ? kRequiresGrad : 0) | kRowMajor;
        made.dims = static_cast<int32_t>(step->dims.size());
        step->dims.insert(step->dims.end(), tensor.sizes().begin(), tensor.sizes().end());
        if (plain)
            step->dims.insert(step->dims.end(), tensor.strides().begin(), tensor.strides().end());
        else
            step->dims.insert(step->dims.end(), tensor.dim(), 0);
        made.dtype = step->line(texts_.number(name_of(tensor.scalar_type())));
        made.device = step->line(texts_.number(tensor.device().str()));
        made.name = step->line(name);
        step->tensors.push_back(made);
        step->watches.push_back({.first = number});
        row = &step->tensors.back();  // which a deque leaves where it is
    }
    if (!plain) reason = "it has no elements that could be read";
    if (reason != nullptr)
        explain(*step, *row, reason);
    else
        fill(step, *row, number, tensor, after, later);
    return number;
}

void Recorder::require_open(const Step &step) const {
    if (&step != step_.get())
        throw std::runtime_error("its step has ended: what is known of tensors is the next one's");
}

void Recorder::explain(Step &step, TensorRow &row, const char *reason) {
    const int32_t text = texts_.number(reason);
    const std::lock_guard lock(step.mutex);
    row.reason = step.line(text);
}

void Recorder::fill(const std::shared_ptr<Step> &step, TensorRow &row, int32_t number, const at::Tensor &tensor,
                    int32_t after, std::unique_ptr<Batch> &later) {
    if (level_ == Level::Calls) return;
    if (tensor.is_conj() || tensor.is_neg()) explain(*step, row, "its conjugation or sign is not carried out yet");
    const DeviceReader *reader = reader_.load(std::memory_order_relaxed);
    const bool host = tensor.device().is_cpu(), streams = tensor.is_privateuseone() && reader != nullptr;
    if (reductions_ || !(host || streams)) return reduce(step, row, tensor);
    Elements elements(tensor);
    if (!has_memory(tensor, elements)) return explain(*step, row, "its storage has no memory, or less than it needs");
    const char *format = host ? "" : reader->format(tensor);
    if (*format != '\0') {
        const int32_t text = texts_.number(format);
        {
            const std::lock_guard lock(step->mutex);
            row.format = step->line(text);
        }
        return explain(*step, row, "the device lays it out in a format of its own");
    }
    if (elements.count == 0) return measure_into(*step, row, elements, nullptr);
    {
        const std::lock_guard lock(mutex_);
        const std::lock_guard rows(step->mutex);
        require_open(*step);
        const int32_t first = known_.find_bytes(tensor, elements, number);
        if (first != number) {  // a view of it, or it without its gradient
            if (!elements.row_major) row.flags &= static_cast<uint16_t>(~kRowMajor);
            return step->same(number, first);
        }
    }
    if (host) return measure_into(*step, row, elements, tensor.const_data_ptr());
    if (!later) later.reset(new Batch{this, step, after});
    later->pieces.push_back(piece_of(tensor, elements));
    {
        const std::lock_guard lock(step->mutex);
        Watch &watch = step->watches[static_cast<size_t>(number)];
        watch.address = static_cast<const std::byte *>(later->pieces.back().address);
        watch.size = later->pieces.back().size;
    }
    later->tensors.push_back({&row, number, std::move(elements)});
}

void Recorder::measure_into(Step &step, TensorRow &row, const Elements &elements, const void *data) {
    std::vector<std::byte> room;
    const void *flat = elements.gathered(data, room);
    const auto size = static_cast<int64_t>(c10::elementSize(elements.dtype));
    if (!elements.row_major) row.flags &= static_cast<uint16_t>(~kRowMajor);
    std::optional<Step::Room> kept;
    if (level_ == Level::Tensor) kept = step.room(static_cast<size_t>(elements.count * size), waiting_bytes_);
    std::byte *copy = kept ? kept->at() : nullptr;
    if (measurable(elements.dtype)) {
        row.measured(measure(elements.dtype, flat, elements.count, copy), elements.count, elements.times);
    } else {
        row.checksum = measure(c10::ScalarType::Byte, flat, elements.count * size, copy).checksum;
        explain(step, row, "nothing here measures its dtype");
    }
    if (kept) row.content = step.keep(*kept, row.checksum, waiting_bytes_);
}

void Recorder::submit(std::unique_ptr<Batch> batch) {
    Batch *given = batch.release();
    ++given->step->pending;
    if (reader_.load()->read(given->pieces.data(), given->pieces.size(), seen, given)) return;
    for (const Batch::One &one : given->tensors)  // what was to be checked is not
        explain(*given->step, *one.row, "its stream takes no task now: a graph is being captured");
    release(*given->step);
    delete given;
}

void Recorder::seen(void *data, const void *const *views) noexcept {
    const std::unique_ptr<Batch> batch(static_cast<Batch *>(data));
    for (size_t i = 0; i < batch->tensors.size(); ++i) {
        const Batch::One &one = batch->tensors[i];
        try {
            if (views != nullptr) {
                batch->recorder->measure_into(*batch->step, *one.row, one.elements, views[i]);
                const std::lock_guard lock(batch->step->mutex);
                Watch &watch = batch->step->watches[static_cast<size_t>(one.number)];
                watch.checksum = one.row->checksum;
                watch.after = batch->after;
            } else {
                batch->recorder->explain(*batch->step, *one.row, "its stream has failed before");
            }
        } catch (const std::exception &) {
            ++batch->recorder->lost_;
        }
    }
    for (size_t i = 0; i < batch->checks.size() && views != nullptr; ++i) {
        try {
            batch->recorder->verify(*batch, batch->checks[i], views[batch->tensors.size() + i]);
        } catch (const std::exception &) {
            ++batch->recorder->lost_;
        }
    }
    batch->recorder->release(*batch->step);
}

void Recorder::reduce(const std::shared_ptr<Step> &step, TensorRow &row, const at::Tensor &tensor) {
    const at::ScalarType dtype = tensor.scalar_type();
    const bool counted = at::isFloatingType(dtype) || at::isComplexType(dtype) || at::isIntegralType(dtype, true);
    if (tensor.numel() == 0 || !counted) return explain(*step, row, "no reduction measures its kind");
    if (level_ == Level::Tensor) explain(*step, row, "the content of this device's tensors is not kept");
    ++local_quiet();
    try {
        const at::AutoDispatchBelowADInplaceOrView below;
        const c10::impl::ExcludeDispatchKeyGuard no_casts(c10::autocast_dispatch_keyset);
        const at::Tensor values = at::isComplexType(dtype) ? tensor.abs() : tensor;
        const at::Tensor wide = values.scalar_type() == at::kDouble ? values : values.to(at::kFloat);
        const at::Tensor nan = at::isnan(wide), inf = at::isinf(wide);
        const at::Tensor finite = at::where(at::logical_or(nan, inf), at::zeros_like(wide), wide);
        constexpr double kInfinity = std::numeric_limits<double>::infinity();
        at::Tensor all = at::stack({wide.masked_fill(nan, kInfinity).amin(), wide.masked_fill(nan, -kInfinity).amax(),
                                    finite.sum(), finite.square().sum(), nan.sum().to(wide.scalar_type()),
                                    inf.sum().to(wide.scalar_type()), wide.eq(0).sum().to(wide.scalar_type())});
        const std::lock_guard lock(mutex_);
        reduced_.push_back({step, &row, tensor.numel(), std::move(all)});
    } catch (const std::exception &) {
        explain(*step, row, "the device could not measure it");
    }
    --local_quiet();
}

void Recorder::read_reductions() {
    std::vector<Reduced> reduced;
    {
        const std::lock_guard lock(mutex_);
        reduced.swap(reduced_);
    }
    if (reduced.empty()) return;
    ++local_quiet();
    try {
        const at::AutoDispatchBelowADInplaceOrView below;
        std::unordered_map<std::string, std::vector<size_t>> groups;
        for (size_t i = 0; i < reduced.size(); ++i)
            groups[reduced[i].values.device().str() + c10::toString(reduced[i].values.scalar_type())].push_back(i);
        for (const auto &[_, members] : groups) {
            std::vector<at::Tensor> rows;
            for (const size_t i : members) rows.push_back(reduced[i].values);
            const at::Tensor read = at::stack(rows).to(at::kCPU).to(at::kDouble).contiguous();
            const double *value = read.const_data_ptr<double>();
            for (const size_t i : members) {
                Statistics found{value[0], value[1], value[2], value[3]};
                found.nans = static_cast<int64_t>(value[4]);
                found.infinities = static_cast<int64_t>(value[5]);
                found.zeros = static_cast<int64_t>(value[6]);
                reduced[i].row->measured(found, reduced[i].elements, 1);
                value += 7;
            }
        }
    } catch (const std::exception &) {
        for (const Reduced &one : reduced) explain(*one.step, *one.row, "the device gave no numbers");
    }
    --local_quiet();
}

}  // namespace torchport::record
