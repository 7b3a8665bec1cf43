// Faults in CANN's terms: one table from kinds of Fault to codes and words (faults.toml), and the last error of each
// thread.
#include <acl/acl_rt.h>
#include <acl/error_codes/rt_error_codes.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <new>
#include <utility>

#include "ascendcl/call.h"
#include "ascendcl/error_code.h"
#include "ascendcl/queue_thread.h"
#include "device/abandoned.h"
#include "device/machine.h"

namespace vnpu::acl {
namespace {

struct Answer {
    aclError code;
    const char *report;  // title and report code, as CANN writes them
    const char *text;    // CANN's words; torch_npu and people search logs for them
};

struct Row {
    Answer runtime, operation, collective;
};

#include "errors.inc"

const Answer &answer_of(const Row &row, Face face) {
    return face == Face::Runtime ? row.runtime : face == Face::Operator ? row.operation : row.collective;
}

// What a code without a kind of Fault is told as.
constexpr Answer kOwnCode = {0, "Invalid_Argument(EE1001)", "The argument is invalid. Reason:"};
constexpr Answer kMissing = {0, "Not_Supported(EE1006)", ""};

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

std::string filled(std::string text) {
    static std::atomic<int> serial{0};
    const auto fill = [&text](std::string_view what, int (*value)()) {
        if (const size_t place = text.find(what); place != std::string::npos)
            text.replace(place, what.size(), std::to_string(value()));
    };
    fill("{device}", [] { return std::max(Machine::instance().current_index(), 0); });
    fill("{serial}", [] { return serial.fetch_add(1) + 1; });
    return text;
}

// CANN's form (runtime: error_manager.cc): process, time, title and report code, text. What CANN calls an inner error,
// E?9999, has a line of its own before; with TORCH_NPU_COMPACT_ERROR_OUTPUT torch_npu replaces such a message, as it
// does on hardware, and takes of others what follows the time.
std::string compose(const Answer &answer, std::string_view sentence, const char *call) {
    const auto now = std::chrono::system_clock::now();
    const auto micros =
        std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1'000'000;
    const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
    std::tm local{};
    localtime_r(&seconds, &local);
    std::array<char, 32> stamp{};
    const size_t length = std::strftime(stamp.data(), stamp.size(), "%Y-%m-%d-%H:%M:%S", &local);
    const std::string_view report = answer.report;
    const std::string_view code = report.substr(report.rfind('(') + 1, 6);
    const std::string head = code.ends_with("9999") ? fmt::format("{}: Inner Error!\n{}", code, code) : "";
    const std::string text =
        *answer.text == 0 ? std::string(sentence) : fmt::format("{} [{}]", filled(answer.text), sentence);
    return fmt::format("{}[PID: {}] {}.{:03}.{:03} {}: {} [virtual NPU, {}]", head, getpid(),
                       std::string_view(stamp.data(), length), micros / 1000, micros % 1000, report, text, call);
}

}  // namespace

constinit std::atomic<int> failing_threads{0};

aclError code_of(FaultKind kind) { return answer_of(row_of(kind), Face::Runtime).code; }

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
    FaultKind kind = FaultKind::KernelFailure;
    Answer answer = answer_of(kInternal, face);
    std::string sentence;
    try {
        try {
            throw;
        } catch (const Fault &fault) {
            kind = fault.kind();
            answer = answer_of(row_of(kind), face);
            sentence = fault.what();
        } catch (const Error &error) {
            kind = FaultKind::Unsupported;
            answer = face == Face::Operator ? kMissing : kOwnCode;
            answer.code = error.code();
            sentence = error.what();
        } catch (const std::bad_alloc &) {
            kind = FaultKind::HostOutOfMemory;
            answer = answer_of(row_of(kind), face);
            if (face == Face::Runtime) answer.code = ACL_ERROR_BAD_ALLOC;
            sentence = "This machine's memory is exhausted.";
        } catch (const std::exception &error) {
            sentence = error.what();
        } catch (...) {
            sentence = "An exception that is not a std::exception.";
        }
        set_error(answer.code, compose(answer, sentence, call));
        abandon_device(face, call, kind, sentence);
    } catch (...) {
        // No memory for the sentence: the code must do.
        recent.code = answer.code;
    }
    return answer.code;
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
