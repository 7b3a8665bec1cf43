// Where an event stands. The marks of events between processes lie in a memfd, which other processes open through
// /proc/<pid>/fd: it has no name, so nothing is left of it when the processes are gone, however they went.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "device/doorbell.h"

namespace vnpu {

struct EventMarks {  // all zero when it begins
    // Records are numbered from 1 for as long as the event lives. `forgotten`: the last before the latest reset.
    std::atomic<uint64_t> requested{0}, completed{0}, forgotten{0};
    std::atomic<Clock::rep> time{0};
    std::atomic<int64_t> virtual_time{0};  // clock.h
    std::atomic<pid_t> recorder{0};        // the process that has asked for the latest record
    SharedDoorbell bell;
};

struct MarksAddress {
    pid_t process;
    int file;
    uint32_t place;
    uint64_t made;  // which of those that had this place
};

// Marks that other processes can open. Fault HostLimit when there are too many.
std::shared_ptr<EventMarks> shared_marks();
// Fault InvalidArgument unless shared_marks() made them.
MarksAddress address_of(const EventMarks &marks);
// Fault InvalidArgument when the process that made them is gone or has destroyed them.
std::shared_ptr<EventMarks> open_marks(const MarksAddress &address);

}  // namespace vnpu
