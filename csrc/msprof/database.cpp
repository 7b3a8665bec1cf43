// msprof_T.db and communication_analyzer.db: the tables that torch_npu, MindStudio and msprof-analyze read
// (MindStudio's profile_data_file_references_db.md).
#include <fmt/format.h>

#include <map>
#include <unordered_map>

#include "msprof/communication.h"
#include "msprof/sqlite_file.h"
#include "msprof/writers.h"

namespace msprof {
namespace {

enum ApiType : int64_t { kAcl = 20000, kNode = 10000, kCommunicationApi = 5500, kRuntimeApi = 5000 };

int64_t id(uint64_t value) { return static_cast<int64_t>(value); }

class Database {
  public:
    explicit Database(const Profile &profile) : profile_(profile) {}

    std::string write() {
        enums();
        host();
        tasks();
        marks();
        about();
        file_.table("STRING_IDS", "id INTEGER PRIMARY KEY, value TEXT");
        std::vector<const std::string *> all(strings_.size());
        for (const auto &[text, number] : strings_) all[static_cast<size_t>(number)] = &text;
        // The key is the row's own number, from 1 on.
        for (const std::string *text : all) file_.row({nullptr, *text});
        return file_.finish();
    }

  private:
    int64_t string(const std::string &text) {
        return strings_.emplace(text, static_cast<int64_t>(strings_.size())).first->second + 1;
    }
    int64_t thread(uint32_t number) const { return id((static_cast<uint64_t>(profile_.process) << 32) | number); }

    void names(const char *table, std::initializer_list<std::pair<int64_t, const char *>> rows) {
        file_.table(table, "id INTEGER, name TEXT");
        for (const auto &[number, name] : rows) file_.row({number, std::string(name)});
    }

    void enums() {
        names("ENUM_API_TYPE", {{20000, "acl"},
                                {15000, "model"},
                                {10000, "node"},
                                {5500, "communication"},
                                {5000, "runtime"},
                                {50001, "op"},
                                {50002, "queue"},
                                {50003, "trace"},
                                {50004, "mstx"}});
        names("ENUM_MODULE", {{33, "APP"}});
        names("ENUM_HCCL_DATA_TYPE", {{0, "INT8"},
                                      {1, "INT16"},
                                      {2, "INT32"},
                                      {3, "FP16"},
                                      {4, "FP32"},
                                      {5, "INT64"},
                                      {6, "UINT64"},
                                      {7, "UINT8"},
                                      {8, "UINT16"},
                                      {9, "UINT32"},
                                      {10, "FP64"},
                                      {11, "BFP16"},
                                      {65535, "INVALID_TYPE"}});
        names("ENUM_HCCL_LINK_TYPE", {{0, "ON_CHIP"}, {1, "HCCS"}, {2, "PCIE"}, {3, "ROCE"}});
        names("ENUM_HCCL_TRANSPORT_TYPE", {{0, "SDMA"}, {1, "RDMA"}, {2, "LOCAL"}});
        names("ENUM_HCCL_RDMA_TYPE", {{0, "RDMA_SEND_NOTIFY"}, {1, "RDMA_SEND_PAYLOAD"}, {65535, "INVALID_TYPE"}});
        names("ENUM_MSTX_EVENT_TYPE", {{0, "marker"}, {1, "push/pop"}, {2, "start/end"}, {3, "marker_ex"}});
    }

    void host() {
        file_.table(
            "CANN_API",
            "startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER, connectionId INTEGER, name INTEGER");
        for (const Call &call : profile_.calls) {
            const bool communication = call.name.starts_with("Hccl");
            file_.row({call.start, call.end, static_cast<int64_t>(communication ? kCommunicationApi : kAcl),
                       thread(call.thread), id(call.connection), string(call.name)});
            if (call.connection != 0)
                file_.row({call.start, call.end, static_cast<int64_t>(kNode), thread(call.thread), id(call.connection),
                           string("launch")});
        }
    }

    static std::string of_tensors(const Task &task, bool output, std::string (*part)(const Tensor &)) {
        std::string all;
        for (const Tensor &tensor : task.tensors)
            if (tensor.output == output) all += (all.empty() ? "" : ";") + part(tensor);
        return all.empty() ? "N/A" : all;
    }

