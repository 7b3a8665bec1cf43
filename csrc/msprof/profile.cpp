#include "msprof/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

#include "device/chip.h"
#include "device/event_records.h"
#include "device/time_map.h"

namespace msprof {
namespace {

namespace records = vnpu::records;
namespace fs = std::filesystem;
using vnpu::Unit;

template <class T>
T at(const std::string &data, size_t where) {
    T value;
    std::memcpy(&value, data.data() + where, sizeof value);
    return value;
}

// Whether the cube and the vector units are cores of their own.
bool has_units_apart(std::string_view chip) {
    using vnpu::Generation;
    static constexpr vnpu::Chip kChips[] = {
#include "chips.inc"
    };
    return std::any_of(std::begin(kChips), std::end(kChips),
                       [&](const vnpu::Chip &known) { return chip == known.name && !known.unified; });
}

// c10::ScalarType's numbers, in CANN's words.
const char *dtype_name(uint8_t dtype) {
    switch (dtype) {
        case 0:
            return "UINT8";
        case 1:
            return "INT8";
        case 2:
            return "INT16";
        case 3:
            return "INT32";
        case 4:
            return "INT64";
        case 5:
            return "FLOAT16";
        case 6:
            return "FLOAT";
        case 7:
            return "DOUBLE";
        case 9:
            return "COMPLEX64";
        case 10:
            return "COMPLEX128";
        case 11:
            return "BOOL";
        case 15:
            return "DT_BF16";
        case 27:
            return "UINT16";
        case 28:
            return "UINT32";
        case 29:
            return "UINT64";
        default:
            return "UNDEFINED";
    }
}

const char *format_name(uint8_t format) {
    switch (format) {
        case 0:
            return "NCHW";
        case 1:
            return "NHWC";
        case 3:
            return "NC1HWC0";
        case 4:
            return "FRACTAL_Z";
        case 29:
            return "FRACTAL_NZ";
        case 30:
            return "NCDHW";
        case 32:
            return "NDC1HWC0";
        case 33:
            return "FRACTAL_Z_3D";
        default:
            return "ND";
    }
}

const char *engine_of(Unit unit, const std::string &type, bool two_kinds) {
    if (unit == Unit::DeviceCpu) return "AI_CPU";
    if (!two_kinds) return "AI_CORE";
    if (type.find("Attention") != std::string::npos) return "MIX_AIC";
    return unit == Unit::Cube || unit == Unit::Depthwise ? "AI_CORE" : "AI_VECTOR_CORE";
}

std::string type_of(const std::string &label) {
    std::string_view type = label;
    if (type.starts_with("aclnn")) type.remove_prefix(5);
    if (type.starts_with("Inplace")) type.remove_prefix(7);
    return std::string(type);
}

// HcclAllReduce: hcom_allReduce_
std::string communication_type(const std::string &label) {
    std::string name = label.starts_with("Hccl") ? label.substr(4) : label;
    if (name == "Recv") name = "Receive";
    if (name == "AlltoAll" || name == "AlltoAllV") name = "alltoallv";
    if (!name.empty()) name[0] = static_cast<char>(std::tolower(name[0]));
    return "hcom_" + name + "_";
}

// As CANN: three digits that all ranks of a group find.
unsigned short_hash(const std::string &group) {
    uint32_t hash = 2166136261u;
    for (const char letter : group) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619u;
    return hash % 1000;
}

class Reader {
  public:
    explicit Reader(const fs::path &folder) {
        profile_.folder = folder;
        const fs::path path = folder / "host" / "data" / "vnpu.events";
        std::ifstream file(path, std::ios::binary);
        if (!file)
            throw Failure(
                fmt::format("{} is missing: {} is no profile of the virtual NPU.", path.string(), folder.string()));
        data_.assign(std::istreambuf_iterator<char>(file), {});
        if (!data_.starts_with(records::kMagic)) throw Failure(fmt::format("{} is no event log.", path.string()));
    }

    Profile read() {
        scan();
        if (!ended_)
            throw Failure(fmt::format("The profile in {} has no end: its process was killed or its disk was full.",
                                      profile_.folder.string()));
        profile_.predicted = end_.wall == 0;
        profile_.begin = begin_.realtime;
        profile_.end = profile_.predicted ? device_time(end_.virtual_time) : begin_.realtime + (end_.raw - begin_.raw);
        clocks_.add(begin_.raw, begin_.virtual_time);
        for (const records::Call &call : calls_)
            clocks_.add_call(call.thread, call.correlation != 0, begin_.host_ns, call.began, call.ended,
                             call.virtual_began, call.virtual_ended);
        clocks_.add(end_.raw, end_.virtual_time);
        clocks_.finish_launches();
        clocks_.finish();
        take_tasks();
        take_host();
        return std::move(profile_);
    }

  private:
    struct Seen {
        size_t where;
        records::Task task;
        records::Collective collective;
        bool has_collective;
        uint64_t connection;
    };

