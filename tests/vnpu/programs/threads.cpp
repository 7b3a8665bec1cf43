// Six threads at work on two devices, while one of them
//     mix      does what the others do: all wait for events of a stream that all record on
//     destroy  destroys the stream on which all the others record
//     reset    resets the device that half of them use
//     capture  captures and replays, and so does another
//
//     threads MODE SECONDS
//
// prints what it has counted and ends with 0, or says which answer was wrong and ends with 1.
#include <acl/acl_rt.h>
#include <acl/error_codes/rt_error_codes.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr int kThreads = 6;
constexpr size_t kBytes = 4096;

std::string_view mode;
std::atomic<bool> stop{false};
std::atomic<long> calls{0}, refused{0}, rounds{0};
std::atomic<aclrtStream> shared{nullptr};  // of device 0
aclrtEvent shared_event;

// Whether the call succeeded. It may also have been refused with one of the codes; anything else ends the program.
bool did(const char *call, aclError code, std::initializer_list<aclError> may = {}) {
    ++calls;
    if (code == ACL_SUCCESS) return true;
    const char *message = aclGetRecentErrMsg();
    for (const aclError allowed : may)
        if (code == allowed && *message != '\0') {
            ++refused;
            return false;
        }
    std::fprintf(stderr, "%.*s: %s: %d: %s\n", static_cast<int>(mode.size()), mode.data(), call, code, message);
    std::_Exit(1);
}
#define DID(function, arguments, ...) did(#function, function arguments, {__VA_ARGS__})

class Worker {
  public:
    explicit Worker(int number) : number_(number), device_(number % 2), random_(static_cast<unsigned>(number)) {}

    void run() {
        DID(aclrtSetDevice, (device_));
        while (!stop) {
            if (stream_ == nullptr && !(mode == "reset" ? made() : DID(aclrtCreateStream, (&stream_)))) continue;
            round();
            ++rounds;
        }
    }

  private:
    // What another thread's reset of this device may answer, to any call.
    static constexpr auto kHandle = ACL_ERROR_RT_INVALID_HANDLE;
    static constexpr auto kDevice = ACL_ERROR_RT_INVALID_DEVICEID;
    static constexpr auto kAddress = ACL_ERROR_RT_PARAM_INVALID;
    static constexpr auto kFreed = ACL_ERROR_RT_MEMORY_FREE;

    bool made() { return DID(aclrtCreateStream, (&stream_), kDevice); }
    bool loses() const { return mode == "reset" && device_ == 1; }
    // After a reset the address may be that of another thread's memory, so two threads write the same bytes: this
    // program's own race, which ThreadSanitizer reports.
    bool writes() const {
#ifdef __SANITIZE_THREAD__
        return !loses();
#else
        return true;
#endif
    }

    template <class Call>
    bool call(const char *name, Call call) {
        return loses() ? did(name, call(), {kHandle, kDevice, kAddress, kFreed}) : did(name, call());
    }
#define CALL(function, arguments) call(#function, [&] { return function arguments; })

    void round() {
        void *memory = nullptr;
        CALL(aclrtMalloc, (&memory, kBytes + random_() % 65536, ACL_MEM_MALLOC_HUGE_FIRST));
        std::memset(host_, number_, kBytes);
        const int value = static_cast<int>(random_() % 256);
        bool alive = true;
        if (writes()) {
            alive = CALL(aclrtMemcpyAsync, (memory, kBytes, host_, kBytes, ACL_MEMCPY_HOST_TO_DEVICE, stream_));
            alive = CALL(aclrtMemsetAsync, (memory, kBytes / 2, value, kBytes / 2, stream_)) && alive;
        }
        aclrtEvent event;
        CALL(aclrtCreateEvent, (&event));
        alive = CALL(aclrtRecordEvent, (event, stream_)) && alive;
        if (mode == "mix") meet(event);
        if (mode == "destroy") lose(event);
        if (mode == "reset" && number_ == 1 && random_() % 8 == 0) alive = reset() && alive;
        if (mode == "capture" && number_ < 2) capture(memory);
        if (mode == "destroy")
            DID(aclrtSynchronizeEvent, (event), kHandle);
        else
            CALL(aclrtSynchronizeEvent, (event));
        CALL(aclrtDestroyEvent, (event));
        alive = CALL(aclrtSynchronizeStream, (stream_)) && alive;
        if (alive && !loses()) look(memory, value);
        // After a reset the address may be that of another thread's memory.
        if (memory != nullptr && !loses()) CALL(aclrtFree, (memory));
        if (!alive) stream_ = nullptr;  // a handle that is known to be stale is not used again
    }

