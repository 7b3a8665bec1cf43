#include "ascendcl/profiler/mark.h"

#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "ascendcl/profiler/session.h"
#include "device/machine.h"
#include "device/timeline.h"

namespace vnpu::acl {
namespace {

struct Open {
    std::string domain, message;
    std::shared_ptr<Stream> stream;
};

struct Ranges {
    std::mutex mutex;
    uint64_t last = 0;
    std::unordered_map<uint64_t, Open> open;
    std::unordered_set<std::string> names;  // of tasks: for ever
};

Ranges &ranges() {
    static auto *const all = new Ranges;
    return *all;
}

// A task that does nothing: when the stream comes to it is what the device says of the mark.
uint64_t on_stream(Stream &stream, std::string_view message) {
    Ranges &all = ranges();
    const char *name = nullptr;
    {
        const std::lock_guard lock(all.mutex);
        name = all.names.emplace("mstx " + std::string(message)).first->c_str();
    }
    stream.submit(make_task(name, [] {}));
    return last_launched();
}

// The session that is told; null: nobody is.
std::shared_ptr<ProfilerSession> listener() {
    std::shared_ptr<ProfilerSession> session = profiler_session();
    return session != nullptr && session->marks_ranges() ? std::move(session) : nullptr;
}

void log(ProfilerSession &session, uint32_t kind, uint64_t number, const Open &what) {
    const uint64_t correlation = what.stream != nullptr ? on_stream(*what.stream, what.message) : 0;
    session.mark({kind, number, what.domain, what.message, correlation});
}

Open made(std::string_view domain, std::string_view message, void *stream) {
    return {std::string(domain), std::string(message),
            stream == nullptr ? nullptr : Machine::instance().stream(stream)};
}

}  // namespace

void mark(std::string_view domain, std::string_view message, void *stream) {
    if (const auto session = listener()) log(*session, 0, 0, made(domain, message, stream));
}

uint64_t begin_range(std::string_view domain, std::string_view message, void *stream) {
    Ranges &all = ranges();
    const auto session = listener();
    Open what;
    if (session != nullptr) what = made(domain, message, stream);
    uint64_t number = 0;
    {
        const std::lock_guard lock(all.mutex);
        number = ++all.last;
        if (session != nullptr) all.open.emplace(number, what);
    }
    if (session != nullptr) log(*session, 1, number, what);
    return number;
}

void end_range(uint64_t range) {
    Ranges &all = ranges();
    Open what;
    {
        const std::lock_guard lock(all.mutex);
        auto found = all.open.extract(range);
        if (!found) return;
        what = std::move(found.mapped());
    }
    if (const auto session = listener()) log(*session, 2, range, what);
}

}  // namespace vnpu::acl
