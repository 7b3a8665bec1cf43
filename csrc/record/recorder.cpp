#include "record/recorder.h"

#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <pthread.h>
#include <unistd.h>

#include "record/checking.h"
#include "record/operators.h"

namespace torchport::record {

namespace {

// The backward node that is running in this thread.
struct Node final : at::ObserverContext {
    ~Node() override;
    int64_t sequence = -1;
    std::string name;
    Node *outer = nullptr;
    size_t modules = 0;  // that ran when it began
};

struct Module {
    int32_t text;
    bool counts;
};

// What one thread does.
struct Local {
    int depth = 0;  // operators that are noted: what they call is theirs
    int quiet = 0;
    Node *node = nullptr;
    std::vector<Module> modules;
    int32_t number = -1;
};
thread_local Local local;

std::atomic<Recorder *> active{nullptr};
std::atomic<int> recorders{0};
std::atomic<int32_t> threads{0};

Node::~Node() { local.node = outer; }

std::unique_ptr<at::ObserverContext> begin_any(const at::RecordFunction &function) {
    Recorder *recorder = active.load(std::memory_order_acquire);
    if (recorder == nullptr) return nullptr;
    if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
        auto node = std::make_unique<Node>();
        node->sequence = function.seqNr();
        node->name = function.name();
        node->outer = local.node;
        node->modules = local.modules.size();
        local.node = node.get();
        return node;
    }
    return recorder->begin(function);
}

void end_any(const at::RecordFunction &function, at::ObserverContext *context) {
    auto *call = dynamic_cast<ActiveCall *>(context);
    if (call == nullptr) return;
    Recorder *recorder = active.load(std::memory_order_acquire);
    if (recorder != nullptr) recorder->end(function, *call);
}

bool has_python(const at::Tensor &tensor) {
    return tensor.unsafeGetTensorImpl()->key_set().has_any(
        c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched,
                             c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize}));
}

// Calls `body` with each tensor of an argument.
template <class Body>
void each_tensor(const c10::IValue &value, Body &&body) {
    if (value.isTensor()) {
        if (value.toTensor().defined()) body(value.toTensor());
    } else if (value.isList()) {  // of tensors, or of optional ones
        for (const c10::IValue &part : value.toListRef())
            if (part.isTensor() && part.toTensor().defined()) body(part.toTensor());
    }
}

// The first tensor among the inputs, which says where the kernel runs.
const at::Tensor *first_tensor(c10::ArrayRef<c10::IValue> inputs) {
    for (const c10::IValue &value : inputs) {
        if (value.isTensor()) {
            if (value.toTensor().defined()) return &value.toTensor();
        } else if (value.isTensorList()) {
            for (const c10::IValue &part : value.toListRef())
                if (part.toTensor().defined()) return &part.toTensor();
        }
    }
    return nullptr;
}

}  // namespace

ActiveCall::~ActiveCall() { --local.depth; }

Recorder::Recorder(Level level, bool reductions, void *classify)
    : number_(recorders++),
      level_(level),
      reductions_(reductions),
      source_(texts_, classify),
      step_(std::make_shared<Step>()) {
    queue_.push_back(step_);
    static const int forked = pthread_atfork(nullptr, nullptr, [] { active.store(nullptr); });
    TORCH_CHECK(forked == 0, "pthread_atfork failed");
}

Recorder::~Recorder() { stop(); }

