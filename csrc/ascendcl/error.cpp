// What went wrong, in CANN's terms: one table from kinds of Fault to codes, and what each thread can ask afterwards.
#include <acl/acl_rt.h>
#include <acl/error_codes/rt_error_codes.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <new>
#include <utility>

#include "ascendcl/call.h"
#include "ascendcl/queue_thread.h"
#include "device/abandoned.h"
#include "device/machine.h"

namespace vnpu::acl {
namespace {

// Codes of the operator API (aclnn) and of the collectives, which no header of the wheel defines by number.
enum { NN_NULL = 161001, NN_INVALID = 161002, NN_INNER = 561000, NN_NO_KERNEL = 561003, NN_RUNTIME = 361001 };
enum {
    HCCL_PARAMETER = 1,
    HCCL_POINTER = 2,
    HCCL_MEMORY = 3,
    HCCL_INNER = 4,
    HCCL_UNSUPPORTED = 5,
    HCCL_TIMEOUT = 9,
    HCCL_RUNTIME = 15
};

struct Row {
    FaultKind kind;
    aclError runtime, operation, collective;
    const char *report;  // the code that CANN's own sentence would start with
    const char *title;   // CANN's words for it; torch_npu and people search logs for them
};

// Unsupported is 200006, not 207000: torch_npu prints a warning for the latter and goes on as if the call had worked.
// "EL0004" and "Failed to allocate memory" are what turns an error into torch.npu.OutOfMemoryError. The report codes
// E?9999 are avoided: with TORCH_NPU_COMPACT_ERROR_OUTPUT torch_npu replaces such a text by "CANN Inner Error".
constexpr Row kRows[] = {
    {FaultKind::InvalidArgument, ACL_ERROR_RT_PARAM_INVALID, NN_INVALID, HCCL_PARAMETER, "EE1001", "Invalid argument."},
    {FaultKind::NullArgument, ACL_ERROR_INVALID_PARAM, NN_NULL, HCCL_POINTER, "EH0002", "A pointer argument is null."},
    {FaultKind::InvalidDevice, ACL_ERROR_RT_INVALID_DEVICEID, NN_RUNTIME, HCCL_PARAMETER, "EE1001",
     "The device ID is invalid."},
    {FaultKind::NoDevice, ACL_ERROR_RT_CONTEXT_NULL, NN_RUNTIME, HCCL_RUNTIME, "EE1001", "The context is null."},
    {FaultKind::InvalidHandle, ACL_ERROR_RT_INVALID_HANDLE, NN_RUNTIME, HCCL_PARAMETER, "EE1001", "Invalid handle."},
    {FaultKind::InvalidAddress, ACL_ERROR_RT_PARAM_INVALID, NN_INVALID, HCCL_PARAMETER, "EE1001",
     "Invalid memory address."},
    {FaultKind::DoubleFree, ACL_ERROR_RT_MEMORY_FREE, NN_RUNTIME, HCCL_MEMORY, "EE1001", "Memory free error."},
    {FaultKind::OutOfBounds, ACL_ERROR_RT_PARAM_INVALID, NN_INVALID, HCCL_PARAMETER, "EE1001",
     "A range runs past its memory."},
    {FaultKind::WrongDirection, ACL_ERROR_RT_PARAM_INVALID, NN_INVALID, HCCL_PARAMETER, "EE1001",
     "The copy kind does not match its pointers."},
    {FaultKind::OutOfMemory, ACL_ERROR_RT_MEMORY_ALLOCATION, NN_RUNTIME, HCCL_MEMORY, "EL0004",
     "Failed to allocate memory."},
    {FaultKind::HostLimit, ACL_ERROR_RT_MEMORY_ALLOCATION, NN_RUNTIME, HCCL_MEMORY, "EL0004",
     "Failed to allocate memory."},
    {FaultKind::HostOutOfMemory, ACL_ERROR_RT_MEMORY_ALLOCATION, NN_RUNTIME, HCCL_MEMORY, "EL0004",
     "Failed to allocate memory."},
    {FaultKind::Timeout, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, NN_RUNTIME, HCCL_TIMEOUT, "EE1002",
     "Stream synchronize timeout."},
    {FaultKind::EventTimeout, ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, NN_RUNTIME, HCCL_TIMEOUT, "EE1002",
     "Event synchronize timeout."},
    {FaultKind::KernelFailure, ACL_ERROR_RT_AICORE_EXCEPTION, NN_INNER, HCCL_RUNTIME, "EZ1002",
     "The aicore execution is abnormal."},
    {FaultKind::NotReady, ACL_ERROR_RT_EVENT_NOT_COMPLETE, NN_RUNTIME, HCCL_RUNTIME, "EE1001",
     "The event is not complete."},
    {FaultKind::Unsupported, ACL_ERROR_FEATURE_UNSUPPORTED, NN_NO_KERNEL, HCCL_UNSUPPORTED, "EE1006",
     "The virtual NPU does not support this."},
    {FaultKind::ForkedProcess, ACL_ERROR_RT_DEV_SETUP_ERROR, NN_RUNTIME, HCCL_RUNTIME, "EE1003", "Device setup error."},
};

constexpr Row kInternal = {FaultKind::KernelFailure,
                           ACL_ERROR_INTERNAL_ERROR,
                           NN_INNER,
                           HCCL_INNER,
                           "EZ1003",
                           "Internal error of the virtual NPU."};

const Row &row_of(FaultKind kind) {
    for (const Row &row : kRows)
        if (row.kind == kind) return row;
    return kInternal;
}

aclError code_of(const Row &row, Face face) {
    return face == Face::Runtime ? row.runtime : face == Face::Operator ? row.operation : row.collective;
}

// Characters of one message: fixed, so that what a thread remembers has no destructor. Static destructors and other
// libraries call in after the main thread's own variables are gone.
constexpr size_t kLongest = 4096;

template <size_t limit>
class Text {
  public:
    void set(std::string_view text) noexcept {
        length_ = 0;
        append(text);
    }
    void append(std::string_view text) noexcept {
        const size_t more = std::min(text.size(), limit - length_);
        std::copy_n(text.data(), more, characters_.data() + length_);
        length_ += more;
        characters_[length_] = 0;
    }
    bool empty() const noexcept { return length_ == 0; }
    std::string_view view() const noexcept { return {characters_.data(), length_}; }
    const char *c_str() const noexcept { return characters_.data(); }

