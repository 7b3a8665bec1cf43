// Ctrl-C while a thread of the program waits for the device. Python's handler only notes the signal, and nobody looks
// at the note before the wait is over, which for a rank that waits for another may be half an hour.
#pragma once

namespace vnpu {

// While one exists, the second SIGINT ends the process as if nobody handled the signal. The first goes to the program's
// handler, as all do while none exists. A program that ignores SIGINT, or leaves it to the system, sees no difference.
class Interruptible {
  public:
    Interruptible() noexcept;
    ~Interruptible();
    Interruptible(const Interruptible &) = delete;
    Interruptible &operator=(const Interruptible &) = delete;
};

}  // namespace vnpu
