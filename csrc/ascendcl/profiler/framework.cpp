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

// Of torch.op_mark.
constexpr size_t kMarkKind = 8, kMarkNumber = 16, kMarkThread = 24;
enum MarkKind : uint64_t { kPut = 1, kTaken = 2 };  // the end of putting, the start of taking

struct Form {
    const char *name;
    size_t head;  // bytes; of a record without a tag, all of it
    bool tagged;
    std::vector<size_t> times;     // where they lie in the head
    std::optional<size_t> thread;  // where it does; else of the program's, which keeps their order
};

const Form *form_of(const std::string &name) {
    static const auto *const forms = new std::vector<Form>{
        {"torch.op_range", 58, true, {0, 8}, 32},    {"torch.op_mark", 40, true, {0}, kMarkThread},
        {"torch.memory_usage", 77, true, {8}, {}},   {"torch.python_tracer_func", 33, false, {0}, {}},
        {"torch.gc_record", 24, false, {8, 16}, {}},
    };
    for (const Form &form : *forms)
        if (name.starts_with(form.name)) return &form;
    return nullptr;
}

template <class T>
T value_at(const std::string &data, size_t at) {
    T value{};
    std::memcpy(&value, &data[at], sizeof value);
    return value;
}

// Calls back with where the head of each record begins.
template <class Each>
void for_each_record(const std::string &data, const Form &form, const Each &each) {
    for (size_t at = 0;;) {
        size_t length = form.head;
        if (form.tagged) {
            if (at + 6 > data.size()) return;
            length = value_at<uint32_t>(data, at + 2);
            at += 6;
        }
        if (at + length > data.size() || length < form.head) return;  // the last record is cut off
        each(at);
        at += length;
    }
}

void retime(std::string &data, const Form &form, const ProgramTime &clocks, int64_t offset) {
    for_each_record(data, form, [&](size_t at) {
        const TimeMap &map = form.thread ? clocks.of(value_at<uint64_t>(data, at + *form.thread)) : clocks.program();
        for (const size_t place : form.times) {
            const int64_t time = map(value_at<int64_t>(data, at + place)) + offset;
            std::memcpy(&data[at + place], &time, sizeof time);
        }
    });
}

std::optional<std::string> read(const fs::path &path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return std::nullopt;
    return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

QueueMarks queue_marks(const fs::path &folder) {
    QueueMarks marks;
    const Form &form = *form_of("torch.op_mark");
    const std::optional<std::string> data = read(folder / form.name);
    if (!data) return marks;
    for_each_record(*data, form, [&](size_t at) {
        const auto number = value_at<uint64_t>(*data, at + kMarkNumber);
        const auto time = value_at<int64_t>(*data, at);
        const auto kind = value_at<uint64_t>(*data, at + kMarkKind);
        if (kind == kPut) marks.put.emplace(number, time);
        if (kind != kTaken) return;
        marks.taken.emplace(number, time);
        marks.threads.insert(value_at<uint64_t>(*data, at + kMarkThread));
    });
    return marks;
}

bool retime_framework(const fs::path &folder, const std::vector<std::string> &names, const ProgramTime &clocks,
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
            retime(*data, *form, clocks, offset);
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