    void tasks() {
        file_.table("TASK",
                    "startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, "
                    "globalTaskId INTEGER, globalPid INTEGER, taskType INTEGER, contextId INTEGER, "
                    "streamId INTEGER, taskId INTEGER, modelId INTEGER");
        for (size_t i = 0; i < profile_.tasks.size(); ++i) {
            const Task &task = profile_.tasks[i];
            file_.row({task.start, task.end, int64_t{task.device}, id(task.connection), static_cast<int64_t>(i),
                       int64_t{profile_.process}, string(task.engine), int64_t{4294967295}, int64_t{task.stream},
                       int64_t{task.id}, int64_t{4294967295}});
        }
        file_.table("COMPUTE_TASK_INFO",
                    "name INTEGER, globalTaskId INTEGER, blockNum INTEGER, mixBlockNum INTEGER, taskType INTEGER, "
                    "opType INTEGER, inputFormats INTEGER, inputDataTypes INTEGER, inputShapes INTEGER, "
                    "outputFormats INTEGER, outputDataTypes INTEGER, outputShapes INTEGER, attrInfo INTEGER, "
                    "opState INTEGER, hf32Eligible INTEGER");
        const auto shape = [](const Tensor &tensor) { return tensor.shape; };
        const auto dtype = [](const Tensor &tensor) { return std::string(tensor.dtype); };
        const auto format = [](const Tensor &tensor) { return std::string(tensor.format); };
        for (size_t i = 0; i < profile_.tasks.size(); ++i) {
            const Task &task = profile_.tasks[i];
            if (task.what != What::Kernel) continue;
            const bool vector = std::string_view(task.engine) == "AI_VECTOR_CORE";
            file_.row({string(task.name), static_cast<int64_t>(i),
                       int64_t{vector ? profile_.vector_cores : profile_.cube_cores}, int64_t{0}, string(task.engine),
                       string(task.type), string(of_tensors(task, false, format)),
                       string(of_tensors(task, false, dtype)), string(of_tensors(task, false, shape)),
                       string(of_tensors(task, true, format)), string(of_tensors(task, true, dtype)),
                       string(of_tensors(task, true, shape)), string("N/A"), string("static"), string("NO")});
        }
        communication_tasks();
        if (profile_.memory.empty()) return;
        file_.table("NPU_MODULE_MEM", "moduleId INTEGER, timestampNs INTEGER, totalReserved NUMERIC, deviceId INTEGER");
        for (const MemoryChange &change : profile_.memory)
            file_.row({int64_t{33}, change.time, id(change.used), int64_t{change.device}});
    }

    void communication_tasks() {
        const std::vector<Spent> all = spent(profile_);
        if (all.empty()) return;
        file_.table("COMMUNICATION_OP",
                    "opName INTEGER, startNs INTEGER, endNs INTEGER, connectionId INTEGER, groupName INTEGER, "
                    "opId INTEGER PRIMARY KEY, relay INTEGER, retry INTEGER, dataType INTEGER, algType INTEGER, "
                    "count NUMERIC, opType INTEGER, deviceId INTEGER");
        for (const Spent &one : all) {
            const Task &task = *one.task;
            file_.row({string(task.name), task.start, task.end, id(task.connection), string(task.group), nullptr,
                       int64_t{0}, int64_t{0}, int64_t{task.data_type < 0 ? 65535 : task.data_type}, string("MESH"),
                       id(task.count), string(task.type), int64_t{task.device}});
        }
        file_.table(
            "COMMUNICATION_TASK_INFO",
            "name INTEGER, globalTaskId INTEGER, taskType INTEGER, planeId INTEGER, groupName INTEGER, "
            "notifyId INTEGER, rdmaType INTEGER, srcRank INTEGER, dstRank INTEGER, transportType INTEGER, "
            "size INTEGER, dataType INTEGER, linkType INTEGER, opId INTEGER, isMaster INTEGER, bandwidth NUMERIC");
        for (size_t i = 0; i < all.size(); ++i) {
            const Spent &one = all[i];
            const Task &task = *one.task;
            const bool machines = std::string_view(one.transport) == "RDMA";
            const double seconds = one.transit_ms / 1e3;
            for (const Link &link : links(one))
                file_.row({string(task.name), static_cast<int64_t>(one.task - profile_.tasks.data()), string("Memcpy"),
                           int64_t{0}, string(task.group), int64_t{0}, int64_t{65535}, int64_t{link.from},
                           int64_t{link.to}, int64_t{machines ? 1 : 0}, static_cast<int64_t>(link.megabytes * 1e6),
                           int64_t{task.data_type < 0 ? 65535 : task.data_type}, int64_t{machines ? 3 : 1},
                           static_cast<int64_t>(i + 1), int64_t{1},
                           seconds > 0 ? link.megabytes * 1e6 / seconds : 0.0});
        }
    }

