// torch_npu's files in FRAMEWORK (torch_npu/profiler/analysis/prof_config/_fwk_file_parser_config.py of 2.13): records
// with a head of fixed size, some each behind a tag (u16) and a length (u32).
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>

#include "ascendcl/profiler/session.h"

namespace vnpu::acl {
namespace {

namespace fs = std::filesystem;

struct Form {
    const char *name;
    size_t head;  // bytes; of a record without a tag, all of it
    bool tagged;
    std::vector<size_t> times;  // where they lie in the head
};

const Form *form_of(const std::string &name) {
    static const auto *const forms = new std::vector<Form>{
        {"torch.op_range", 58, true, {0, 8}},    {"torch.op_mark", 40, true, {0}},
        {"torch.memory_usage", 77, true, {8}},   {"torch.python_tracer_func", 33, false, {0}},
        {"torch.gc_record", 24, false, {8, 16}},
    };
    for (const Form &form : *forms)
        if (name.starts_with(form.name)) return &form;
    return nullptr;
}

void retime(std::string &data, const Form &form, const TimeMap &map, int64_t offset) {
    for (size_t at = 0;;) {
        size_t length = form.head;
        if (form.tagged) {
            if (at + 6 > data.size()) return;
            uint32_t given = 0;
            std::memcpy(&given, &data[at + 2], sizeof given);
            at += 6;
            length = given;
        }
        if (at + length > data.size() || length < form.head) return;  // the last record is cut off
        for (const size_t place : form.times) {
            int64_t time = 0;
            std::memcpy(&time, &data[at + place], sizeof time);
            time = map(time) + offset;
            std::memcpy(&data[at + place], &time, sizeof time);
        }
        at += length;
    }
}

std::optional<std::string> read(const fs::path &path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return std::nullopt;
    return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

bool retime_framework(const fs::path &folder, const std::vector<std::string> &names, const TimeMap &map,
                      int64_t offset) noexcept {
    std::vector<std::pair<fs::path, fs::path>> made;  // what is to replace which
    try {
        if (!fs::is_directory(folder)) return true;  // only the NPU is profiled
        for (const auto &entry : fs::directory_iterator(folder)) {
            const std::string name = entry.path().filename();
            const Form *form = form_of(name);
            if (form == nullptr || !entry.is_regular_file()) continue;
            if (!names.empty() && std::ranges::find(names, form->name) == names.end()) continue;
            std::optional<std::string> data = read(entry.path());
            if (!data)
                throw fs::filesystem_error("cannot be read", entry.path(),
                                           std::error_code(errno, std::generic_category()));
            retime(*data, *form, map, offset);
            // Not a name that torch_npu's parser would take for one of its own.
            const fs::path next = folder / ("retimed." + name);
            made.emplace_back(next, entry.path());
            std::ofstream file(next, std::ios::binary);
            file.write(data->data(), static_cast<std::streamsize>(data->size()));
            file.close();
            if (!file)
                throw fs::filesystem_error("cannot be written", next, std::error_code(errno, std::generic_category()));
            fs::permissions(next, entry.status().permissions());
        }
        for (const auto &[next, old] : made) fs::rename(next, old);
        return true;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "torchport: the profile keeps this machine's times instead of the model's: %s\n",
                     error.what());
        std::error_code ignored;
        for (const auto &[next, old] : made) fs::remove(next, ignored);
        return false;
    }
}

}  // namespace vnpu::acl
