#include <ATen/Parallel.h>
#include <fmt/ranges.h>

#include "ascendcl/queue_thread.h"
#include "device/dry.h"
#include "device/launches.h"
#include "device/machine.h"
#include "opapi/aclnn/engine.h"
#include "opapi/aclnn/footprint.h"
#include "opapi/aclnn/gap.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/repeatable.h"
#include "opapi/aclnn/unbacked.h"
#include "opapi/aclnn/waiting.h"
#include "opapi/reordered/order.h"

namespace vnpu::opapi {
namespace {

std::atomic<Executor *> retired{nullptr};

// Operators with no more elements than this may be run by the thread that launches them: a few microseconds.
constexpr int64_t kSmall = 4096;

constexpr aclnnStatus kFindKernelError = 561003;  // ACLNN_ERR_INNER_FIND_KERNEL_ERROR: no kernel for the operator

}  // namespace

void Executor::retire() noexcept {
    if (Trace::enabled()) [[unlikely]]
        footprint::report(name_, arguments_);
    next_retired_ = retired.load(std::memory_order_relaxed);
    while (!retired.compare_exchange_weak(next_retired_, this, std::memory_order_release, std::memory_order_relaxed)) {
    }
}

// What a kernel was given wrong, an index or freed memory, is found by the core on hardware.
FaultKind Executor::failure(FaultKind thrown) noexcept {
    switch (thrown) {
        case FaultKind::InvalidArgument:
        case FaultKind::NullArgument:
        case FaultKind::InvalidAddress:
        case FaultKind::OutOfBounds:
        case FaultKind::KernelFailure:
            break;
        default:
            return thrown;
    }
    try {
        return failure_on(engine_of(name_, first_read()));
    } catch (...) {
        return FaultKind::KernelFailure;
    }
}

void Executor::free_retired() noexcept {
    if (retired.load(std::memory_order_relaxed) == nullptr) return;
    Executor *executor = retired.exchange(nullptr, std::memory_order_acquire);
    while (executor != nullptr) delete std::exchange(executor, executor->next_retired_);
}

std::unordered_set<std::string_view> &waiting_operators() {
    static auto *all = new std::unordered_set<std::string_view>;  // never destroyed: launches come until the very end
    return *all;
}

void count_run(std::string_view name) noexcept {
    if (name != "aclnnInplaceCopy" && name != "aclnnNpuFormatCast") count_launch();
}

KernelScope::KernelScope()
    : below_all_(c10::default_included_set | reordered::keys(),
                 c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView) {
    // Setting the guard costs as much as a small kernel, and most programs have no profiler that could see one.
    if (Trace::enabled() || at::hasCallbacks()) recorded_.emplace(Trace::enabled());
    // ATen keeps the number of OpenMP threads per thread and sets it once; torch.set_num_threads after the first
    // operator on a thread that is not the program's would not reach it.
    if (on_worker_thread() || acl::on_queue_thread()) at::init_num_threads();
    if (Trace::enabled()) [[unlikely]]
        footprint::watch();
}

aclnnStatus launch(const char *name, aclOpExecutor *executor, void *stream) noexcept {
    Executor *task = reinterpret_cast<Executor *>(executor);
    if (Trace::enabled()) [[unlikely]]
        Trace::call(name, fmt::format("{}, stream={}", task != nullptr ? task->arguments() : "executor=null", stream),
                    "launch");
    return acl::call<acl::Face::Operator>(name) << [&] {
        if (task == nullptr)
            fail(FaultKind::NullArgument,
                 "parameter executor is null: the first phase did not succeed or was not called");
        // torch_npu's queue thread does nothing but launching: an operator may take as long as it likes there. With a
        // trace the worker runs all: what is noted of ATen's calls (footprint.h) must not be noted of the program's.
        const bool may_run_here = !Trace::enabled() &&
                                  (task->elements() <= kSmall || acl::on_queue_thread() || dry::on()) &&
                                  !waiting_operators().contains(name);
        std::unique_ptr<Task> owned;
        if (any_repeatable.load(std::memory_order_relaxed)) [[unlikely]]
            owned = once_more(task);
        if (owned == nullptr) owned.reset(task);
        if (any_unbacked.load(std::memory_order_relaxed)) [[unlikely]]
            refuse_unbacked(static_cast<Executor &>(*owned));
        if (std::shared_ptr<acl::Dump> dump = acl::Dump::current()) [[unlikely]]
            owned = dumping(static_cast<Executor *>(owned.release()), std::move(dump));
        Machine::instance().stream(stream)->submit(std::move(owned),
                                                   may_run_here ? Stream::By::Either : Stream::By::Worker);
    };
}

aclnnStatus answer_gap(const char *name) noexcept {
    return acl::call<acl::Face::Operator>(name) << [&] {
        throw acl::Error(
            kFindKernelError,
            fmt::format("The virtual NPU does not implement {} yet. This says nothing about Ascend hardware. "
                        "`torchport vnpu ops` lists what it has.",
                        name));
    };
}

aclnnStatus answer_elsewhere(const char *name, const char *chips, aclnnStatus code) noexcept {
    const std::string_view here = Machine::instance().settings().chip->name;
    if (here.starts_with(chips)) return answer_gap(name);
    return acl::call<acl::Face::Operator>(name) <<
           [&] { throw acl::Error(code, fmt::format("{}: CANN has it for {} only, not for {}", name, chips, here)); };
}

std::string show(const Operands &list) {
    std::string line;
    for (const Operand &tensor : list) line += (line.empty() ? "" : ", ") + describe(tensor);
    return "(" + line + ")";
}

std::string show(const ScalarArgument &scalar) {
    if (!scalar.has_value()) return "null";
    if (scalar.get().isBoolean()) return scalar.get().toBool() ? "true" : "false";
    if (scalar.get().isUnsigned()) return fmt::format("{}", scalar.get().toUInt64());
    if (scalar.get().isIntegral(false)) return fmt::format("{}", scalar.get().toLong());
    if (scalar.get().isFloatingPoint()) return fmt::format("{}", scalar.get().toDouble());
    return "complex";
}

std::string show(const Ints &ints) {
    return ints.given ? fmt::format("[{}]", fmt::join(ints.begin(), ints.end(), ", ")) : "null";
}

std::string show(const Bools &bools) {
    std::string line;
    for (const bool bit : bools) line += bit ? '1' : '0';
    return line;
}

std::string show(const std::vector<at::Scalar> &scalars) {
    std::string line;
    for (const at::Scalar &scalar : scalars) line += fmt::format("{}{}", line.empty() ? "" : ", ", scalar.toDouble());
    return "[" + line + "]";
}

}  // namespace vnpu::opapi
