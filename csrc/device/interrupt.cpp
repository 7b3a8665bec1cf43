#include "device/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

namespace vnpu {
namespace {

constexpr char kHint[] = "torchport: the program waits for the NPU; a second Ctrl-C ends it at once\n";

std::mutex mutex;  // guards the handler's coming and going
int waiting = 0;
// What the handler reads: the program's own, and how many signals have come in this wait.
std::atomic<void (*)(int)> plain{nullptr};
std::atomic<void (*)(int, siginfo_t *, void *)> informed{nullptr};
std::atomic<bool> counting{false};
std::atomic<int> come{0};

void on_interrupt(int number, siginfo_t *info, void *context) noexcept {
    if (counting.load()) {
        if (come.fetch_add(1) == 1) {
            struct sigaction end{};
            end.sa_handler = SIG_DFL;
            sigaction(number, &end, nullptr);
            raise(number);  // blocked until this handler returns
            return;
        }
        // Where it cannot be written, there is nobody to be told.
        [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kHint, sizeof kHint - 1);
    }
    if (const auto program = informed.load())
        program(number, info, context);
    else if (const auto simple = plain.load())
        simple(number);
}

bool ours(const struct sigaction &action) {
    return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_interrupt;
}

}  // namespace

Interruptible::Interruptible() noexcept {
    const std::lock_guard lock(mutex);
    if (waiting++ > 0) return;
    struct sigaction now{};
    sigaction(SIGINT, nullptr, &now);
    const bool handled = (now.sa_flags & SA_SIGINFO) != 0 || (now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN);
    if (!handled) return;
    come.store(0);
    counting.store(true);
    if (ours(now)) return;  // the program has put back what it found during an earlier wait
    const bool with_info = (now.sa_flags & SA_SIGINFO) != 0;
    informed.store(with_info ? now.sa_sigaction : nullptr);
    plain.store(with_info ? nullptr : now.sa_handler);
    now.sa_sigaction = on_interrupt;
    now.sa_flags |= SA_SIGINFO;
    sigaction(SIGINT, &now, nullptr);
}

Interruptible::~Interruptible() {
    const std::lock_guard lock(mutex);
    if (--waiting > 0 || !counting.exchange(false)) return;
    struct sigaction now{};
    sigaction(SIGINT, nullptr, &now);
    if (!ours(now)) return;  // the program has taken another handler meanwhile, which stays
    if (const auto with_info = informed.load()) {
        now.sa_sigaction = with_info;
    } else {
        now.sa_flags &= ~SA_SIGINFO;
        now.sa_handler = plain.load();
    }
    sigaction(SIGINT, &now, nullptr);
}

}  // namespace vnpu
