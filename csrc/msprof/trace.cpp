// msprof_T.json: the timeline, as torch_npu's parsers, MindStudio and chrome://tracing read it.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "msprof/writers.h"

namespace msprof {
namespace {

// Places in the timeline, from top to bottom.
enum Row { kCann = 10, kAscend = 13, kCommunication = 19, kOverlap = 20 };

// HcclDataType's numbers.
const char *data_type_name(int type) {
    static constexpr const char *kNames[] = {"INT8",   "INT16", "INT32",  "FP16",   "FP32", "INT64",
                                             "UINT64", "UINT8", "UINT16", "UINT32", "FP64", "BFP16"};
    return type >= 0 && type < static_cast<int>(std::size(kNames)) ? kNames[type] : "INVALID_TYPE";
}

// Tasks that only mark a stream, for mstx (csrc/ascendcl/profiler/mark.cpp).
constexpr std::string_view kMark = "mstx ";

class Trace {
  public:
    explicit Trace(const Profile &profile) : profile_(profile) {}

    std::string write() {
        out_ = "[";
        calls();
        marks();
        for (const int device : devices_of(profile_)) {
            tasks(device);
            if (profile_.has(kTaskTime | kTaskTimeL0)) overlap(device);
        }
        out_ += "]";
        return std::move(out_);
    }

  private:
    // As torch_npu makes the numbers of its own.
    uint64_t process(Row row, int device) const {
        return (static_cast<uint64_t>(profile_.process) << 10) | (static_cast<uint64_t>(row) << 5) |
               static_cast<uint64_t>(device);
    }

    template <class... Args>
    void event(fmt::format_string<Args...> text, Args &&...args) {
        if (out_.size() > 1) out_ += ",\n";
        fmt::format_to(std::back_inserter(out_), text, std::forward<Args>(args)...);
    }

