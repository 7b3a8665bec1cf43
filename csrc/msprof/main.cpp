// msprof: makes of a profile (a folder PROF_*, or folders PROF_* below one) the files that torch_npu and MindStudio's
// tools read. torch_npu calls it with --export=on and --analyze=on.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <optional>
#include <string_view>
#include <thread>

#include "msprof/writers.h"

namespace {

namespace fs = std::filesystem;
using msprof::Failure;

constexpr const char *kHelp =
    R"(msprof of the virtual NPU: makes the files of a profile that torch_npu has taken.

  --output=FOLDER      a folder PROF_*, or one with such folders in it
  --export=on          write timeline and tables into FOLDER/mindstudio_profiler_output
  --analyze=on         write what ranks have sent each other into FOLDER/analyze
  --type=text|db       db: write FOLDER/msprof_T.db (with --analyze, communication_analyzer.db) instead
  --help

Collecting is done by torch_npu.profiler in the program itself.
)";

struct Arguments {
    std::optional<fs::path> output;
    bool exports = false, analyzes = false, database = false;
};

Arguments parse(int count, char **words) {
    Arguments all;
    for (int i = 1; i < count; ++i) {
        const std::string_view word = words[i];
        const size_t equals = word.find('=');
        const std::string_view name = word.substr(0, equals);
        const std::string_view value = equals == word.npos ? "" : word.substr(equals + 1);
        const auto on = [&] {
            if (value != "on" && value != "off") throw Failure(fmt::format("{}: on or off.", word));
            return value == "on";
        };
        if (name == "--output" && !value.empty())
            all.output = fs::path(value);
        else if (name == "--export")
            all.exports = on();
        else if (name == "--analyze")
            all.analyzes = on();
        else if (name == "--type" && (value == "db" || value == "text"))
            all.database = value == "db";
        else
            throw Failure(fmt::format("{} is not known to the virtual NPU's msprof; --help lists what is.", word));
    }
    if (!all.output || all.exports == all.analyzes)
        throw Failure("--output=FOLDER and one of --export=on and --analyze=on are needed; --help explains them.");
    return all;
}

// Whole or not at all: readers find a file by its name.
void write(const fs::path &path, const std::string &content) {
    const fs::path next = path.parent_path() / ("." + path.filename().string());
    const auto failed = [&](const char *what) {
        const std::string why = std::strerror(errno);
        std::error_code ignored;
        fs::remove(next, ignored);
        throw Failure(fmt::format("{} cannot be {}: {}.", path.string(), what, why));
    };
    const int file = open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (file < 0) failed("written");
    for (size_t done = 0; done < content.size();) {
        const ssize_t some = ::write(file, content.data() + done, content.size() - done);
        if (some < 0 && errno == EINTR) continue;
        if (some <= 0) {
            close(file);
            failed("written");
        }
        done += static_cast<size_t>(some);
    }
    if (close(file) != 0) failed("written");
    if (rename(next.c_str(), path.c_str()) != 0) failed("put in its place");
}

std::string now() {
    const std::time_t time = std::time(nullptr);
    std::tm local{};
    localtime_r(&time, &local);
    return fmt::format("{:04}{:02}{:02}{:02}{:02}{:02}", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday,
                       local.tm_hour, local.tm_min, local.tm_sec);
}

// How long torch_npu may need to notice that a table is there: it looks every 0.1 s, and where this program has ended
// before it looks, it drops the parsers that wait for that (_task_manager.py of 2.13).
constexpr auto kNoticed = std::chrono::milliseconds(350);

void export_text(const msprof::Profile &profile) {
    const fs::path folder = profile.folder / "mindstudio_profiler_output";
    fs::create_directories(folder);
    const std::string at = now();
    // Before any table: that one is there tells torch_npu that the timeline is.
    write(folder / fmt::format("msprof_{}.json", at), msprof::trace(profile));
    const std::pair<const char *, std::string (*)(const msprof::Profile &)> tables[] = {
        {"op_statistic", msprof::op_statistic},
        {"api_statistic", msprof::api_statistic},
        {"task_time", msprof::task_time},
        {"npu_module_mem", msprof::module_memory},
        {"aicpu", msprof::aicpu},
        {"op_summary", msprof::op_summary},
    };
    for (const auto &[name, table] : tables)
        if (const std::string content = table(profile); !content.empty())
            write(folder / fmt::format("{}_{}.csv", name, at), content);
    std::this_thread::sleep_for(kNoticed);
}

void export_database(const msprof::Profile &profile) {
    write(profile.folder / fmt::format("msprof_{}.db", now()), msprof::database(profile));
    std::this_thread::sleep_for(kNoticed);
}

void analyze(const msprof::Profile &profile, bool database) {
    const fs::path folder = profile.folder / "analyze";
    const std::string first = database ? msprof::communication_database(profile) : msprof::communication(profile);
    if (first.empty()) return;
    fs::create_directories(folder);
    write(folder / (database ? "communication_analyzer.db" : "communication.json"), first);
    if (!database) write(folder / "communication_matrix.json", msprof::communication_matrix(profile));
}

std::vector<fs::path> profiles(const fs::path &folder) {
    if (!fs::is_directory(folder)) throw Failure(fmt::format("{} is no folder.", folder.string()));
    if (fs::is_directory(folder / "host")) return {folder};
    std::vector<fs::path> all;
    for (const auto &entry : fs::directory_iterator(folder))
        if (entry.is_directory() && entry.path().filename().string().starts_with("PROF_")) all.push_back(entry.path());
    if (all.empty()) throw Failure(fmt::format("{} is no profile, and there is none in it.", folder.string()));
    return all;
}

}  // namespace

int main(int count, char **words) {
    try {
        for (int i = 1; i < count; ++i)
            if (std::string_view(words[i]) == "--help") {
                std::fputs(kHelp, stdout);
                return 0;
            }
        const Arguments arguments = parse(count, words);
        for (const fs::path &folder : profiles(*arguments.output)) {
            const msprof::Profile profile = msprof::read_profile(folder);
            if (arguments.analyzes)
                analyze(profile, arguments.database);
            else if (arguments.database)
                export_database(profile);
            else
                export_text(profile);
        }
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "msprof: %s\n", error.what());
        return 1;
    }
}
