// A C++ program whose last calls come from a static destructor, as those of libraries do: by then the variables of the
// main thread are gone. The declarations stand here, so that it compiles without CANN's headers.
#include <cstdint>
#include <cstdio>

extern "C" {
int aclInit(const char *);
int aclrtSetDevice(int32_t);
int aclrtResetDevice(int32_t);
int aclrtSynchronizeDevice();
int aclrtDestroyEvent(void *);
const char *aclGetRecentErrMsg();
}

struct AtExit {
    // The longer message second: it does not fit into what the first has left.
    ~AtExit() {
        const int code = aclrtSynchronizeDevice();
        std::printf("exit: %d %s\n", code, aclGetRecentErrMsg());
    }
} at_exit;

int main() {
    aclInit(nullptr);
    aclrtSetDevice(0);
    const int code = aclrtDestroyEvent(reinterpret_cast<void *>(1));
    std::printf("main: %d\n", code);
    aclrtResetDevice(0);
}
