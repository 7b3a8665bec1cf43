// VNPU_TRACE=file: one line per call and per task. Each line is one write(2) to a file opened for
// appending, so what was called before a crash is on record, whatever the crash was.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

namespace vnpu {

class Stream;

class Trace {
  public:
    static bool enabled() noexcept { return file_.load(std::memory_order_relaxed) >= 0; }
    // seconds thread "call" name(arguments) -> result
    static void call(std::string_view name, std::string_view arguments, std::string_view result) noexcept;
    // seconds thread "run" name stream=id device=id -> ok | failure
    static void task(const Stream &stream, std::string_view name, std::string_view failure) noexcept;
    // Starts tracing to `path` (appended to). Fault InvalidArgument when it cannot be opened.
    static void open(const char *path);

  private:
    static void write(std::string line) noexcept;
    static std::atomic<int> file_;  // not inline: each library would have its own (hidden visibility)
};

}  // namespace vnpu
