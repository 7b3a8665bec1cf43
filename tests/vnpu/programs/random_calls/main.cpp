// random_calls SEED SECONDS THREADS [show | FAULT]: call random functions of libascendcl and libhccl with random
// arguments, for so long, or longer where a busy machine comes to fewer than kLeast calls in a second. With one thread
// a seed makes the same calls each time; `show` names each before it is made, FAULT adds a function that has it
// (planted_calls.cpp). Ends with 0 and one line of JSON, or with another status and what is wrong: a call that did not
// return or refused without a word, memory, files or threads that grew. random_calls names: the functions that are
// called.
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "calls.h"

using namespace random_calls;

namespace {

using Clock = std::chrono::steady_clock;
std::chrono::seconds patience{300};
constexpr double kLeast = 250;
constexpr long kGrowth = 64;  // MiB that the process may grow by between the second quarter of its work and the last

std::vector<Call> all_calls() {
    std::vector<Call> all;
    for (const auto &part :
         {runtime_calls(), memory_calls(), descriptor_calls(), profiling_calls(), collective_calls(), refused_calls()})
        all.insert(all.end(), part.begin(), part.end());
    return all;
}

// What a thread is doing, for who watches it.
struct Progress {
    std::atomic<const char *> call{"nothing"};
    std::atomic<uint64_t> made{0}, succeeded{0};
    std::atomic<bool> ended{false};
};

long resident_mib() {
    long pages = 0, resident = 0;
    FILE *file = std::fopen("/proc/self/statm", "r");
    if (file == nullptr || std::fscanf(file, "%ld %ld", &pages, &resident) != 2) std::abort();
    std::fclose(file);
    return resident * sysconf(_SC_PAGESIZE) >> 20;
}

int entries(const char *folder) {
    int count = 0;
    DIR *listing = opendir(folder);
    while (readdir(listing) != nullptr) ++count;
    closedir(listing);
    return count;
}

// The least memory of the second quarter of the work and of the last one. A single moment says little: a call may
// hold up to VNPU_HOST_LIMIT, and a leak that is smaller than this would be missed if it is held at the first of two.
class Residency {
  public:
    void see(double share_of_work, long mib) {
        if (share_of_work < 0.25) early_ = mib;
        if (share_of_work < 0.5) early_ = std::min(early_, mib);
        if (share_of_work >= 0.75) late_ = std::min(late_, mib);
    }
    long early() const { return early_; }
    long late() const { return late_; }

  private:
    long early_ = resident_mib(), late_ = std::numeric_limits<long>::max();
};

class Caller {
  public:
    Caller(uint64_t seed, Pools &pools, const std::string &word) : draw_(seed, pools), show_(word == "show") {
        for (const auto &part : {all_calls(), planted_calls(word.c_str())})
            for (const Call &call : part)
                for (int i = 0; i < call.weight; ++i) calls_.push_back(call);
    }

    ~Caller() {
        for (aclTensorDesc *desc : draw_.descs.all()) aclDestroyTensorDesc(desc);
        for (aclDataBuffer *buffer : draw_.buffers.all()) aclDestroyDataBuffer(buffer);
        for (aclopAttr *attributes : draw_.attributes.all()) aclopDestroyAttr(attributes);
    }

    void run(Clock::time_point end, uint64_t least) {
        aclrtSetDevice(0);
        while (progress.made < least || Clock::now() < end) {
            const Call &call = calls_[draw_.below(calls_.size())];
            progress.call = call.name;
            if (show_) std::fprintf(stderr, "%llu %s\n", static_cast<unsigned long long>(progress.made), call.name);
            const int code = call.run(draw_);
            draw_.settle();
            if (code == 0)
                ++progress.succeeded;
            else if (draw_.once_in(4) && *aclGetRecentErrMsg() == '\0')
                unnamed(call.name, code);
            ++progress.made;
        }
        progress.ended = true;
    }

    Progress progress;

  private:
    [[noreturn]] static void unnamed(const char *name, int code) {
        std::fprintf(stderr, "random_calls: %s answered %d without a message\n", name, code);
        std::abort();
    }