  private:
    std::array<char, limit + 1> characters_;  // zero: thread_local
    size_t length_;
};

// What a thread can ask after a failure. A message that nobody has asked for is the cause of the failure after it,
// unless a call has succeeded in between: who goes on after a failure has dealt with it.
struct Recent {
    aclError code;
    bool failing;                   // the last call has failed
    Text<kLongest> message;         // not asked for yet
    Text<kLongest> cause;           // the first failure before it, not asked for either
    Text<2 * kLongest + 16> given;  // the last answer, whose pointer the caller may still read
};
static_assert(std::is_trivially_destructible_v<Recent>);
constinit thread_local Recent recent{};

// Whether a failure of this call ends torch_npu's queue thread, if the calling thread is that. Failures of other calls
// it survives: memory that is full is asked for again.
bool ends_queue(Face face, std::string_view call) {
    static constexpr std::string_view kLaunches[] = {"aclopCompileAndExecute", "aclopCompileAndExecuteV2",
                                                     "aclrtMemcpyAsync",       "aclrtMemcpyAsyncWithCondition",
                                                     "aclrtMemsetAsync",       "aclrtRecordEvent",
                                                     "aclrtResetEvent",        "aclrtStreamWaitEvent",
                                                     "aclrtValueWrite",        "aclrtStreamWaitEventWithTimeout",
                                                     "aclrtValueWait"};
    return (face != Face::Runtime || std::ranges::find(kLaunches, call) != std::end(kLaunches)) && on_queue_thread();
}

void abandon_device(Face face, const char *call, FaultKind kind, const std::string &sentence) {
    if (ends_queue(face, call)) abandon(Machine::instance().current_index(), {kind, call + (": " + sentence)});
}

// CANN's form: code, process, time, sentence. torch_npu takes what follows the time when it shortens an error.
std::string compose(const char *report, const char *title, std::string_view sentence, const char *call) {
    const auto now = std::chrono::system_clock::now();
    const auto micros =
        std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1'000'000;
    const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
    std::tm local{};
    localtime_r(&seconds, &local);
    std::array<char, 32> stamp{};
    const size_t length = std::strftime(stamp.data(), stamp.size(), "%Y-%m-%d-%H:%M:%S", &local);
    return fmt::format("{}: [PID: {}] {}.{:03}.{:03} {} {} [virtual NPU, {}]", report, getpid(),
                       std::string_view(stamp.data(), length), micros / 1000, micros % 1000, title, sentence, call);
}

}  // namespace

constinit std::atomic<int> failing_threads{0};

void settle() noexcept {
    if (!std::exchange(recent.failing, false)) return;
    failing_threads.fetch_sub(1, std::memory_order_relaxed);
}

void set_error(aclError code, std::string_view message) {
    recent.code = code;
    if (!recent.failing) {
        recent.cause.set("");
        recent.failing = true;
        failing_threads.fetch_add(1, std::memory_order_relaxed);
    } else if (recent.cause.empty()) {
        recent.cause.set(recent.message.view());
    }
    recent.message.set(message);
}

aclError caught(Face face, const char *call) noexcept {
    const Row *row = &kInternal;
    std::string sentence;
    aclError code = ACL_ERROR_INTERNAL_ERROR;
    try {
        try {
            throw;
        } catch (const Fault &fault) {
            row = &row_of(fault.kind());
            code = code_of(*row, face);
            sentence = fault.what();
        } catch (const Error &error) {
            code = error.code();
            set_error(code, compose("EE1001", "Invalid use of the API.", error.what(), call));
            abandon_device(face, call, FaultKind::Unsupported, error.what());
            return code;
        } catch (const std::bad_alloc &) {
            row = &row_of(FaultKind::HostOutOfMemory);
            code = face == Face::Runtime ? ACL_ERROR_BAD_ALLOC : code_of(*row, face);
            sentence = "This machine's memory is exhausted.";
        } catch (const std::exception &error) {
            code = code_of(*row, face);
            sentence = error.what();
        } catch (...) {
            code = code_of(*row, face);
            sentence = "An exception that is not a std::exception.";
        }
        set_error(code, compose(row->report, row->title, sentence, call));
        abandon_device(face, call, row->kind, sentence);
    } catch (...) {
        // No memory for the sentence: the code must do.
        recent.code = code;
    }
    return code;
}

}  // namespace vnpu::acl

using vnpu::acl::recent;

// Answers the latest message of this thread once, as CANN does, with the first cause behind it; the pointer holds until
// the next call.
const char *aclGetRecentErrMsg() {
    recent.given.set(recent.message.view());
    if (!recent.cause.empty()) {
        recent.given.append("\nbecause: ");
        recent.given.append(recent.cause.view());
    }
    recent.message.set("");
    recent.cause.set("");
    return recent.given.c_str();
}

aclError aclrtPeekAtLastError(aclrtLastErrLevel) { return recent.code; }

aclError aclrtGetLastError(aclrtLastErrLevel) { return std::exchange(recent.code, ACL_SUCCESS); }