    void scan() {
        size_t where = std::strlen(records::kMagic);
        records::Collective collective{};
        bool has_collective = false;
        while (where + sizeof(records::Head) <= data_.size()) {
            const auto head = at<records::Head>(data_, where);
            if (head.length < sizeof head || where + head.length > data_.size()) break;
            switch (head.type) {
                case records::kName: {
                    const auto name = at<records::Name>(data_, where);
                    if (names_.size() <= name.number) names_.resize(name.number + 1);
                    names_[name.number] = data_.substr(where + sizeof name, name.bytes);
                    break;
                }
                case records::kProcess: {
                    const auto process = at<records::Process>(data_, where);
                    profile_.process = process.process;
                    profile_.rank = process.rank;
                    profile_.world = process.world;
                    chip_ = process.chip;
                    break;
                }
                case records::kCollective:
                    collective = at<records::Collective>(data_, where);
                    has_collective = true;
                    break;
                case records::kTask:
                    seen_.push_back({where, at<records::Task>(data_, where), collective, has_collective, 0});
                    has_collective = false;
                    break;
                case records::kCall:
                    calls_.push_back(at<records::Call>(data_, where));
                    break;
                case records::kMark:
                    marks_.push_back(at<records::Mark>(data_, where));
                    break;
                case records::kMemory:
                    memory_.push_back(at<records::Memory>(data_, where));
                    break;
                case records::kQueueThread:
                    clocks_.take_from_queue(at<records::QueueThread>(data_, where).thread);
                    break;
                case records::kPut: {
                    const auto put = at<records::Put>(data_, where);
                    clocks_.add_put(put.raw, put.virtual_time);
                    break;
                }
                case records::kBegin:
                    begin_ = at<records::Begin>(data_, where);
                    break;
                case records::kEnd:
                    end_ = at<records::End>(data_, where);
                    ended_ = true;
                    break;
                default:
                    break;
            }
            where += head.length;
        }
        profile_.chip = name(chip_);
        profile_.device = static_cast<int>(begin_.device);
        profile_.switches = begin_.switches;
        profile_.metrics = begin_.metrics;
        profile_.matrix_flops = begin_.matrix_flops;
        profile_.bandwidth = begin_.bandwidth;
        profile_.clock_ghz = begin_.clock_ghz;
        profile_.cube_cores = begin_.cube_cores;
        profile_.vector_cores = begin_.vector_cores;
    }

    const std::string &name(uint32_t number) const {
        static const std::string none = "?";
        return number < names_.size() ? names_[number] : none;
    }
    int64_t device_time(int64_t virtual_time) const { return begin_.realtime + (virtual_time - begin_.virtual_time); }
    int64_t wall_time(int64_t monotonic) const { return begin_.realtime + (monotonic - begin_.monotonic); }
    int64_t host_time(uint32_t thread, int64_t raw) const {
        return begin_.realtime +
               (profile_.predicted ? clocks_.of(thread)(raw) - begin_.virtual_time : raw - begin_.raw);
    }

    // A replayed graph runs its tasks within one of its own; they belong to the call that has started the replay.
    void connect() {
        std::map<uint32_t, std::vector<Seen *>> replays;
        for (Seen &one : seen_) {
            one.connection = one.task.correlation;
            if (name(one.task.name) == "GraphExecute") replays[one.task.stream].push_back(&one);
        }
        for (Seen &one : seen_) {
            const auto found = replays.find(one.task.stream);
            if (found == replays.end() || name(one.task.name) == "GraphExecute") continue;
            for (const Seen *replay : found->second)
                if (one.task.times.began >= replay->task.times.began &&
                    one.task.times.ended <= replay->task.times.ended)
                    one.connection = replay->task.correlation;
        }
    }

