// The records of an event log as they lie in the file, little endian, every one a multiple of eight bytes long
// (docs/timeline.md). Written by event_log.cpp, read by csrc/msprof.
#pragma once

#include <cstdint>

#include "device/timeline.h"

namespace vnpu::records {

inline constexpr char kMagic[] = "VNPUTL1\n";

enum Type : uint16_t {
    kProcess = 1,
    kName = 2,
    kTask = 3,
    kMemory = 4,
    kCall = 5,
    kCollective = 6,
    kMark = 7,
    kBegin = 8,
    kEnd = 9,
    kQueueThread = 10,
    kPut = 11,
};

struct Head {
    uint32_t length;  // of the record, with this
    uint16_t type, reserved;
};
struct Process {
    Head head;
    uint32_t version, process;
    int32_t rank, world;
    uint32_t chip;  // a name
    uint8_t dry, reserved[3];
    int64_t monotonic, realtime;
};
struct Name {
    Head head;
    uint32_t number, bytes;
};
struct Task {
    Head head;
    uint32_t name;
    uint16_t device, tensors;
    uint32_t stream, thread;
    uint8_t unit, failed;
    uint16_t ranks;
    uint32_t reserved;
    uint64_t correlation;
    TaskTimes times;
    double flops, bytes, converted;
};
struct Tensor {
    uint64_t address, bytes;
    uint8_t dtype, format, rank, flags;  // 1: written, 2: a view
    uint32_t reserved;
};
struct Memory {
    Head head;
    uint32_t device, reserved;
    int64_t monotonic, virtual_time;
    uint64_t address;
    int64_t bytes;
    uint64_t used;
};
struct Call {
    Head head;
    uint32_t name, thread;
    uint64_t correlation;
    int64_t began, ended, virtual_began, virtual_ended;
};
// Before the task that it is about.
struct Collective {
    Head head;
    uint32_t group;  // a name
    int32_t rank;
    uint64_t sequence, count;
    int32_t type, peer;
    int64_t virtual_ready;
};
struct Mark {
    Head head;
    uint32_t kind, thread, domain, message;
    uint64_t number, correlation;
    int64_t raw, virtual_time;
};
// Where the clocks stood as a session began and ended, what it was to collect, and the chip's constants.
struct Begin {
    Head head;
    uint64_t switches;
    uint32_t metrics, device;
    int64_t raw, monotonic, realtime, virtual_time, host_ns;
    double matrix_flops, bandwidth, clock_ghz;
    int32_t cube_cores, vector_cores;
};
struct End {
    Head head;
    int64_t raw, monotonic, realtime, virtual_time;
    uint32_t wall, reserved;  // 1: host times are this machine's
};
// A thread that takes operators out of torch_npu's queue; when another had put one into it (time_map.h).
struct QueueThread {
    Head head;
    uint32_t thread, reserved;
};
struct Put {
    Head head;
    int64_t raw, virtual_time;
};
static_assert(sizeof(Task) == 112 && sizeof(Tensor) == 24 && sizeof(Memory) == 56 && sizeof(Process) == 48);

}  // namespace vnpu::records
