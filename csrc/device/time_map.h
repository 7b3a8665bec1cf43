// From this machine's clock to the model's, for what a program did beside its calls: each call is a moment on both, and
// between two of them time passes evenly. What a kernel took on this machine, or a wait for one, is so replaced by what
// the chip would take. Used by the profiler's session and, from its log, by csrc/msprof.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_set>
#include <vector>

namespace vnpu {

class TimeMap {
  public:
    struct Moment {
        int64_t wall, time;
    };

    void add(int64_t wall, int64_t time) { moments_.push_back({wall, time}); }

    // What a call says. A launch moves the program's clock on by what it costs the host, which covers what the program
    // did since the launch before; a wait takes time of its own.
    void add_call(bool launched, int64_t launch_cost, int64_t began, int64_t ended, int64_t time_began,
                  int64_t time_ended) {
        const bool waited = time_ended - time_began > (launched ? launch_cost : 0);
        if (waited) add(began, time_began);
        if (waited || launched) add(ended, time_ended);
    }

    // After the last add(). A launch that costs the host nothing by the model keeps what lies before it apart: up to
    // kLeast of it, so that no two moments of the program become one.
    void finish() {
        std::ranges::stable_sort(moments_, {}, &Moment::wall);
        for (size_t i = 1; i < moments_.size(); ++i) {
            const int64_t gap = std::min(moments_[i].wall - moments_[i - 1].wall, kLeast);
            moments_[i].time = std::max(moments_[i].time, moments_[i - 1].time + gap);
        }
    }

    int64_t operator()(int64_t wall) const {
        if (moments_.empty()) return wall;
        const auto after = std::ranges::upper_bound(moments_, wall, {}, &Moment::wall);
        if (after == moments_.begin()) return moments_.front().time - (moments_.front().wall - wall);
        const Moment &from = *(after - 1);
        if (after == moments_.end()) return from.time + (wall - from.wall);
        const auto span = static_cast<__int128>(after->time - from.time) * (wall - from.wall);
        return from.time + static_cast<int64_t>(span / (after->wall - from.wall));
    }

  private:
    static constexpr int64_t kLeast = 400;  // ns
    std::vector<Moment> moments_;
};

// torch_npu's queue: the program's threads put operators into it, far ahead of the thread that takes them out and
// launches them, which on this machine has the kernels to compute as well. On the virtual clock a launch covers what
// the program did for it, so an operator is put into the queue where its launch begins, whenever that was here.
class ProgramTime {
  public:
    // First. Threads that take from the queue; where there are none, there is one time for all.
    void take_from_queue(uint64_t thread) { queue_threads_.insert(thread); }

    void add(int64_t wall, int64_t time) {
        launches_.add(wall, time);
        program_.add(wall, time);
    }
    // An operator was put into the queue.
    void add_put(int64_t wall, int64_t time) { program_.add(wall, time); }

    void add_call(uint64_t thread, bool launched, int64_t launch_cost, int64_t began, int64_t ended, int64_t time_began,
                  int64_t time_ended) {
        if (&of(thread) == &launches_)
            return launches_.add_call(launched, launch_cost, began, ended, time_began, time_ended);
        program_.add_call(launched, launch_cost, began, ended, time_began, time_ended);
        // A wait of the program may begin while the queue is being launched, but ends with nothing left in it.
        if (launched || time_ended > time_began) launches_.add(ended, time_ended);
    }

    void finish_launches() { launches_.finish(); }
    void finish() { program_.finish(); }

    // After both.
    const TimeMap &of(uint64_t thread) const {
        return queue_threads_.empty() || queue_threads_.contains(thread) ? launches_ : program_;
    }
    const TimeMap &launches() const { return launches_; }
    const TimeMap &program() const { return queue_threads_.empty() ? launches_ : program_; }

  private:
    TimeMap launches_, program_;
    std::unordered_set<uint64_t> queue_threads_;
};

}  // namespace vnpu