    void take_tasks() {
        connect();
        const bool two_kinds = has_units_apart(profile_.chip);
        std::map<std::pair<std::string, std::string>, unsigned> messages;
        for (const Seen &one : seen_) {
            const records::Task &from = one.task;
            const std::string &label = name(from.name);
            const bool before = from.times.virtual_began < begin_.virtual_time;
            if (from.failed || before || label == "GraphExecute") continue;
            Task to{};
            const auto unit = static_cast<Unit>(from.unit);
            to.device = from.device;
            to.stream = static_cast<int>(from.stream);
            to.connection = one.connection;
            to.flops = from.flops;
            to.bytes = from.bytes;
            to.start = to.transit =
                profile_.predicted ? device_time(from.times.virtual_began) : wall_time(from.times.began);
            to.end = profile_.predicted ? device_time(from.times.virtual_end) : wall_time(from.times.ended);
            if (one.has_collective) {
                to.what = What::Communication;
                to.engine = "COMMUNICATION";
                to.type = communication_type(label);
                to.group = name(one.collective.group);
                to.sequence = one.collective.sequence;
                to.count = one.collective.count;
                to.rank = one.collective.rank;
                to.ranks = from.ranks;
                to.data_type = one.collective.type;
                to.peer = one.collective.peer;
                const bool message = to.type == "hcom_send_" || to.type == "hcom_receive_";
                const uint64_t number = message ? messages[{to.group, to.type}]++ : to.sequence;
                to.name = fmt::format("{}_{:03}_{}_1", to.type, short_hash(to.group), number);
                if (profile_.predicted) to.start = std::min(to.transit, device_time(one.collective.virtual_ready));
            } else if (label.starts_with("Memcpy") || label.starts_with("Memset")) {
                to.what = What::Copy;
                to.engine = label.starts_with("Memcpy") ? "MEMCPY_ASYNC" : "MEMSET_ASYNC";
                to.name = to.type = to.engine;
            } else if (unit == Unit::None) {
                to.what = What::Event;
                to.engine = label == "EventRecord" ? "EVENT_RECORD" : label == "EventWait" ? "EVENT_WAIT" : "OTHER";
                to.name = to.type = label;
            } else {
                to.what = What::Kernel;
                to.type = type_of(label);
                to.name = label.starts_with("aclnn") ? fmt::format("{}_{}", label, to.type) : to.type;
                to.engine = engine_of(unit, to.type, two_kinds);
            }
            take_tensors(one, to);
            profile_.tasks.push_back(std::move(to));
        }
        std::ranges::stable_sort(profile_.tasks, {}, &Task::start);
        std::map<std::pair<int, int>, std::pair<uint32_t, int64_t>> streams;
        for (Task &task : profile_.tasks) {
            auto &[number, until] = streams[{task.device, task.stream}];
            task.id = ++number;
            task.wait_us = until == 0 ? 0 : static_cast<double>(std::max<int64_t>(task.start - until, 0)) / 1e3;
            until = std::max(until, task.end);
        }
    }

    void take_tensors(const Seen &one, Task &to) const {
        size_t where = one.where + sizeof(records::Task);
        for (int i = 0; i < one.task.tensors; ++i) {
            const auto tensor = at<records::Tensor>(data_, where);
            where += sizeof tensor;
            std::string shape;
            for (int j = 0; j < tensor.rank; ++j, where += sizeof(int64_t))
                shape += fmt::format("{}{}", j == 0 ? "" : ",", at<int64_t>(data_, where));
            to.tensors.push_back({std::move(shape), dtype_name(tensor.dtype), format_name(tensor.format), tensor.bytes,
                                  (tensor.flags & 1) != 0});
        }
    }

    void take_host() {
        for (const records::Call &call : calls_)
            profile_.calls.push_back({name(call.name), call.thread, call.correlation,
                                      host_time(call.thread, call.began), host_time(call.thread, call.ended)});
        std::map<uint64_t, size_t> open;
        for (const records::Mark &mark : marks_) {
            const int64_t time = host_time(mark.thread, mark.raw);
            if (mark.kind == 2) {
                if (const auto found = open.find(mark.number); found != open.end())
                    profile_.marks[found->second].end = time;
                continue;
            }
            if (mark.kind == 1) open[mark.number] = profile_.marks.size();
            profile_.marks.push_back({name(mark.domain), name(mark.message), mark.thread, mark.number, mark.correlation,
                                      time, mark.kind == 1 ? profile_.end : time});
        }
        for (const records::Memory &memory : memory_)
            profile_.memory.push_back(
                {static_cast<int>(memory.device),
                 profile_.predicted ? device_time(memory.virtual_time) : wall_time(memory.monotonic), memory.used});
    }

    std::string data_;
    std::vector<std::string> names_;
    std::vector<Seen> seen_;
    std::vector<records::Call> calls_;
    std::vector<records::Mark> marks_;
    std::vector<records::Memory> memory_;
    records::Begin begin_{};
    records::End end_{};
    bool ended_ = false;
    uint32_t chip_ = 0;
    vnpu::ProgramTime clocks_;
    Profile profile_;
};

}  // namespace

Profile read_profile(const fs::path &folder) { return Reader(folder).read(); }

std::vector<Interval> joined(std::vector<Interval> all) {
    std::ranges::sort(all, {}, &Interval::start);
    std::vector<Interval> out;
    for (const Interval &one : all) {
        if (one.end <= one.start) continue;
        if (!out.empty() && one.start <= out.back().end)
            out.back().end = std::max(out.back().end, one.end);
        else
            out.push_back(one);
    }
    return out;
}

std::vector<Interval> without(const std::vector<Interval> &all, const std::vector<Interval> &these) {
    std::vector<Interval> out;
    auto next = these.begin();
    for (Interval rest : all) {
        while (next != these.end() && next->end <= rest.start) ++next;
        for (auto cut = next; cut != these.end() && cut->start < rest.end; ++cut) {
            if (cut->start > rest.start) out.push_back({rest.start, cut->start});
            rest.start = std::max(rest.start, cut->end);
        }
        if (rest.start < rest.end) out.push_back(rest);
    }
    return out;
}

std::vector<int> devices_of(const Profile &profile) {
    std::set<int> all{profile.device};
    for (const Task &task : profile.tasks) all.insert(task.device);
    return {all.begin(), all.end()};
}

std::string microseconds(int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

}  // namespace msprof