    void row(Row row, int device, const char *name, const std::string &label) {
        const uint64_t pid = process(row, device);
        event(R"-({{"name":"process_name","pid":{},"tid":0,"args":{{"name":"{}"}},"ph":"M"}})-", pid, name);
        event(R"-({{"name":"process_labels","pid":{},"tid":0,"args":{{"labels":"{}"}},"ph":"M"}})-", pid, label);
        event(R"-({{"name":"process_sort_index","pid":{},"tid":0,"args":{{"sort_index":{}}},"ph":"M"}})-", pid,
              static_cast<int>(row));
    }
    void line(uint64_t pid, uint64_t tid, const std::string &name) {
        event(R"-({{"name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}},"ph":"M"}})-", pid, tid,
              escaped(name));
        event(R"-({{"name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}},"ph":"M"}})-", pid, tid,
              tid);
    }
    void span(const std::string &name, uint64_t pid, uint64_t tid, int64_t start, int64_t end,
              const std::string &args) {
        event(R"-({{"name":"{}","pid":{},"tid":{},"ts":"{}","dur":{:.3f},"args":{{{}}},"ph":"X"}})-", escaped(name),
              pid, tid, microseconds(start), static_cast<double>(end - start) / 1e3, args);
    }

    void calls() {
        const uint64_t pid = process(kCann, profile_.device);
        row(kCann, profile_.device, "CANN", "CPU");
        std::set<uint32_t> threads;
        std::set<uint64_t> connected;
        for (const Task &task : profile_.tasks)
            if (task.what != What::Event) connected.insert(task.connection);
        for (const Call &call : profile_.calls) {
            threads.insert(call.thread);
            const bool operation = !call.name.starts_with("aclrt");
            if (!operation && !profile_.has(kTaskTime | kRuntime) && !connected.contains(call.connection)) continue;
            if (call.name.starts_with(kMark)) started_[call.connection] = &call;
            if (call.name.starts_with(kMark) || !profile_.has(kCalls)) continue;
            const char *level = call.name.starts_with("Hccl") ? "HCCL" : "AscendCL";
            span(fmt::format("{}@{}", level, call.name), pid, call.thread, call.start, call.end,
                 fmt::format(
                     R"-("Thread Id":{},"Mode":"{}","level":"acl","id":"{}","item_id":"{}","connection_id":{},{})-",
                     call.thread, operation ? "ACL_OP" : "ACL_RTS", escaped(call.name), escaped(call.name),
                     call.connection, predicted(profile_)));
            if (!connected.contains(call.connection)) continue;
            span("Node@launch", pid, call.thread, call.start, call.end,
                 fmt::format(R"-("Thread Id":{},"level":"node","id":"launch","item_id":"{}","connection_id":{},{})-",
                             call.thread, escaped(call.name), call.connection, predicted(profile_)));
            started_[call.connection] = &call;
        }
        for (const uint32_t thread : threads) line(pid, thread, fmt::format("Thread {}", thread));
    }

    void marks() {
        const uint64_t pid = process(kCann, profile_.device);
        for (const Mark &mark : profile_.marks)
            span(mark.message, pid, mark.thread, mark.start, mark.end,
                 fmt::format(R"-("Thread Id":{},"Event Type":"{}","Domain":"{}","connection_id":{},{})-", mark.thread,
                             mark.range == 0 ? "marker_ex" : "start/end", escaped(mark.domain), mark.connection,
                             predicted(profile_)));
    }

    // From the call that has launched a task to the task.
    void arrow(const Task &task, uint64_t pid, uint64_t tid) {
        const auto from = started_.find(task.connection);
        if (from == started_.end()) return;
        const uint64_t id = ++arrows_;
        event(
            R"-({{"name":"HostToDevice{0}","ph":"s","cat":"HostToDevice","id":"{0}","pid":{1},"tid":{2},"ts":"{3}"}})-",
            id, process(kCann, profile_.device), from->second->thread, microseconds(from->second->start));
        event(
            R"-({{"name":"HostToDevice{0}","ph":"f","bp":"e","cat":"HostToDevice","id":"{0}","pid":{1},"tid":{2},"ts":"{3}"}})-",
            id, pid, tid, microseconds(task.start));
    }

    void tasks(int device) {
        const uint64_t pid = process(kAscend, device), other = process(kCommunication, device);
        const std::string label = fmt::format("NPU {}", device);
        row(kAscend, device, "Ascend Hardware", label);
        std::set<int> streams;
        std::map<std::string, uint64_t> groups;
        for (const Task &task : profile_.tasks) {
            if (task.device != device) continue;
            if (!profile_.has(kTaskTime | kTaskTimeL0) && !task.name.starts_with(kMark)) continue;
            if (task.what == What::Communication) {
                const uint64_t tid = groups.emplace(task.group, groups.size() * 2).first->second;
                const double seconds = static_cast<double>(task.end - task.transit) / 1e9;
                span(task.name, other, tid, task.start, task.end,
                     fmt::format(
                         R"-("connection_id":{},"model id":4294967295,"data_type":"{}","alg_type":"MESH","count":{},)-"
                         R"-("size(Byte)":{:.0f},"bandwidth(GB/s)":{:.4f},"group":"{}","Stream Id":{},{})-",
                         task.connection, data_type_name(task.data_type), task.count, task.bytes,
                         seconds > 0 ? task.bytes / seconds / 1e9 : 0, escaped(task.group), task.stream,
                         predicted(profile_)));
                arrow(task, other, tid);
                part("Notify_Wait", other, tid + 1, task, task.start, task.transit);
                part("Memcpy", other, tid + 1, task, task.transit, task.end);
                continue;
            }
            if (task.what == What::Event && !profile_.has(kTaskTime) && !task.name.starts_with(kMark)) continue;
            streams.insert(task.stream);
            span(task.name, pid, static_cast<uint64_t>(task.stream), task.start, task.end,
                 fmt::format(R"-("Model Id":4294967295,"Task Type":"{}","Stream Id":{},"Task Id":{},"Batch Id":0,)-"
                             R"-("Subtask Id":4294967295,"connection_id":{},{})-",
                             task.engine, task.stream, task.id, task.connection, predicted(profile_)));
            if (task.what != What::Event || task.name.starts_with(kMark))
                arrow(task, pid, static_cast<uint64_t>(task.stream));
        }
        for (const int stream : streams) line(pid, static_cast<uint64_t>(stream), fmt::format("Stream {}", stream));
        if (groups.empty()) return;
        row(kCommunication, device, "Communication", label);
        for (const auto &[group, tid] : groups) {
            line(other, tid, fmt::format("Group {} Communication", group));
            line(other, tid + 1, "Plane 0");
        }
    }

    void part(const char *name, uint64_t pid, uint64_t tid, const Task &task, int64_t start, int64_t end) {
        if (end <= start) return;
        span(name, pid, tid, start, end,
             fmt::format(
                 R"-("notify id":0,"duration estimated(us)":{:.3f},"stream id":{},"task id":{},"task type":"{}",)-"
                 R"-("src rank":{},"dst rank":{},"transport type":"SDMA","size(Byte)":{:.0f},"link type":"HCCS",{})-",
                 static_cast<double>(end - start) / 1e3, task.stream, task.id, name, task.rank,
                 task.peer < 0 ? task.rank : task.peer, name[0] == 'M' ? task.bytes : 0, predicted(profile_)));
    }

    void overlap(int device) {
        std::vector<Interval> computing, communication;
        for (const Task &task : profile_.tasks) {
            if (task.device != device) continue;
            if (task.what == What::Kernel) computing.push_back({task.start, task.end});
            if (task.what == What::Communication) communication.push_back({task.start, task.end});
        }
        computing = joined(std::move(computing));
        communication = joined(std::move(communication));
        std::vector<Interval> busy = computing;
        busy.insert(busy.end(), communication.begin(), communication.end());
        busy = joined(std::move(busy));
        if (busy.empty()) return;
        const uint64_t pid = process(kOverlap, device);
        row(kOverlap, device, "Overlap Analysis", fmt::format("NPU {}", device));
        const std::vector<Interval> all{{busy.front().start, busy.back().end}};
        const std::pair<const char *, std::vector<Interval>> lines[] = {
            {"Computing", computing},
            {"Communication", communication},
            {"Communication(Not Overlapped)", without(communication, computing)},
            {"Free", without(all, busy)},
        };
        for (uint64_t tid = 0; tid < std::size(lines); ++tid) {
            line(pid, tid, lines[tid].first);
            for (const Interval &one : lines[tid].second)
                span(lines[tid].first, pid, tid, one.start, one.end,
                     fmt::format(R"-("analysis_type":"{}",{})-", lines[tid].first, predicted(profile_)));
        }
    }

    const Profile &profile_;
    std::string out_;
    std::map<uint64_t, const Call *> started_;
    uint64_t arrows_ = 0;
};

}  // namespace

std::string predicted(const Profile &profile) {
    return fmt::format(R"-("predicted":{})-", profile.predicted ? "true" : "false");
}

std::string escaped(std::string_view text) {
    std::string out;
    for (const char letter : text) {
        if (letter == '"' || letter == '\\') out += '\\';
        if (static_cast<unsigned char>(letter) < 0x20)
            out += fmt::format("\\u{:04x}", static_cast<unsigned>(letter));
        else
            out += letter;
    }
    return out;
}

std::string trace(const Profile &profile) { return Trace(profile).write(); }

}  // namespace msprof
