// Functions with the faults that random_calls is there to find, to see that it finds them.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "calls.h"

namespace random_calls {
namespace {

int hang(Draw &) {
    for (;;) pause();
}

int refuse_without_a_message(Draw &) {
    aclGetRecentErrMsg();  // takes what an earlier call left
    return 1;
}

int keep_memory(Draw &) {
    static std::vector<void *> kept;
    constexpr size_t kBytes = 8 << 20;  // some 70 of the 20,000 calls of a run are this one
    kept.push_back(std::malloc(kBytes));
    std::memset(kept.back(), 1, kBytes);
    return 0;
}

int keep_a_file(Draw &) {
    static int kept = 0;
    if (kept < 100 && open("/dev/null", O_RDONLY) >= 0) ++kept;
    return 0;
}

int keep_a_thread(Draw &) {
    static int kept = 0;
    if (++kept < 5) std::thread([] { pause(); }).detach();
    return 0;
}

}  // namespace

std::vector<Call> planted_calls(const char *fault) {
    const Call all[] = {{"hang", hang},
                        {"silence", refuse_without_a_message},
                        {"memory", keep_memory},
                        {"file", keep_a_file},
                        {"thread", keep_a_thread}};
    for (const Call &call : all)
        if (std::strcmp(call.name, fault) == 0) return {call};
    return {};
}

}  // namespace random_calls