    void meet(aclrtEvent event) {
        DID(aclrtStreamWaitEvent, (shared, event));
        DID(aclrtRecordEvent, (shared_event, shared));
        DID(aclrtStreamWaitEvent, (stream_, shared_event));
    }

    void lose(aclrtEvent event) {
        if (number_ == 0) {
            aclrtStream next;
            DID(aclrtCreateStream, (&next));
            DID(aclrtDestroyStream, (shared.exchange(next)));
            return;
        }
        DID(aclrtRecordEvent, (event, seen_ != nullptr ? seen_ : shared.load()), kHandle);
        DID(aclrtStreamWaitEvent, (shared, event), kHandle);
        seen_ = shared;  // likely to be gone in the next round
    }

    bool reset() {
        DID(aclrtResetDeviceForce, (1), kDevice);
        DID(aclrtSetDevice, (1));
        return false;
    }

    void capture(void *memory) {
        aclmdlRI graph;
        DID(aclmdlRICaptureBegin, (stream_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
        DID(aclrtMemsetAsync, (static_cast<char *>(memory) + kBytes / 2, kBytes / 2, 2, kBytes / 2, stream_));
        DID(aclmdlRICaptureEnd, (stream_, &graph));
        DID(aclmdlRIExecuteAsync, (graph, stream_));
        DID(aclmdlRIDestroy, (graph));
    }

    // Half of the memory has what was set, half what was copied or what a graph has set.
    void look(void *memory, int value) {
        DID(aclrtMemcpy, (host_, kBytes, memory, kBytes, ACL_MEMCPY_DEVICE_TO_HOST));
        const int other = mode == "capture" && number_ < 2 ? 2 : number_;
        for (size_t i = 0; i < kBytes; ++i) {
            const int wanted = i < kBytes / 2 ? value : other;
            if (static_cast<unsigned char>(host_[i]) == wanted) continue;
            std::fprintf(stderr, "thread %d: byte %zu is %d, not %d\n", number_, i, host_[i], wanted);
            std::_Exit(1);
        }
    }

    const int number_, device_;
    std::mt19937 random_;
    aclrtStream stream_ = nullptr, seen_ = nullptr;
    char host_[kBytes];
};

}  // namespace

int main(int count, char **words) {
    if (count != 3) return 2;
    mode = words[1];
    DID(aclInit, (nullptr));
    DID(aclrtSetDevice, (0));
    aclrtStream first;
    DID(aclrtCreateStream, (&first));
    DID(aclrtCreateEvent, (&shared_event));
    shared = first;
    std::vector<Worker> workers;
    workers.reserve(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) workers.emplace_back(i);
    for (Worker &worker : workers) threads.emplace_back([&worker] { worker.run(); });
    const double seconds = std::atof(words[2]);
    const bool loses = mode == "destroy" || mode == "reset";
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    // A busy machine comes to less in that time.
    while (static_cast<double>(rounds) <= 5 * seconds || (loses && refused == 0))
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    stop = true;
    for (std::thread &thread : threads) thread.join();
    DID(aclFinalize, ());
    std::printf("%ld rounds, %ld calls, %ld refused\n", rounds.load(), calls.load(), refused.load());
}
