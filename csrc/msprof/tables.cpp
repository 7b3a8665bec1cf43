// The CSV files. Columns are CANN's, in its order; what the model adds stands behind them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "msprof/writers.h"

namespace msprof {
namespace {

double us(int64_t ns) { return static_cast<double>(ns) / 1e3; }

// A field with commas in it, as CSV wants it.
std::string quoted(const std::string &text) {
    std::string out = "\"";
    for (const char letter : text) {
        out += letter;
        if (letter == '"') out += '"';
    }
    return out + "\"";
}

// "2,3;4": one part for each tensor. CANN puts the whole into quotation marks that belong to the value.
std::string of_tensors(const Task &task, bool output, std::string (*part)(const Tensor &), bool marks = false) {
    std::string all;
    bool first = true;
    for (const Tensor &tensor : task.tensors) {
        if (tensor.output != output) continue;
        all += (first ? "" : ";") + part(tensor);
        first = false;
    }
    if (first) return "N/A";
    return marks ? quoted("\"" + all + "\"") : all;
}
std::string shape(const Tensor &tensor) { return tensor.shape; }
std::string dtype(const Tensor &tensor) { return tensor.dtype; }
std::string format(const Tensor &tensor) { return tensor.format; }

bool on_cube(const Task &task) {
    return std::string_view(task.engine) == "AI_CORE" || std::string_view(task.engine) == "MIX_AIC";
}

// What the model says of a kernel's units: how long each would be busy alone. What it does not count is N/A.
std::string metrics(const Profile &profile, const Task &task) {
    if (task.what != What::Kernel || std::string_view(task.engine) == "AI_CPU")
        return ",N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A";
    const double time = us(task.busy());
    double read = 0, written = 0;
    for (const Tensor &tensor : task.tensors) (tensor.output ? written : read) += static_cast<double>(tensor.bytes);
    const auto in_time = [&](double part) { return std::min(part, time); };
    const auto ratio = [&](double part) { return time > 0 ? part / time : 0; };
    const double mte2 = in_time(read / profile.bandwidth * 1e6), out = in_time(written / profile.bandwidth * 1e6);
    const int64_t cycles = std::llround(time * profile.clock_ghz * 1e3);
    if (on_cube(task)) {
        const double mac = in_time(profile.matrix_flops > 0 ? task.flops / profile.matrix_flops * 1e6 : 0);
        return fmt::format(",{:.3f},{},{:.3f},{:.4f},{:.3f},{:.4f},{:.3f},{:.4f},0,0,0,0,{:.3f}", time,
                           cycles * profile.cube_cores, mac, ratio(mac), mte2, ratio(mte2), out, ratio(out),
                           100 * ratio(mac));
    }
    return fmt::format(",0,0,0,0,{:.3f},{:.4f},{:.3f},{:.4f},{:.3f},{},{:.3f},{:.4f},0", mte2, ratio(mte2), out,
                       ratio(out), time, cycles * profile.vector_cores, out, ratio(out));
}

constexpr const char *kMetricsHead =
    ",aicore_time(us),aic_total_cycles,aic_mac_time(us),aic_mac_ratio,aic_mte2_time(us),aic_mte2_ratio,"
    "aic_fixpipe_time(us),aic_fixpipe_ratio,aiv_time(us),aiv_total_cycles,aiv_mte3_time(us),aiv_mte3_ratio,"
    "cube_utilization(%)";

struct Sum {
    uint64_t count = 0;
    double total = 0, least = 0, most = 0, squares = 0;
    void add(double time) {
        least = count == 0 ? time : std::min(least, time);
        most = std::max(most, time);
        total += time;
        squares += time * time;
        ++count;
    }
    double mean() const { return total / static_cast<double>(count); }
    double variance() const { return std::max(0., squares / static_cast<double>(count) - mean() * mean()); }
};

template <class Key>
std::vector<std::pair<Key, Sum>> largest_first(const std::map<Key, Sum> &all) {
    std::vector<std::pair<Key, Sum>> rows(all.begin(), all.end());
    std::ranges::stable_sort(rows, [](const auto &a, const auto &b) { return a.second.total > b.second.total; });
    return rows;
}

}  // namespace

std::string op_summary(const Profile &profile) {
    const bool with_metrics = profile.has(kMetrics);
    std::string out =
        "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),Task Duration(us),"
        "Task Wait Time(us),Block Num,Mix Block Num,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,"
        "Output Shapes,Output Data Types,Output Formats,Context ID";
    if (with_metrics) out += kMetricsHead;
    out += ",Predicted\n";
    for (const Task &task : profile.tasks) {
        if (task.what != What::Kernel && task.what != What::Communication) continue;
        const int blocks = task.what == What::Communication            ? 0
                           : std::string_view(task.engine) == "AI_CPU" ? 1
                           : on_cube(task)                             ? profile.cube_cores
                                                                       : profile.vector_cores;
        out += fmt::format("{},4294967295,{},{},{},{},static,{},{}\t,{:.3f},{:.3f},{},0,NO,{},{},{},{},{},{},N/A",
                           task.device, task.id, task.stream, task.name, task.type, task.engine,
                           microseconds(task.start), us(task.busy()), task.wait_us, blocks,
                           of_tensors(task, false, shape, true), of_tensors(task, false, dtype),
                           of_tensors(task, false, format), of_tensors(task, true, shape, true),
                           of_tensors(task, true, dtype), of_tensors(task, true, format));
        if (with_metrics) out += metrics(profile, task);
        out += fmt::format(",{}\n", profile.predicted);
    }
    return out;
}

std::string op_statistic(const Profile &profile) {
    std::map<std::tuple<int, std::string, std::string>, Sum> all;
    std::map<int, double> whole;
    for (const Task &task : profile.tasks) {
        if (task.what != What::Kernel && task.what != What::Communication) continue;
        all[{task.device, task.type, task.engine}].add(us(task.busy()));
        whole[task.device] += us(task.busy());
    }
    if (all.empty()) return {};
    std::string out =
        "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)"
        ",Predicted\n";
    for (const auto &[key, sum] : largest_first(all)) {
        const auto &[device, type, engine] = key;
        out += fmt::format("{},{},{},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f},{}\n", device, type, engine, sum.count,
                           sum.total, sum.least, sum.mean(), sum.most,
                           whole[device] > 0 ? 100 * sum.total / whole[device] : 0, profile.predicted);
    }
    return out;
}

std::string api_statistic(const Profile &profile) {
    std::map<std::pair<std::string, std::string>, Sum> all;
    for (const Call &call : profile.calls) {
        const double time = us(call.end - call.start);
        all[{call.name.starts_with("Hccl") ? "communication" : "acl", call.name}].add(time);
        if (call.connection != 0) all[{"node", "launch"}].add(time);
    }
    if (all.empty()) return {};
    std::string out = "Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance,Predicted\n";
    for (const auto &[key, sum] : largest_first(all))
        out += fmt::format("host,{},{},{:.3f},{},{:.3f},{:.3f},{:.3f},{:.3f},{}\n", key.first, key.second, sum.total,
                           sum.count, sum.mean(), sum.least, sum.most, sum.variance(), profile.predicted);
    return out;
}

std::string task_time(const Profile &profile) {
    std::string out =
        "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)"
        ",Predicted\n";
    for (const Task &task : profile.tasks)
        out +=
            fmt::format("{},{},{},{},{},{:.3f},{}\t,{}\t,{}\n", task.device, task.name, task.engine, task.stream,
                        task.id, us(task.busy()), microseconds(task.start), microseconds(task.end), profile.predicted);
    return out;
}

std::string module_memory(const Profile &profile) {
    if (profile.memory.empty()) return {};
    std::string out = "Device_id,Component,Timestamp(us),Total Reserved(KB),Device\n";
    for (const MemoryChange &change : profile.memory)
        out += fmt::format("{0},APP,{1}\t,{2:.3f},NPU:{0}\n", change.device, microseconds(change.time),
                           static_cast<double>(change.used) / 1024);
    return out;
}

std::string aicpu(const Profile &profile) {
    if (!profile.has(kAiCpu)) return {};
    std::string out;
    for (const Task &task : profile.tasks)
        if (std::string_view(task.engine) == "AI_CPU")
            out += fmt::format("{},{}\t,{},{:.3f},0,{:.3f},0,{:.3f},{},{},{}\n", task.device, microseconds(task.start),
                               task.name, us(task.busy()), us(task.busy()), us(task.busy()), task.stream, task.id,
                               profile.predicted);
    if (out.empty()) return {};
    return "Device_id,Timestamp(us),Node,Compute_time(us),Memcpy_time(us),Task_time(us),Dispatch_time(us),"
           "Total_time(us),Stream ID,Task ID,Predicted\n" +
           out;
}

}  // namespace msprof