    void marks() {
        if (profile_.marks.empty()) return;
        file_.table("MSTX_EVENTS",
                    "startNs INTEGER, endNs INTEGER, eventType INTEGER, rangeId INTEGER, category INTEGER, "
                    "message INTEGER, globalTid INTEGER, endGlobalTid INTEGER, domainId INTEGER, "
                    "connectionId INTEGER");
        for (const Mark &mark : profile_.marks)
            file_.row({mark.start, mark.end, int64_t{mark.range == 0 ? 3 : 2}, id(mark.range), int64_t{4294967295},
                       string(mark.message), thread(mark.thread), thread(mark.thread), string(mark.domain),
                       mark.connection == 0 ? int64_t{4294967295} : id(mark.connection)});
    }

    void about() {
        file_.table("NPU_INFO", "id INTEGER, name TEXT");
        for (const int device : devices_of(profile_)) file_.row({int64_t{device}, profile_.chip});
        file_.table("SESSION_TIME_INFO", "startTimeNs INTEGER, endTimeNs INTEGER");
        file_.row({profile_.begin, profile_.end});
        file_.table("META_DATA", "name TEXT, value TEXT");
        file_.row({std::string("SCHEMA_VERSION"), std::string("1.2.0")});
        file_.row({std::string("SCHEMA_VERSION_MAJOR"), std::string("1")});
        file_.row({std::string("SCHEMA_VERSION_MINOR"), std::string("2")});
        file_.row({std::string("SCHEMA_VERSION_MICRO"), std::string("0")});
        file_.row({std::string("predicted"), std::string(profile_.predicted ? "true" : "false")});
    }

    const Profile &profile_;
    SqliteFile file_;
    std::unordered_map<std::string, int64_t> strings_;
};

}  // namespace

std::string database(const Profile &profile) { return Database(profile).write(); }

std::string communication_database(const Profile &profile) {
    const std::vector<Spent> all = spent(profile);
    if (all.empty()) return {};
    SqliteFile file;
    file.table("CommAnalyzerBandwidth",
               "hccl_op_name TEXT, group_name TEXT, transport_type TEXT, transit_size NUMERIC, "
               "transit_time NUMERIC, bandwidth NUMERIC, large_packet_ratio NUMERIC, "
               "package_size NUMERIC, count NUMERIC, total_duration NUMERIC");
    for (const Spent &one : all)
        for (const char *transport : {one.transport, "SDMA"}) {
            if (transport != one.transport && std::string_view(one.transport) != "HCCS") continue;
            file.row({one.task->name, one.task->group, std::string(transport), one.megabytes, one.transit_ms,
                      one.transit_ms > 0 ? one.megabytes / one.transit_ms : 0.0, one.megabytes >= 16 ? 1.0 : 0.0,
                      one.megabytes, int64_t{1}, one.transit_ms});
        }
    file.table("CommAnalyzerMatrix",
               "hccl_op_name TEXT, group_name TEXT, src_rank TEXT, dst_rank TEXT, "
               "transport_type TEXT, transit_size NUMERIC, transit_time NUMERIC, bandwidth NUMERIC");
    for (const Spent &one : all)
        for (const Link &link : links(one))
            file.row({one.task->name, one.task->group, std::to_string(link.from), std::to_string(link.to),
                      std::string(one.transport), link.megabytes, one.transit_ms,
                      one.transit_ms > 0 ? link.megabytes / one.transit_ms : 0.0});
    file.table("CommAnalyzerTime",
               "hccl_op_name TEXT, group_name TEXT, start_timestamp NUMERIC, elapse_time NUMERIC, "
               "transit_time NUMERIC, wait_time NUMERIC, synchronization_time NUMERIC, "
               "idle_time NUMERIC");
    for (const Spent &one : all)
        file.row({one.task->name, one.task->group, static_cast<double>(one.task->start) / 1e3, one.elapse_ms,
                  one.transit_ms, one.wait_ms, one.wait_ms, 0.0});
    return file.finish();
}

}  // namespace msprof
