// What a program can do with a communicator and ask about it, besides collectives.
#include <cstring>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "hccl/communicator.h"
#include "hccl/settings.h"

using namespace vnpu;
using namespace vnpu::hccl;

// What is queued runs on, or fails within seconds; the call does not wait for it.
HcclResult HcclCommDestroy(HcclComm comm) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(comm) { communicators.remove(comm)->release(); });
}

// After a failure on any rank; every rank has to call it.
HcclResult HcclCommResume(HcclComm comm) {
    return static_cast<HcclResult>(
        VNPU_COLLECTIVE_API(comm) { communicators.find(comm)->resume(Clock::now() + connect_timeout()); });
}

HcclResult HcclGetCommName(HcclComm comm, char *commName) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(comm) {
        acl::not_null(commName, "commName");
        const std::string name = communicators.find(comm)->options().name;
        std::memcpy(commName, name.c_str(),
                    name.size() + 1);  // shorter than COMM_NAME_MAX_LENGTH, as options() made it
    });
}

HcclResult HcclGetRankSize(HcclComm comm, uint32_t *rankSize) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(comm, rankSize) {
        acl::required(rankSize, "rankSize") = static_cast<uint32_t>(communicators.find(comm)->size());
    });
}

HcclResult HcclGetRankId(HcclComm comm, uint32_t *rank) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(comm, rank) {
        acl::required(rank, "rank") = static_cast<uint32_t>(communicators.find(comm)->rank());
    });
}

// torch_npu's watchdog asks this, and then aclGetRecentErrMsg in the same thread for the reason.
HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult *asyncError) {
    return static_cast<HcclResult>(VNPU_COLLECTIVE_API(comm, asyncError) {
        const auto found = communicators.find(comm);
        HcclResult &out = acl::required(asyncError, "asyncError");
        out = found->failure();
        if (out != HCCL_SUCCESS) acl::set_error(out, found->failure_text());
    });
}

const char *HcclGetErrorString(HcclResult code) {
    constexpr const char *kWords[] = {"success",
                                      "parameter error",
                                      "empty pointer",
                                      "memory error",
                                      "internal error",
                                      "not supported",
                                      "resource not found",
                                      "resource unavailable",
                                      "system call failed",
                                      "timeout",
                                      "cannot open file",
                                      "TCP connect failed",
                                      "RoCE connect failed",
                                      "TCP transfer failed",
                                      "RoCE transfer failed",
                                      "runtime API failed",
                                      "driver API failed",
                                      "profiling API failed",
                                      "CCE API failed",
                                      "network API failed",
                                      "try again",
                                      "remote rank failed",
                                      "communicator is suspending",
                                      "retry failed",
                                      "out of memory"};
    return code >= 0 && code < static_cast<int>(std::size(kWords)) ? kWords[code] : "unknown error";
}

// A feature of HcclCommConfig is there when its number is below the answer. Names and time-outs are followed; buffer
// sizes, algorithms and retries have nothing here that they could change.
uint32_t HcclGetCommConfigCapability() { return HCCL_COMM_CONFIG_RESERVED; }
