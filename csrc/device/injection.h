// Failures that VNPU_FAULTS provokes, so that what a program does about them can be tried: rules between semicolons,
//
//     oom@alloc:100             the device's memory is full from the 100th allocation on
//     exception@op:aclnnAdd:3   the 3rd run of an operator fails on its core (without a number: the first)
//     timeout@op:aclnnMatmul:3  it takes longer than the core waits
//     hang@op:aclnnMatmul:3     it never ends, until a wait for its stream has run out of time
//     ecc@step:5                a memory cell is broken from the 5th wait for a stream on, as reading a loss is one
//     timeout@collective:7      the peers of the 7th collective are silent
//     linkdown@rank:1           the link of rank 1 is down: its collectives fail
//     slow@rank:1:200           each collective of rank 1 begins 200 ms late
//     slow@host:2               each launch takes the host 2 ms
//
// and behind any of them @rank:1 for one rank of a job (RANK), the only one that has the failure then.
#pragma once

#include <atomic>
#include <string>

#include "device/fault.h"

namespace vnpu {

class Task;

namespace injection {

// Reads the rules; null and empty text have none. Fault InvalidArgument names the rule and what is allowed.
void arm(const char *text);
extern std::atomic<bool> armed;  // whether there are any; nothing below has to be called without

// These throw what a rule says, or wait. Thread-safe.
void at_allocation();
void at_launch();
void at_task(const Task &task);
void at_wait();
// A wait for a stream has run out of time: what hangs ends.
void gave_up() noexcept;

}  // namespace injection
}  // namespace vnpu
