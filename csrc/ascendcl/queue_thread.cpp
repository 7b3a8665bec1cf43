#include "ascendcl/queue_thread.h"

#include <pthread.h>

#include <array>
#include <string_view>

namespace vnpu::acl {

bool on_queue_thread() noexcept {
    thread_local const bool is = [] {
        std::array<char, 16> name{};
        return pthread_getname_np(pthread_self(), name.data(), name.size()) == 0 &&
               std::string_view(name.data()) == "acl_thread";
    }();
    return is;
}

}  // namespace vnpu::acl
