// How every function of the C API is written:
//
//     aclError aclrtFree(void *address) {
//         return VNPU_API(address) { Machine::instance().free(address); };
//     }
//
// The body may throw; no exception leaves. A Fault becomes CANN's code by the table in error.cpp, its text what
// aclGetRecentErrMsg answers. The arguments named in VNPU_API(...) are formatted for VNPU_TRACE, and only then.
// A body that returns a value is for a function that does: on failure it gives T{} (a null pointer, 0).
#pragma once

#include <acl/acl_base_rt.h>
#include <fmt/format.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "device/fault.h"
#include "device/trace.h"

namespace vnpu::acl {

// CANN numbers its errors differently for each part of its API.
enum class Face { Runtime, Operator, Collective };

// A failure whose CANN code is its own: no kind of Fault stands for it.
class [[gnu::visibility("default")]] Error : public std::runtime_error {
  public:
    Error(aclError code, const std::string &message) : std::runtime_error(message), code_(code) {}
    aclError code() const noexcept { return code_; }

  private:
    aclError code_;
};

// Makes `message` what aclGetRecentErrMsg answers next in this thread, and `code` its last error. A message before it
// that nobody has asked for becomes its cause, if no call of this thread has succeeded since.
[[gnu::visibility("default")]] void set_error(aclError code, std::string_view message);
// set_error() for the exception being handled. Only inside a catch block. Returns the code.
[[gnu::visibility("default")]] aclError caught(Face face, const char *call) noexcept;

// Threads whose last call has failed. While there are any, a call that succeeds tells it with settle().
[[gnu::visibility("default")]] extern std::atomic<int> failing_threads;
[[gnu::visibility("default")]] void settle() noexcept;

template <class T>
void show(std::string &line, const T &value) {
    if (!line.empty()) line += ", ";
    auto out = std::back_inserter(line);
    if constexpr (std::is_same_v<T, const char *>)
        fmt::format_to(out, "\"{}\"", value == nullptr ? "" : value);
    else if constexpr (std::is_same_v<T, void **>)  // what the call gave out
        fmt::format_to(out, "*{}", value == nullptr ? nullptr : *value);
    else if constexpr (std::is_pointer_v<T> && std::is_function_v<std::remove_pointer_t<T>>)
        fmt::format_to(out, "{}", reinterpret_cast<const void *>(value));
    else if constexpr (std::is_pointer_v<T>)
        fmt::format_to(out, "{}", static_cast<const void *>(value));
    else if constexpr (std::is_enum_v<T>)
        fmt::format_to(out, "{}", static_cast<std::underlying_type_t<T>>(value));
    else
        fmt::format_to(out, "{}", value);
}

template <Face face, class... Args>
class Call {
  public:
    explicit Call(const char *name, const Args &...args) noexcept : name_(name), args_(args...) {}

    template <class Body>
    auto operator<<(Body &&body) noexcept {
        using Result = std::invoke_result_t<Body &>;
        constexpr bool gives_code = std::is_void_v<Result>;
        std::conditional_t<gives_code, aclError, Result> result{};
        aclError code = ACL_SUCCESS;
        try {
            if constexpr (gives_code)
                body();
            else
                result = body();
            if (failing_threads.load(std::memory_order_relaxed) > 0) [[unlikely]]
                settle();
        } catch (...) {
            code = caught(face, name_);
        }
        if (Trace::enabled()) [[unlikely]]
            trace(code);
        if constexpr (gives_code) result = code;
        return result;
    }

  private:
    void trace(aclError code) const noexcept {
        std::string line;
        std::apply([&](const auto &...each) { (show(line, each), ...); }, args_);
        Trace::call(name_, line, code == ACL_SUCCESS ? "ok" : fmt::format("error {}", code));
    }

    const char *name_;
    std::tuple<const Args &...> args_;
};

template <Face face, class... Args>
Call<face, Args...> call(const char *name, const Args &...args) noexcept {
    return Call<face, Args...>(name, args...);
}

}  // namespace vnpu::acl

#define VNPU_CALL(face, ...) ::vnpu::acl::call<::vnpu::acl::Face::face>(__func__ __VA_OPT__(, ) __VA_ARGS__) << [&]()
#define VNPU_API(...) VNPU_CALL(Runtime __VA_OPT__(, ) __VA_ARGS__)
#define VNPU_OPERATOR_API(...) VNPU_CALL(Operator __VA_OPT__(, ) __VA_ARGS__)
#define VNPU_COLLECTIVE_API(...) VNPU_CALL(Collective __VA_OPT__(, ) __VA_ARGS__)
