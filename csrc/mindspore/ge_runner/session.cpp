// ge::Session: MindSpore makes one while it sets its device up for backend="GE", and registers callbacks and allocators
// with it, before it has a graph. Refused there, it leaves threads behind that end the process by a signal at its exit.
// So a session is made and keeps what it is given, and what adds, compiles or runs a graph is refused (refusal.h): then
// nothing ever asks for it. Without ge_api.h, as in initialize.cpp.
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace ge {

class Tensor;
class Allocator;

class Session {
  public:
    using Callback = uint32_t (*)(uint32_t, const std::map<std::string, Tensor> &);
    [[gnu::visibility("default")]] explicit Session(const std::map<std::string, std::string> &options);
    [[gnu::visibility("default")]] ~Session();
    [[gnu::visibility("default")]] uint32_t RegisterCallBackFunc(const std::string &key, const Callback &callback);
    [[gnu::visibility("default")]] uint32_t RegisterExternalAllocator(const void *stream,
                                                                      std::shared_ptr<Allocator> allocator) const;
    [[gnu::visibility("default")]] uint32_t UnregisterExternalAllocator(const void *stream) const;

  private:
    uint64_t id_;  // all that the caller has made room for
};

namespace {

struct Kept {
    std::map<std::string, void *> callbacks;
    std::map<const void *, std::shared_ptr<Allocator>> allocators;
};

struct Sessions {
    std::mutex mutex;
    uint64_t made = 0;
    std::map<uint64_t, Kept> kept;
};
Sessions &sessions() {
    static auto *all = new Sessions;  // never destroyed: sessions are closed at exit
    return *all;
}

}  // namespace

Session::Session(const std::map<std::string, std::string> &) {
    const std::lock_guard lock(sessions().mutex);
    id_ = ++sessions().made;
}

Session::~Session() {
    const std::lock_guard lock(sessions().mutex);
    sessions().kept.erase(id_);
}

uint32_t Session::RegisterCallBackFunc(const std::string &key, const Callback &callback) {
    const std::lock_guard lock(sessions().mutex);
    sessions().kept[id_].callbacks[key] = reinterpret_cast<void *>(callback);
    return 0;
}

uint32_t Session::RegisterExternalAllocator(const void *stream, std::shared_ptr<Allocator> allocator) const {
    const std::lock_guard lock(sessions().mutex);
    sessions().kept[id_].allocators[stream] = std::move(allocator);
    return 0;
}

uint32_t Session::UnregisterExternalAllocator(const void *stream) const {
    const std::lock_guard lock(sessions().mutex);
    sessions().kept[id_].allocators.erase(stream);
    return 0;
}

}  // namespace ge
