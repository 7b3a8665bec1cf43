// A profiling session: from aclprofStart to aclprofStop, everything that the process does is logged to a folder PROF_*,
// from which `msprof` (csrc/msprof) makes the files that torch_npu reads.
#pragma once

#include <acl/acl_prof.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "device/event_log.h"
#include "device/time_map.h"

struct aclprofConfig {
    std::vector<uint32_t> devices;
    aclprofAicoreMetrics metrics;
    uint64_t switches;
};

namespace vnpu::acl {

class ProfilerSession final : public Observer {
  public:
    // Makes the folder below `root` and starts logging. Fault InvalidArgument where that cannot be written.
    ProfilerSession(const std::filesystem::path &root, const aclprofConfig &config);
    ~ProfilerSession() override;

    // Ends it: what the streams have been given is waited for. Where the model's time is wanted, torch_npu's own files
    // in FRAMEWORK, complete by now, are brought onto it.
    void stop() noexcept;
    // What torch_npu has written into FRAMEWORK since.
    void rewrite_late() noexcept;

    void task(const TaskSeen &task) noexcept override { log_->task(task); }
    void call(const CallSeen &call) noexcept override;
    void memory(const MemorySeen &memory) noexcept override { log_->memory(memory); }
    bool wants_calls() const noexcept override { return true; }
    void mark(const EventLog::Mark &mark) noexcept { log_->mark(mark); }
    bool marks_ranges() const noexcept { return (switches_ & ACL_PROF_MSPROFTX) != 0; }

  private:
    struct Passed {  // what a call says of both clocks
        uint32_t thread;
        bool launched;
        int64_t began, ended, virtual_began, virtual_ended;
    };
    void make_clocks(const EventLog::Moment &now);
    bool to_model_time(const std::vector<std::string> &names) noexcept;

    const std::filesystem::path root_;
    const uint64_t switches_;
    std::filesystem::path folder_;
    std::unique_ptr<EventLog> log_;
    EventLog::Moment began_{};
    int64_t launch_cost_ = 0;
    std::mutex mutex_;
    std::vector<Passed> passed_;
    ProgramTime clocks_;  // made by stop()
    bool model_time_ = true, stopped_ = false;
};

// The session that runs; null: none does.
std::shared_ptr<ProfilerSession> profiler_session() noexcept;

// What torch_npu has noted of its queue (torch.op_mark): when a thread of the program had put an operator into it, and
// when which other thread took it out, by the number of the operator.
struct QueueMarks {
    std::unordered_map<uint64_t, int64_t> put, taken;
    std::unordered_set<uint64_t> threads;  // that take
};
QueueMarks queue_marks(const std::filesystem::path &folder);

// The files of torch_npu's own part of a profile, whose times are CLOCK_MONOTONIC_RAW: brought onto another clock, each
// as a whole. Returns whether all were; otherwise none is changed.
bool retime_framework(const std::filesystem::path &folder, const std::vector<std::string> &names,
                      const ProgramTime &clocks, int64_t offset) noexcept;

}  // namespace vnpu::acl
