// Tasks that the submitting thread may run itself (Stream::By::Either) among those that the worker runs: one at a time,
// in order, all of them, and none that waits in a thread of the program. Prints what was seen; exit status 1 with a
// sentence where something is wrong.
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "device/event.h"
#include "device/stream.h"

using namespace vnpu;

namespace {

constexpr int kThreads = 4, kTasks = 20'000;

void check(bool holds, const char *sentence) {
    if (holds) return;
    std::fprintf(stderr, "stream_order: %s\n", sentence);
    std::exit(1);
}

Stream::By by(unsigned &seed) {
    seed = seed * 1'664'525 + 1'013'904'223;
    return (seed >> 16) % 3 == 0 ? Stream::By::Worker : Stream::By::Either;
}

// Four threads, one stream: each thread's tasks in its order, never two at once.
long many_submit() {
    Stream stream(0, 0, 0);
    std::vector<int> last(kThreads, -1);  // no atomics: only one task runs at a time, and the stream orders them
    long here = 0;
    bool running = false;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread)
        threads.emplace_back([&, thread] {
            unsigned seed = static_cast<unsigned>(thread);
            const auto id = std::this_thread::get_id();
            for (int i = 0; i < kTasks; ++i) {
                stream.submit(make_task("Step",
                                        [&, thread, i, id] {
                                            check(!std::exchange(running, true), "two tasks ran at once");
                                            check(last[thread] == i - 1, "a thread's tasks changed places");
                                            last[thread] = i;
                                            here += std::this_thread::get_id() == id ? 1 : 0;
                                            running = false;
                                        }),
                              by(seed));
                if (i % 97 == 0) check(stream.drain(), "drain() gave up without a deadline");
            }
        });
    for (std::thread &thread : threads) thread.join();
    stream.drain();
    for (const int each : last) check(each == kTasks - 1, "a task was lost");
    check(stream.idle(), "a stream that has run everything is not idle");
    return here;
}

// What one thread submits before it tells another runs before what that one submits.
void handed_over() {
    Stream stream(0, 1, 0);
    std::atomic<int> turn{0};
    int counter = 0;
    const auto side = [&](int me) {
        for (int i = me; i < kTasks; i += 2) {
            while (turn.load(std::memory_order_acquire) != i) std::this_thread::yield();
            stream.submit(make_task("Step", [&, i] { check(counter++ == i, "a later task ran first"); }),
                          i % 5 == 0 ? Stream::By::Worker : Stream::By::Either);
            turn.store(i + 1, std::memory_order_release);
        }
    };
    std::thread other(side, 1);
    side(0);
    other.join();
    stream.drain();
    check(counter == kTasks, "a task was lost");
}

// Two streams that wait for each other in turn, fed by one thread, as torch_npu's queue does.
void crossed() {
    Stream first(0, 2, 0), second(0, 3, 0);
    Event here, there;
    int value = 0;
    for (int i = 0; i < kTasks / 10; ++i) {
        first.submit(make_task("Add", [&] { ++value; }), Stream::By::Either);
        here.record(first);
        here.hold(second);
        second.submit(make_task("Check", [&, i] { check(value == 2 * i + 1, "a wait did not wait"); }),
                      Stream::By::Either);
        second.submit(make_task("Add", [&] { ++value; }), Stream::By::Either);
        there.record(second);
        there.hold(first);
    }
    first.drain();
    second.drain();
    check(value == kTasks / 10 * 2, "a task was lost");
}

// An idle stream runs it here; one with something before it, or one that only the worker may run, does not.
void where() {
    Stream stream(0, 4, 0);
    const auto me = std::this_thread::get_id();
    std::thread::id ran;
    const auto note = [&] { ran = std::this_thread::get_id(); };
    stream.submit(make_task("Note", note), Stream::By::Either);
    check(ran == me, "an idle stream did not let the submitting thread run the task");
    stream.submit(make_task("Note", note), Stream::By::Worker);
    stream.drain();
    check(ran != me, "a task for the worker ran in the submitting thread");
    std::atomic<bool> go{false};
    stream.submit(make_task("Block", [&] {
        while (!go.load()) std::this_thread::yield();
    }));
    stream.submit(make_task("Note", note), Stream::By::Either);
    go.store(true);
    stream.drain();
    check(ran != me, "a task overtook the one before it");
    // Failures stay on the stream, whoever ran the task.
    stream.submit(make_task("Fail", [] { fail(FaultKind::KernelFailure, "on purpose"); }), Stream::By::Either);
    bool thrown = false;
    try {
        stream.synchronize();
    } catch (const Fault &) {
        thrown = true;
    }
    check(thrown, "a failure was lost");
    stream.close();
    bool refused = false, run = false;
    try {
        stream.submit(make_task("Late", [&] { run = true; }), Stream::By::Either);
    } catch (const Fault &) {
        refused = true;
    }
    check(refused && !run, "a closed stream took a task");
}

// Streams closed while others submit: what is not refused has run.
void closed_while_used() {
    for (int round = 0; round < 200; ++round) {
        auto stream = std::make_shared<Stream>(0, 5, 0);
        std::atomic<int> taken{0}, done{0};
        std::vector<std::thread> threads;
        for (int thread = 0; thread < kThreads; ++thread)
            threads.emplace_back([&, stream] {
                try {
                    for (;;) {
                        stream->submit(make_task("Step", [&] { done.fetch_add(1); }), Stream::By::Either);
                        taken.fetch_add(1);
                    }
                } catch (const Fault &) {
                }
            });
        std::this_thread::sleep_for(std::chrono::microseconds(50 * (round % 8)));
        stream->close();
        for (std::thread &thread : threads) thread.join();
        check(stream->drain() && stream->idle(), "a closed stream is not idle");
        check(taken.load() == done.load(), "a task was taken and not run, or refused and run");
    }
}

}  // namespace

int main() {
    where();
    const long here = many_submit();
    handed_over();
    crossed();
    closed_while_used();
    std::printf("%d tasks, %ld of them in the threads that submitted them\n", kThreads * kTasks, here);
}
