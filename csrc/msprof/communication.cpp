// What ranks have sent each other: communication.json and communication_matrix.json, and the rows of both for a
// database.
#include "msprof/communication.h"

#include <fmt/format.h>

#include <cstdlib>

#include "msprof/writers.h"

namespace msprof {
namespace {

constexpr const char *kTransports[] = {"RDMA", "HCCS", "PCIE", "SDMA", "SIO"};

bool several_machines() {
    const char *world = std::getenv("WORLD_SIZE"), *local = std::getenv("LOCAL_WORLD_SIZE");
    return world != nullptr && local != nullptr && std::atoi(world) > std::atoi(local);
}

std::string bandwidth(const Spent &one, const std::string &transport) {
    const bool used = transport == one.transport || (transport == "SDMA" && std::string_view(one.transport) == "HCCS");
    const double size = used ? one.megabytes : 0, time = used ? one.transit_ms : 0;
    return fmt::format(
        R"-("{}":{{"Transit Size(MB)":{:.6f},"Transit Time(ms)":{:.6f},"Bandwidth(GB/s)":{:.4f},"Large Packet Ratio":{},)-"
        R"-("Size Distribution":{{{}}}}})-",
        transport, size, time, time > 0 ? size / time : 0, used && size >= 16 ? 1 : 0,
        used && size > 0 ? fmt::format(R"-("{:.6f}":[1,{:.6f}])-", size, time) : "");
}

}  // namespace

std::vector<Spent> spent(const Profile &profile) {
    std::vector<Spent> all;
    const char *transport = several_machines() ? "RDMA" : "HCCS";
    for (const Task &task : profile.tasks)
        if (task.what == What::Communication)
            all.push_back({&task, transport, task.bytes / 1e6, static_cast<double>(task.busy()) / 1e6,
                           static_cast<double>(task.end - task.transit) / 1e6,
                           static_cast<double>(task.transit - task.start) / 1e6});
    return all;
}

std::vector<Link> links(const Spent &one) {
    std::vector<Link> all;
    const Task &task = *one.task;
    for (int peer = 0; peer < task.ranks; ++peer)
        if (peer != task.rank && (task.peer < 0 || peer == task.peer))
            all.push_back({task.rank, peer, one.megabytes / (task.peer < 0 ? task.ranks - 1 : 1)});
    return all;
}

std::string communication(const Profile &profile) {
    std::string out;
    for (const Spent &one : spent(profile)) {
        const double total = one.transit_ms + one.wait_ms;
        out += fmt::format(
            R"-({}"{}@{}":{{{},"Communication Time Info":{{"Start Timestamp(us)":{},"Elapse Time(ms)":{:.6f},)-"
            R"-("Transit Time(ms)":{:.6f},"Wait Time(ms)":{:.6f},"Synchronization Time(ms)":{:.6f},"Idle Time(ms)":0,)-"
            R"-("Wait Time Ratio":{:.4f},"Synchronization Time Ratio":{:.4f}}},"Communication Bandwidth Info":{{)-",
            out.empty() ? "{" : ",\n", one.task->name, escaped(one.task->group), predicted(profile),
            microseconds(one.task->start), one.elapse_ms, one.transit_ms, one.wait_ms, one.wait_ms,
            total > 0 ? one.wait_ms / total : 0, total > 0 ? one.wait_ms / total : 0);
        bool first = true;
        for (const char *transport : kTransports) {
            out += (first ? "" : ",") + bandwidth(one, transport);
            first = false;
        }
        out += "}}";
    }
    return out.empty() ? out : out + "}";
}

std::string communication_matrix(const Profile &profile) {
    std::string out;
    for (const Spent &one : spent(profile)) {
        out += fmt::format(R"-({}"{}@{}":{{)-", out.empty() ? "{" : ",\n", one.task->name, escaped(one.task->group));
        bool first = true;
        for (const Link &link : links(one)) {
            out += fmt::format(
                R"-({}"{}-{}":{{"Transport Type":"{}","Transit Size(MB)":{:.6f},"Transit Time(ms)":{:.6f},"Bandwidth(GB/s)":{:.4f},{}}})-",
                first ? "" : ",", link.from, link.to, one.transport, link.megabytes, one.transit_ms,
                one.transit_ms > 0 ? link.megabytes / one.transit_ms : 0, predicted(profile));
            first = false;
        }
        out += "}";
    }
    return out.empty() ? out : out + "}";
}

}  // namespace msprof