void Recorder::start() {
    active.store(this, std::memory_order_release);
    if (level_ == Level::Module || started_) return;
    started_ = true;
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback(begin_any, end_any)
                                        .needsInputs(true)
                                        .needsOutputs(true)
                                        .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

void Recorder::stop() {
    if (started_) at::removeCallback(handle_);
    started_ = false;
    Recorder *self = this;
    active.compare_exchange_strong(self, nullptr);
}

void Recorder::quiet(bool begin) noexcept { local.quiet += begin ? 1 : -1; }

int &Recorder::local_quiet() noexcept { return local.quiet; }

void Recorder::enter_module(int32_t text, bool counts) {
    const bool inside = outside_ || local.modules.empty() ? false : local.modules.back().counts;
    local.modules.push_back({text, counts || inside});
}

void Recorder::leave_module() {
    if (!local.modules.empty()) local.modules.pop_back();
}

int64_t Recorder::calls() {
    const std::lock_guard lock(mutex_);
    const std::lock_guard rows(step_->mutex);
    return static_cast<int64_t>(step_->calls.size());
}

bool Recorder::noted(const Operator &known, const at::RecordFunction &function) const {
    if (!known.known) return false;
    const at::Tensor *first = first_tensor(function.inputs());
    const c10::DeviceType device = first == nullptr ? c10::DeviceType::CPU : first->device().type();
    const auto backend = static_cast<size_t>(backend_of(device));
    if (known.composite[backend]) return false;
    // What autocast or a tensor of a Python class stands before comes again as what they make of it.
    if (known.casts[backend] && at::autocast::is_autocast_enabled(device) &&
        !c10::impl::tls_is_dispatch_key_excluded(backend == 0   ? c10::DispatchKey::AutocastCPU
                                                 : backend == 1 ? c10::DispatchKey::AutocastCUDA
                                                                : c10::DispatchKey::AutocastPrivateUse1))
        return false;
    return first == nullptr || !has_python(*first);
}

Recorder::Adding Recorder::adding() {
    const std::lock_guard lock(mutex_);
    ++step_->pending;  // it cannot end before the lock is given away
    return {*this, step_};
}

std::unique_ptr<at::ObserverContext> Recorder::begin(const at::RecordFunction &function) {
    if (local.depth > 0 || local.quiet > 0 || !on_.load(std::memory_order_relaxed)) return nullptr;
    const Operator &known = operator_of(function.name(), function.overload_name(), texts_, wanted_, number_);
    if (!noted(known, function)) return nullptr;
    // A trace of the virtual NPU lets its kernels' own calls be seen.
    if (const DeviceReader *reader = reader_.load(std::memory_order_relaxed); reader != nullptr && reader->computes())
        return nullptr;
    wait_for_room();
    auto call = std::make_unique<ActiveCall>();
    ++local.depth;  // until the call is destroyed
    call->known = &known;
    const Adding now = adding();
    call->step = now.step;
    try {
        const auto inputs = function.inputs();
        for (const size_t place : known.written) {
            if (place >= inputs.size()) continue;
            each_tensor(inputs[place], [&](const at::Tensor &tensor) {
                if (tensor.has_storage())
                    call->written.push_back(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
            });
        }
        identify(*call, function);
        if (call->known == nullptr) return call;
        for (const size_t place : known.hidden)
            if (place < inputs.size())
                each_tensor(inputs[place],
                            [&](const at::Tensor &tensor) { call->hidden.emplace_back(tensor.getIntrusivePtr()); });
    } catch (const std::exception &) {
        ++lost_;
        call->known = nullptr;
    }
    return call;
}

void Recorder::identify(ActiveCall &call, const at::RecordFunction &function) {
    CallRow row;
    const Node *node = local.node;
    row.phase = optimizing_.load(std::memory_order_relaxed) ? kOptimizer
                : node == nullptr                           ? kForward
                : local.modules.size() > node->modules      ? kRecompute
                                                            : kBackward;
    Where where{-1, -1, -1};
    bool counts = true;
    if (row.phase == kBackward) {
        row.sequence = node->sequence;
        const std::lock_guard lock(mutex_);
        const auto forward = forwards_.find(row.sequence);
        if (forward != forwards_.end()) where = forward->second;
        counts = outside_ || forward != forwards_.end();
    } else {
        const Place place = source_.here();
        where = {local.modules.empty() ? -1 : local.modules.back().text, place.function, place.source};
        counts = outside_ || (!local.modules.empty() && local.modules.back().counts);
        call.sequence = function.seqNr();
    }
    if (!counts || !call.known->wanted) {
        call.known = nullptr;
        return;
    }
    if (call.sequence >= 0) {
        const std::lock_guard lock(mutex_);
        forwards_[call.sequence] = where;  // the last one with this number makes the node
    }
    Tensors tensors;
    const int32_t arguments = texts_.number(as_json(function.inputs(), call.known->schema->arguments(), tensors));
    size_t known = 0;
    int32_t calls = 0;
    {
        const std::lock_guard lock(call.step->mutex);
        known = call.step->tensors.size();
        calls = static_cast<int32_t>(call.step->calls.size());
    }
    const std::vector<int32_t> inputs = look_at(call.step, tensors, nullptr, calls - 1);
    remember_inputs(call, tensors, inputs, known);
    if (local.number < 0) local.number = threads++;
    row.thread = static_cast<int16_t>(local.number & 0x7FFF);
    const int32_t node_text = node == nullptr ? -1 : texts_.number(node->name);
    const std::lock_guard lock(call.step->mutex);
    Step &step = *call.step;
    row.inputs = static_cast<int32_t>(step.links.size());
    row.input_count = static_cast<int32_t>(inputs.size());
    step.links.insert(step.links.end(), inputs.begin(), inputs.end());
    row.name = step.line(call.known->name_text);
    row.overload = step.line(call.known->overload_text);
    row.module = step.line(where.module);
    row.function = step.line(where.function);
    row.source = step.line(where.source);
    row.arguments = step.line(arguments);
    row.node = step.line(node_text);
    call.row = step.calls.size();
    call.module = where.module;
    call.source = where.source;
    step.calls.push_back(row);
}

void Recorder::end(const at::RecordFunction &function, ActiveCall &call) {
    try {
        if (!call.written.empty()) {
            const std::lock_guard lock(mutex_);
            for (c10::StorageImpl *storage : call.written) known_.written(storage);
        }
        if (call.known == nullptr) return;
        if (!call.step->hold()) {  // another thread has ended the step meanwhile
            ++lost_;
            return;
        }
        const Adding now{*this, call.step};
        Tensors tensors;
        const int32_t results = texts_.number(as_json(function.outputs(), call.known->schema->returns(), tensors));
        const char *reason = call.known->empty   ? "its memory was not written before"
                             : call.known->later ? kWrittenLater
                                                 : nullptr;
        if (call.known->begins || call.known->waits) follow_collective(*call.known, tensors);
        const auto results_end = static_cast<ptrdiff_t>(tensors.size());
        std::vector<at::Tensor> alive;
        alive.reserve(call.hidden.size());
        for (const auto &weak : call.hidden)
            if (auto impl = weak.lock()) tensors.push_back(&alive.emplace_back(std::move(impl)));
        const std::vector<int32_t> seen =
            look_at(call.step, tensors, reason, static_cast<int32_t>(call.row), choose_checks(call));
        follow_results(call, tensors, seen);
        if (call.known->later) {  // who reads its results sees what has come since
            const std::lock_guard lock(mutex_);
            for (c10::StorageImpl *storage : call.written) known_.written(storage);
        }
        const std::vector<int32_t> outputs(seen.begin(), seen.begin() + results_end);
        std::vector<int32_t> written;
        std::copy_if(seen.begin() + results_end, seen.end(), std::back_inserter(written),
                     [&](int32_t one) { return std::find(outputs.begin(), outputs.end(), one) == outputs.end(); });
        const std::lock_guard lock(call.step->mutex);
        CallRow &row = call.step->calls[call.row];
        row.outputs = static_cast<int32_t>(call.step->links.size());
        row.output_count = static_cast<int32_t>(outputs.size());
        call.step->links.insert(call.step->links.end(), outputs.begin(), outputs.end());
        row.written_count = static_cast<int32_t>(written.size());
        call.step->links.insert(call.step->links.end(), written.begin(), written.end());
        row.results = call.step->line(results);
        if (call.sequence >= 0 && static_cast<int64_t>(at::sequence_number::peek()) > call.sequence)
            row.sequence = call.sequence;
    } catch (const std::exception &) {
        ++lost_;
    }
}

void Recorder::follow_collective(const Operator &known, const Tensors &results) {
    const std::lock_guard lock(mutex_);
    for (const at::Tensor *tensor : results) {
        if (tensor == nullptr || !tensor->has_storage()) continue;
        if (known.begins)
            known_.begin_writing(*tensor);
        else
            known_.finish_writing(*tensor);
    }
}

void Recorder::note(std::string_view name, int32_t module, c10::ArrayRef<c10::TensorImpl *> inputs,
                    c10::ArrayRef<c10::TensorImpl *> outputs, std::string_view arguments, std::string_view results) {
    if (!on_.load() || local.quiet > 0) return;
    std::vector<at::Tensor> held;
    held.reserve(inputs.size() + outputs.size());
    Tensors given, made;
    const auto hold = [&](c10::TensorImpl *impl, Tensors &to) {
        c10::raw::intrusive_ptr::incref(impl);
        held.emplace_back(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(impl));
        to.push_back(&held.back());
    };
    for (c10::TensorImpl *impl : inputs) hold(impl, given);
    for (c10::TensorImpl *impl : outputs) hold(impl, made);
    const Adding now = adding();
    const std::shared_ptr<Step> &step = now.step;
    const Place place = source_.here();
    std::vector<int32_t> from, to;
    try {
        from = look_at(step, given, nullptr, -1);
        to = look_at(step, made, nullptr, -1);
    } catch (const std::exception &) {
        ++lost_;
        return;
    }
    const int32_t text = texts_.number(name), taken = texts_.number(arguments), given_back = texts_.number(results);
    const std::lock_guard lock(step->mutex);
    CallRow row;
    row.inputs = static_cast<int32_t>(step->links.size());
    row.input_count = static_cast<int32_t>(from.size());
    row.outputs = row.inputs + row.input_count;
    row.output_count = static_cast<int32_t>(to.size());
    step->links.insert(step->links.end(), from.begin(), from.end());
    step->links.insert(step->links.end(), to.begin(), to.end());
    row.name = step->line(text);
    row.module = step->line(module);
    row.function = step->line(place.function);
    row.source = step->line(place.source);
    row.arguments = step->line(taken);
    row.results = step->line(given_back);
    row.phase = local.node != nullptr ? kRecompute : kForward;
    step->calls.push_back(row);
}

void Recorder::name_tensor(c10::TensorImpl *tensor, int32_t text) {
    if (!tensor->has_storage()) return;
    const std::lock_guard lock(mutex_);
    const c10::Storage &storage = tensor->unsafe_storage();
    Named &named = names_[storage.unsafeGetStorageImpl()];
    if (named.at.empty()) named.held = storage.getWeakStorageImpl();
    named.at.emplace_back(tensor->storage_offset(), text);
}

}  // namespace torchport::record