    Draw draw_;
    const bool show_;
    std::vector<Call> calls_;
};

// Processes the reports of the streams that are subscribed to it, until there are no more callers.
void serve(Pools &pools, const std::atomic<bool> &over) {
    pools.servant = pthread_self();
    while (!over)
        if (aclrtProcessReport(20) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Returns when all callers have ended; a call that takes longer than patience ends the process.
void watch(const std::vector<std::unique_ptr<Caller>> &callers, Clock::time_point start, Clock::duration time,
           uint64_t least, Residency &residency) {
    std::vector<uint64_t> seen(callers.size());
    std::vector<Clock::time_point> moved(callers.size(), Clock::now());
    for (bool running = true; running;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        running = false;
        const auto now = Clock::now();
        uint64_t made = 0;
        for (const auto &caller : callers) made += caller->progress.made;
        const double calls = static_cast<double>(made) / std::max<double>(1, least * callers.size());
        residency.see(std::min(std::chrono::duration<double>(now - start) / time, calls), resident_mib());
        for (size_t i = 0; i < callers.size(); ++i) {
            const Progress &progress = callers[i]->progress;
            if (progress.ended) continue;
            running = true;
            if (const uint64_t made = progress.made; made != seen[i]) {
                seen[i] = made;
                moved[i] = now;
            } else if (now - moved[i] > patience) {
                std::fprintf(stderr, "random_calls: call %llu of thread %zu, %s, has not returned\n",
                             static_cast<unsigned long long>(made), i, progress.call.load());
                std::abort();
            }
        }
    }
}

int compare(const char *what, long before, long after, long allowed) {
    if (after - before <= allowed) return 0;
    std::fprintf(stderr, "random_calls: %s: %ld, and %ld at the end\n", what, before, after);
    return 1;
}

}  // namespace

int main(int count, char **words) {
    if (count == 2 && std::strcmp(words[1], "names") == 0) {
        for (const Call &call : all_calls()) std::puts(call.name);
        return 0;
    }
    if (count < 4) return std::fputs("usage: random_calls SEED SECONDS THREADS [show | FAULT] | names\n", stderr), 2;
    const uint64_t seed = std::strtoull(words[1], nullptr, 10);
    const std::string word = count > 4 ? words[4] : "";
    // A leak shows by how many calls there were, so calls alone end its run: the same ones each time.
    const double seconds = word == "memory" ? 0 : std::atof(words[2]);
    const auto time = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    if (word != "" && word != "show") {
        if (planted_calls(word.c_str()).empty()) return std::fprintf(stderr, "no fault %s\n", words[4]), 2;
        if (word == "hang") patience = std::chrono::seconds(2);
    }
    const auto start = Clock::now();

    aclInit(nullptr);
    aclrtSetOpWaitTimeout(1);
    for (const int device : {0, 1}) aclrtSetDevice(device);
    aclrtFreeHost(nullptr);  // an error, whose room stays with the thread
    const int files = entries("/proc/self/fd"), threads = entries("/proc/self/task");

    Pools pools;
    std::atomic<bool> over{false};
    std::thread servant([&] { serve(pools, over); });
    std::vector<std::unique_ptr<Caller>> callers;
    for (int i = 0; i < std::atoi(words[3]); ++i)
        callers.push_back(std::make_unique<Caller>(seed + static_cast<uint64_t>(i) * 1'000'003, pools, word));
    std::vector<std::thread> runners;
    const double rate = word == "memory" ? 10 * kLeast : kLeast;  // a fault of which few calls show nothing
    const auto least = static_cast<uint64_t>(rate * std::atof(words[2])) / callers.size();
    for (const auto &caller : callers) runners.emplace_back([&] { caller->run(start + time, least); });
    Residency residency;
    watch(callers, start, time, least, residency);
    for (std::thread &runner : runners) runner.join();
    residency.see(1, resident_mib());

    pools.clear();
    aclInit(nullptr);  // in case that it is over already
    aclFinalize();
    over = true;
    servant.join();
    uint64_t made = 0, succeeded = 0;
    for (const auto &caller : callers) made += caller->progress.made, succeeded += caller->progress.succeeded;
    std::printf("{\"seed\": %llu, \"calls\": %llu, \"succeeded\": %llu, \"resident\": %ld}\n",
                static_cast<unsigned long long>(seed), static_cast<unsigned long long>(made),
                static_cast<unsigned long long>(succeeded), residency.late());
    // A thread that has been joined is listed for a moment longer, on a busy machine for seconds.
    const int turns = word == "thread" ? 100 : 3000;
    for (int wait = 0; wait < turns && entries("/proc/self/task") > threads; ++wait)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return compare("MiB resident", residency.early(), residency.late(), kGrowth) |
           compare("files", files, entries("/proc/self/fd"), 2) |
           compare("threads", threads, entries("/proc/self/task"), 0);
}
