// From this machine's clock to the model's, for what a program did beside its calls: each call is a moment on both, and
// between two of them time passes evenly. What a kernel took on this machine, or a wait for one, is so replaced by what
// the chip would take. Used by the profiler's session and by csrc/msprof, which must agree.
#pragma once

#include <algorithm>
#include <cstdint>
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

}  // namespace vnpu
