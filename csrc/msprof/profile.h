// A profile as msprof knows it: the session's log (csrc/device/event_records.h), in times since 1970.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace msprof {

// What a user is told; the program ends with 1.
struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Tensor {
    std::string shape;  // "2,3"
    const char *dtype, *format;
    uint64_t bytes;
    bool output;
};

enum class What { Kernel, Communication, Copy, Event };

struct Task {
    What what;
    std::string name, type;  // aclnnAdd_Add, Add; hcom_allReduce__123_0_1, hcom_allReduce_
    const char *engine;      // AI_CORE, AI_VECTOR_CORE, MIX_AIC, AI_CPU, COMMUNICATION, MEMCPY_ASYNC ...
    int device, stream;
    uint32_t id;          // on its stream
    uint64_t connection;  // to the call that has launched it
    int64_t start, end;   // ns; of communication: from when this rank is there
    int64_t transit;      // when all ranks are
    double wait_us;       // since the task before it on the stream
    double flops, bytes;
    std::vector<Tensor> tensors;
    // Communication.
    std::string group;
    uint64_t sequence = 0, count = 0;
    int rank = 0, ranks = 1, data_type = -1, peer = -1;
    int64_t busy() const { return end - start; }
};

struct Call {
    std::string name;
    uint32_t thread;
    uint64_t connection;  // 0: launches nothing
    int64_t start, end;
};

struct Mark {
    std::string domain, message;
    uint32_t thread;
    uint64_t range, connection;
    int64_t start, end;  // the same: a moment
};

struct MemoryChange {
    int device;
    int64_t time;
    uint64_t used;
};

struct Profile {
    std::filesystem::path folder;
    std::string chip;
    uint32_t process = 0;
    int rank = 0, world = 1;
    int device = 0;
    uint64_t switches = 0;
    uint32_t metrics = 0;
    double matrix_flops = 0, bandwidth = 0, clock_ghz = 0;  // a second
    int cube_cores = 0, vector_cores = 0;
    bool predicted = true;  // host and device times are the model's
    int64_t begin = 0, end = 0;
    std::vector<Task> tasks;  // in the order of their start
    std::vector<Call> calls;
    std::vector<Mark> marks;
    std::vector<MemoryChange> memory;

    bool has(uint64_t switches_) const { return (switches & switches_) != 0; }
};

// Bits of Profile::switches (acl_prof.h).
inline constexpr uint64_t kCalls = 0x1, kMetrics = 0x4, kAiCpu = 0x8, kMarks = 0x80, kRuntime = 0x100, kTaskTime = 0x2,
                          kTaskTimeL0 = 0x800;

// Reads a folder PROF_*. Failure where there is no whole log in it.
Profile read_profile(const std::filesystem::path &folder);

// Times on one line, joined: what a union of intervals covers.
struct Interval {
    int64_t start, end;
};
std::vector<Interval> joined(std::vector<Interval> all);
// What of the first is in none of the second; both joined.
std::vector<Interval> without(const std::vector<Interval> &all, const std::vector<Interval> &these);

// The numbers that a device's tasks are shown by.
std::vector<int> devices_of(const Profile &profile);

// "1732450000123456.789": microseconds, as a text that no reader rounds.
std::string microseconds(int64_t ns);

}  // namespace msprof
