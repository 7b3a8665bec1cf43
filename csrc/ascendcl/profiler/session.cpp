#include "ascendcl/profiler/session.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <random>
#include <thread>

#include "device/event_records.h"
#include "device/machine.h"

namespace vnpu::acl {
namespace {

namespace fs = std::filesystem;

// From when an operator is in torch_npu's queue to when it is taken out, ns: an order of magnitude for waking a thread,
// and more than a viewer loses that keeps microseconds since 1970 as a float.
constexpr int64_t kWaking = 1000;
constexpr auto kDrainLimit = std::chrono::seconds(30);

// As CANN names them; torch_npu looks for ^PROF_\d+_\d+_[0-9a-zA-Z]+.
std::string folder_name() {
    static std::atomic<int> made{0};
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    tm local{};
    localtime_r(&now.tv_sec, &local);
    std::random_device random;
    std::string letters;
    for (int i = 0; i < 16; ++i) letters += static_cast<char>('A' + random() % 26);
    return fmt::format("PROF_{:06}_{:04}{:02}{:02}{:02}{:02}{:02}{:03}_{}", ++made, local.tm_year + 1900,
                       local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec,
                       now.tv_nsec / 1'000'000, letters);
}

void write_text(const fs::path &path, const std::string &text) {
    std::ofstream file(path);
    file << text;
    file.close();
    if (!file) fail(FaultKind::InvalidArgument, "{} cannot be written: {}.", path.string(), std::strerror(errno));
}

// What CANN says of the machine that it profiles, as far as anything reads it.
std::string machine_info(const Chip &chip, uint32_t device) {
    const char *rank = std::getenv("RANK");
    return fmt::format(
        R"-({{"jobInfo": "", "predicted": true, "devices": "{0}", "version": "1.0", "hostname": "", "rank_id": {1}, )-"
        R"-("CPU": [{{"Id": 0, "Name": "host", "Frequency": "1000.000000"}}], "DeviceInfo": [{{"id": {0}, )-"
        R"-("aic_frequency": "{2}", "aiv_frequency": "{2}", "ai_core_num": {3}, "aiv_num": {4}, "hwts_frequency": )-"
        R"-("50.000000", "aicpu_frequency": "1000", "soc_version": "{5}"}}], "platform_version": "{6}"}})-",
        device, rank == nullptr || *rank == '\0' ? "-1" : rank, static_cast<int64_t>(chip.clock_ghz * 1000),
        chip.cube_cores, chip.vector_cores, chip.name, chip.generation == Generation::k910B ? 5 : 0);
}

std::span<const std::byte> body_of(const auto &record) {
    return std::as_bytes(std::span(&record, 1)).subspan(sizeof(records::Head));
}

}  // namespace

ProfilerSession::ProfilerSession(const fs::path &root, const aclprofConfig &config)
    : root_(root), switches_(config.switches) {
    const Settings &settings = Machine::instance().settings();
    const Chip &chip = *settings.chip;
    const char *time = std::getenv("VNPU_TIME");
    model_time_ = time == nullptr || std::string_view(time) != "wall";
    launch_cost_ = static_cast<int64_t>(chip.time.host_us * 1e3);
    folder_ = root_ / folder_name();
    const uint32_t device = config.devices.empty() ? 0 : config.devices.front();
    try {
        fs::create_directories(folder_ / "host" / "data");
        for (const uint32_t each : config.devices) {
            const fs::path of_device = folder_ / fmt::format("device_{}", each);
            fs::create_directories(of_device / "data");
            write_text(of_device / fmt::format("info.json.{}", each), machine_info(chip, each));
        }
    } catch (const fs::filesystem_error &error) {
        fail(FaultKind::InvalidArgument, "A profile cannot be written below {}: {}", root_.string(), error.what());
    }
    log_ = std::make_unique<EventLog>(folder_ / "host" / "data" / "vnpu.events", settings, EventLog::Of::Session,
                                      "the profile in " + folder_.string());
    began_ = EventLog::Moment::now();
    write_text(folder_ / "host" / "info.json", machine_info(chip, device));
    // torch_npu reads it as a literal of Python.
    write_text(folder_ / "host" / "start_info",
               fmt::format(R"-({{"collectionTimeBegin": "{}.{:03}", "clockMonotonicRaw": "{}", "predicted": "{}"}})-",
                           began_.realtime / 1000, began_.realtime % 1000, began_.raw, model_time_ ? "true" : "false"));
    const double peak = static_cast<double>(chip.cube_cores) * 16 * 16 * 16 * 2 * chip.clock_ghz * 1e9;
    log_->add(records::kBegin, body_of(records::Begin{{},
                                                      switches_,
                                                      static_cast<uint32_t>(config.metrics),
                                                      device,
                                                      began_.raw,
                                                      began_.monotonic,
                                                      began_.realtime,
                                                      began_.virtual_time,
                                                      launch_cost_,
                                                      peak,
                                                      chip.bandwidth_gbs * 1e9,
                                                      chip.clock_ghz,
                                                      static_cast<int32_t>(chip.cube_cores),
                                                      static_cast<int32_t>(chip.vector_cores)}));
    for (int each = 0; each < settings.devices; ++each)
        if (const Heap *heap = Machine::instance().heap(each); heap != nullptr)
            log_->memory({each, nullptr, 0, heap->used()});
    log_->flush();  // what is left of a process that is killed can be recognised
    Timeline::add(*this);
}

ProfilerSession::~ProfilerSession() { stop(); }

// What every operator does besides, and what takes no time.
void ProfilerSession::call(const CallSeen &call) noexcept {
    const std::string_view name = call.name;
    if (call.correlation == 0 && (!name.starts_with("aclrt") || name.starts_with("aclrtGet"))) return;
    log_->call(call);
    const std::lock_guard lock(mutex_);
    passed_.push_back(
        {call.thread, call.correlation != 0, call.began, call.ended, call.virtual_began, call.virtual_ended});
}

void ProfilerSession::make_clocks(const EventLog::Moment &now) {
    const QueueMarks marks = queue_marks(root_ / "FRAMEWORK");
    for (const uint64_t thread : marks.threads) {
        clocks_.take_from_queue(thread);
        log_->add(records::kQueueThread, body_of(records::QueueThread{{}, static_cast<uint32_t>(thread), 0}));
    }
    clocks_.add(began_.raw, began_.virtual_time);
    for (const Passed &call : passed_)
        clocks_.add_call(call.thread, call.launched, launch_cost_, call.began, call.ended, call.virtual_began,
                         call.virtual_ended);
    clocks_.add(now.raw, now.virtual_time);
    clocks_.finish_launches();
    for (const auto &[number, raw] : marks.put) {
        const auto taken = marks.taken.find(number);
        if (taken == marks.taken.end()) continue;
        const int64_t time = clocks_.launches()(taken->second) - kWaking;
        clocks_.add_put(raw, time);
        log_->add(records::kPut, body_of(records::Put{{}, raw, time}));
    }
    clocks_.finish();
}

void ProfilerSession::stop() noexcept {
    if (std::exchange(stopped_, true)) return;
    const Deadline until = Clock::now() + kDrainLimit;
    Machine &machine = Machine::instance();
    for (int device = 0; device < machine.settings().devices; ++device)
        while (machine.active(device) && !machine.idle(device) && Clock::now() < *until)
            std::this_thread::sleep_for(std::chrono::microseconds(200));
    Timeline::remove(*this);
    const EventLog::Moment now = EventLog::Moment::now();
    // Of a log that is not whole no file is made, so torch_npu's have nothing to agree with.
    if (!log_->flush()) {
        model_time_ = false;
        return;
    }
    if (model_time_) {
        try {
            make_clocks(now);
            model_time_ = to_model_time({});
        } catch (const std::exception &error) {  // no memory left
            std::fprintf(stderr, "torchport: the profile keeps this machine's times instead of the model's: %s\n",
                         error.what());
            model_time_ = false;
        }
    }
    log_->add(records::kEnd,
              body_of(records::End{{}, now.raw, now.monotonic, now.realtime, now.virtual_time, !model_time_, 0}));
    log_->flush();
}

bool ProfilerSession::to_model_time(const std::vector<std::string> &names) noexcept {
    return retime_framework(root_ / "FRAMEWORK", names, clocks_, began_.raw - began_.virtual_time);
}

void ProfilerSession::rewrite_late() noexcept {
    if (model_time_) to_model_time({"torch.gc_record"});
}

}  // namespace vnpu::acl
