#include "ascendcl/dump.h"

#include <acl/acl_rt.h>

#include <chrono>
#include <ctime>
#include <fstream>

#include "ascendcl/call.h"
#include "device/machine.h"

namespace vnpu::acl {
namespace {

std::mutex mutex;
std::shared_ptr<Dump> &running_dump() {
    static auto *dump = new std::shared_ptr<Dump>;  // never destroyed: operators are launched until the very end
    return *dump;
}

std::string time_of_day() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    char text[32];
    return {text, std::strftime(text, sizeof text, "%Y%m%d%H%M%S", &local)};
}

// The file is whole or not there.
void write_whole(const std::filesystem::path &path, std::string_view bytes) {
    std::filesystem::path partial = path;
    partial += ".partial";
    std::ofstream file(partial, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) throw std::runtime_error(fmt::format("{} cannot be written", path.string()));
    std::filesystem::rename(partial, path);
}

}  // namespace

std::atomic<bool> Dump::running{false};

Dump::Dump(const std::filesystem::path &path, bool inputs, bool outputs)
    : folder_(std::filesystem::absolute(path) / time_of_day()), inputs_(inputs), outputs_(outputs) {
    std::filesystem::create_directories(folder_);
}

void Dump::missing(std::string_view type, std::string_view reason) noexcept {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = fmt::format("{}: {}", type, reason);
}

void Dump::write(std::string_view type, std::vector<DumpedTensor> inputs, std::vector<DumpedTensor> outputs) noexcept {
    const Stream *stream = current_worker();
    try {
        const auto now = std::chrono::system_clock::now().time_since_epoch();
        const int64_t microseconds = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
        const uint64_t task = tasks_++;
        const std::filesystem::path folder = folder_ / std::to_string(stream->device());
        const std::string name = fmt::format("{}_{}", type, task);
        std::filesystem::create_directories(folder);
        write_whole(folder / fmt::format("{}.{}.{}.{}.{}", type, name, task, stream->id(), microseconds),
                    dump_file({name, microseconds, std::move(inputs), std::move(outputs)}));
    } catch (const std::exception &failure) {
        missing(type, failure.what());
    }
}

std::shared_ptr<Dump> Dump::latest() {
    const std::lock_guard lock(mutex);
    return running_dump();
}

void Dump::begin(std::shared_ptr<Dump> dump) {
    const std::lock_guard lock(mutex);
    running = true;
    running_dump() = std::move(dump);
}

void Dump::end() {
    std::shared_ptr<Dump> dump;
    {
        const std::lock_guard lock(mutex);
        running = false;
        dump.swap(running_dump());
    }
    if (dump == nullptr) return;
    Machine &machine = Machine::instance();
    for (int device = 0; device < machine.settings().devices; ++device)
        if (machine.active(device)) machine.drain(device);
    dump->over_ = true;
    const std::lock_guard lock(dump->mutex_);
    if (!dump->failure_.empty())
        throw Error(ACL_ERROR_WRITE_FILE, fmt::format("Files of the dump are missing; the first: {}.", dump->failure_));
}

}  // namespace vnpu::acl
