// How an operator is written:
//
//     OP(aclnnAdd, broadcasts(out, {&self, &other}), at::add_out(out, self, other, alpha))
//
// The name is CANN's; the parameters have CANN's names and come from signatures.json. The second argument is what
// the first phase (aclnnAddGetWorkspaceSize) checks, the rest is what runs on the stream. Both see each parameter
// as an ATen value it owns (tensor.h). That line is all: entry points, the support table, the trace, the check of the
// dtypes and ranks that CANN's own checks take (checks.json) and of the memory behind each operand come from it.
//
// Checks are statements, which `;` joins and the comma behind the last one ends. Their vocabulary is that of check.h
// (dtype, rank, shape, same_shape, same_dtype, broadcasts, promotes, expands, optional ...) with network, fractal_nz,
// on_chip and tiled of the headers beside it, and of aclop/operands.h (allowed, alike, holds, sizes ...). A check of
// one family is a function check_<what>; one that gives a value to the kernel is named for the value.
#pragma once

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "aclnn.h"
#include "ascendcl/call.h"
#include "device/observed.h"
#include "device/overflow.h"
#include "device/stream.h"
#include "opapi/aclnn/check.h"
#include "opapi/aclnn/dump.h"
#include "opapi/aclnn/ranges.h"
#include "opapi/aclnn/result_layout.h"
#include "opapi/aclnn/tensor.h"
#include "opapi/aclnn/work.h"

struct aclOpExecutor;
using aclnnStatus = int32_t;

namespace vnpu::opapi {

enum class Phase { Check, Run, Describe, Dump, Blame };

// What a phase has learned of a call.
struct Checked {
    std::string arguments = {};         // for the trace; empty when it is off
    int64_t elements = 0;               // of all operands
    at::ScalarType dtype = at::kFloat;  // of the first tensor that is read; in Blame, after a failure
};

// Made by the first phase, run by the stream in the second.
class Executor : public Task {
  public:
    Executor(const char *name, Checked checked)
        : name_(name), elements_(checked.elements), arguments_(std::move(checked.arguments)) {
        if (observing()) [[unlikely]]
            launch.external = external_correlation();
    }
    const char *label() const noexcept override { return name_; }
    FaultKind failure(FaultKind thrown) noexcept override;
    bool kernel() const noexcept override { return true; }
    // Copies the operator's tensors for a dump.
    virtual void snapshot(Snapshot &into) = 0;
    // Shows the tensors as they were described, and another executor of the same call (repeatable.h).
    virtual void show_to(Taker &taker) = 0;
    virtual std::unique_ptr<Executor> copy() const = 0;
    const std::string &arguments() const noexcept { return arguments_; }
    // Of all operands: how much there is to compute, as far as sizes tell.
    int64_t elements() const noexcept { return elements_; }

    // An executor is a dozen small allocations. They are freed where they were made, by the next first phase: freed by
    // the worker they would leave its caller's thread without a cache of free blocks, which cost a microsecond a call.
    void retire() noexcept override;
    static void free_retired() noexcept;

  protected:
    virtual at::ScalarType first_read() = 0;
    const char *const name_;

  private:
    Executor *next_retired_ = nullptr;
    const int64_t elements_;
    const std::string arguments_;
};

// Counts the operator that has just run (device/launches.h), unless it only moves bytes.
void count_run(std::string_view name) noexcept;

// How ATen's kernels run as a device's: below autograd, with the number of threads the program has set, and, on a
// thread of the program, unseen by its modes (TorchDispatchMode, functorch) and its profiler.
class KernelScope {
  public:
    KernelScope();

  private:
    c10::impl::ForceDispatchKeyGuard below_all_;
    std::optional<at::RecordFunctionGuard> recorded_;
};

// ATen's errors as one sentence: what() carries fifty lines of C++ frames.
template <class Op>
Checked in_phase(Phase phase, Op &op, Taker *into = nullptr) {
    try {
        return op(phase, into);
    } catch (const c10::Error &error) {
        throw std::runtime_error(error.what_without_backtrace());
    }
}

template <class Op>
class OpExecutor final : public Executor {
  public:
    OpExecutor(const char *name, Checked checked, Op &&op) : Executor(name, std::move(checked)), op_(std::move(op)) {}
    void run() override {
        const KernelScope scope;
        in_phase(Phase::Run, op_);
        count_run(name_);
    }
    void describe(Description &what) override {
        Shapes shapes(what);
        in_phase(Phase::Describe, op_, &shapes);
        what.work = work_of(name_, what);
    }
    void snapshot(Snapshot &into) override {
        const KernelScope scope;
        in_phase(Phase::Dump, op_, &into);
    }

    void show_to(Taker &taker) override { in_phase(Phase::Describe, op_, &taker); }
    std::unique_ptr<Executor> copy() const override {
        Checked checked{arguments(), elements(), at::kFloat};
        return std::make_unique<OpExecutor>(name_, std::move(checked), Op(op_));
    }

  protected:
    at::ScalarType first_read() override { return in_phase(Phase::Blame, op_).dtype; }

  private:
    Op op_;
};

template <class Op>
void plan(const char *name, uint64_t *workspace, aclOpExecutor **executor, Op op) {
    Executor::free_retired();
    Checked checked = in_phase(Phase::Check, op);
    *workspace = 0;  // ATen allocates what a kernel needs on the host
    Executor *made = new OpExecutor<Op>(name, std::move(checked), std::move(op));
    *executor = reinterpret_cast<aclOpExecutor *>(made);
}

// In saturation (device/overflow.h): a float16 result out of range becomes the largest finite value, nan becomes 0, and
// the device's status tells. Wider results stay as computed.
void keep_finite(const at::Tensor &result);
inline void keep_finite(const Operands &results) {
    for (const Operand &result : results) keep_finite(static_cast<const at::Tensor &>(result));
}
template <class... T>
void keep_finite_all(const T &...results) {
    (keep_finite(results), ...);
}

// Queues the executor on the stream.
aclnnStatus launch(const char *name, aclOpExecutor *executor, void *stream) noexcept;

inline std::string show(const at::Tensor &tensor) { return describe(tensor); }
std::string show(const Operands &list);
std::string show(const ScalarArgument &scalar);
std::string show(const Ints &ints);
std::string show(const Bools &bools);
std::string show(const std::vector<at::Scalar> &scalars);
inline std::string show(const std::string &text) { return '"' + text + '"'; }
inline std::string show(at::ScalarType dtype) { return c10::toString(dtype); }
template <class T>
    requires std::is_arithmetic_v<T>
std::string show(T value) {
    return fmt::format("{}", value);
}

// "self=float32[2, 3], alpha=1": what the trace writes of a call. `names` is the list of names, with commas.
template <class... T>
std::string show_call(std::string_view names, const T &...values) {
    std::string line;
    const auto one = [&](const std::string &value) {
        const size_t comma = names.find(',');
        line += fmt::format("{}{}={}", line.empty() ? "" : ", ", names.substr(0, comma), value);
        names.remove_prefix(comma == std::string_view::npos ? names.size() : comma + 1);
    };
    (one(show(values)), ...);
    return line;
}

}  // namespace vnpu::opapi

#define OP_EXPORT extern "C" __attribute__((visibility("default")))

#define OP(NAME, CHECK, ...)                                                                                         \
    static_assert(sizeof #__VA_ARGS__ > 1, #NAME " has no kernel: OP(name, check, kernel)");                         \
    OP_EXPORT aclnnStatus NAME##GetWorkspaceSize(PARAMS_##NAME, uint64_t *workspaceSize, aclOpExecutor **executor) { \
        using namespace vnpu::opapi;                                                                                 \
        return VNPU_OPERATOR_API() {                                                                                 \
            plan(#NAME, workspaceSize, executor, [OWN_##NAME](Phase phase, Taker *into) mutable -> Checked {         \
                if (phase == Phase::Check) {                                                                         \
                    CHECKS_##NAME;                                                                                   \
                    CHECK;                                                                                           \
                    required(OPERANDS_##NAME);                                                                       \
                    return {.arguments = vnpu::Trace::enabled() ? show_call(NAMES_##NAME) : std::string(),           \
                            .elements = elements(OPERANDS_##NAME)};                                                  \
                }                                                                                                    \
                if (phase == Phase::Blame) return {.dtype = first_dtype(INPUTS_##NAME)};                             \
                if (phase == Phase::Describe) {                                                                      \
                    into->take({INPUTS_##NAME}, {OUTPUTS_##NAME});                                                   \
                    return {};                                                                                       \
                }                                                                                                    \
                live_now(OPERANDS_##NAME);                                                                           \
                if (phase == Phase::Dump) {                                                                          \
                    into->take({INPUTS_##NAME}, {OUTPUTS_##NAME});                                                   \
                    return {};                                                                                       \
                }                                                                                                    \
                [[maybe_unused]] const auto laid_out = as_laid_out(ONLY_OUT_##NAME);                                 \
                __VA_ARGS__;                                                                                         \
                laid_out_again(laid_out);                                                                            \
                if (vnpu::saturates()) [[unlikely]]                                                                  \
                    keep_finite_all(RESULTS_##NAME);                                                                 \
                return {};                                                                                           \
            });                                                                                                      \
        };                                                                                                           \
    }                                                                                                                \
    OP_EXPORT aclnnStatus NAME(void *, uint64_t, aclOpExecutor *executor, void *stream) {                            \
        return vnpu::opapi::launch(#NAME, executor, stream);                                                         \
    }
