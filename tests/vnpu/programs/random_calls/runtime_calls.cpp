#include <acl/acl_op_compiler.h>
#include <acl/acl_rt_allocator.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "calls.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // torch_npu calls them all the same

namespace random_calls {
namespace {

void nothing(void *) {}
void short_work(void *) { std::this_thread::sleep_for(std::chrono::microseconds(300)); }
void asks(void *stream) {
    aclrtStreamStatus status;
    aclrtStreamQuery(stream, &status);
}

// Host functions get a stream as their argument, which only `asks` looks at.
aclrtHostFunc function(Draw &draw) {
    constexpr std::array<aclrtHostFunc, 4> kFunctions = {nothing, short_work, asks, nullptr};
    return kFunctions[draw.below(kFunctions.size())];
}

aclrtStreamAttrValue stream_value(Draw &draw) {
    aclrtStreamAttrValue value{};
    value.failureMode = draw.below(3);
    return value;
}

// Who subscribes has to process the reports, so only one thread is ever named; stray numbers are for the reverse.
uint64_t servant(Draw &draw) { return draw.once_in(8) ? 0 : draw.pools().servant.load(); }

}  // namespace

std::vector<Call> runtime_calls() {
    return {
        {"aclInit", [](Draw &draw) -> int { return aclInit(draw.text()); }, 1},
        RARELY(aclFinalize),
        {"aclrtSetDevice", [](Draw &draw) -> int { return aclrtSetDevice(draw.device()); }, 64},
        RARELY(aclrtResetDevice, draw.device()),
        RARELY(aclrtResetDeviceForce, draw.device()),
        CALL(aclrtGetDevice, draw.out<int32_t>()),
        CALL(aclrtSetExceptionInfoCallback, nullptr),
        PLAIN(aclrtGetTaskIdFromExceptionInfo, nullptr),
        PLAIN(aclrtGetStreamIdFromExceptionInfo, nullptr),
        PLAIN(aclrtGetThreadIdFromExceptionInfo, nullptr),
        PLAIN(aclrtGetDeviceIdFromExceptionInfo, nullptr),
        PLAIN(aclrtGetErrorCodeFromExceptionInfo, nullptr),
        {"aclrtAllocatorCreateDesc",
         [](Draw &) -> int { return aclrtAllocatorDestroyDesc(aclrtAllocatorCreateDesc()); }},
        CALL(aclrtAllocatorDestroyDesc, draw.anything()),
        CALL(aclrtAllocatorSetObjToDesc, draw.anything(), draw.anything()),
        CALL(aclrtAllocatorSetAllocFuncToDesc, draw.anything(), nullptr),
        CALL(aclrtAllocatorSetFreeFuncToDesc, draw.anything(), nullptr),
        CALL(aclrtAllocatorSetAllocAdviseFuncToDesc, draw.anything(), nullptr),
        CALL(aclrtAllocatorSetGetAddrFromBlockFuncToDesc, draw.anything(), nullptr),
        CALL(aclrtAllocatorRegister, draw.stream(), draw.anything()),
        CALL(aclrtAllocatorGetByStream, draw.stream(), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr),
        CALL(aclrtAllocatorUnregister, draw.stream()),
        CALL(aclrtGetDeviceCount, draw.out<uint32_t>()),
        CALL(aclrtGetRunMode, draw.out<aclrtRunMode>()),
        CALL(aclrtSynchronizeDevice),
        CALL(aclrtSynchronizeDeviceWithTimeout, draw.timeout()),
        CALL(aclrtQueryDeviceStatus, draw.device(), draw.out<aclrtDeviceStatus>()),
        CALL(aclrtGetPrimaryCtxState, draw.device(), draw.out<uint32_t>(), draw.out<int32_t>()),
        CALL(aclrtDeviceCanAccessPeer, draw.out<int32_t>(), draw.device(), draw.device()),
        CALL(aclrtDeviceEnablePeerAccess, draw.device(), static_cast<uint32_t>(draw.below(2))),
        CALL(aclrtDeviceDisablePeerAccess, draw.device()),
        CALL(aclrtGetLogicDevIdByUserDevId, draw.device(), draw.out<int32_t>()),
        CALL(aclrtDeviceGetBareTgid, draw.out<int32_t>()),
        PLAIN(aclrtGetSocName),
        CALL(aclrtDeviceTaskAbort, draw.device(), static_cast<uint32_t>(draw.number())),

        CALL(aclGetDeviceCapability, static_cast<uint32_t>(draw.device()), draw.choice<aclDeviceInfo>(4),
             draw.out<int64_t>()),
        CALL(aclrtGetDeviceInfo, static_cast<uint32_t>(draw.device()),
             static_cast<aclrtDevAttr>(draw.once_in(2) ? 100 * draw.below(6) + draw.below(9) : draw.random()()),
             draw.out<int64_t>()),
        CALL(aclrtGetDeviceCapability, draw.device(), draw.choice<aclrtDevFeatureType>(3), draw.out<int32_t>()),
        CALL(aclrtDeviceGetUuid, draw.device(), draw.out<aclrtUuid>()),
        CALL(aclrtGetDeviceUtilizationRate, draw.device(), draw.out<aclrtUtilizationInfo>()),
        CALL(aclGetCannAttribute, draw.choice<aclCannAttr>(4), draw.out<int32_t>()),
        CALL(aclGetCannAttributeList, draw.out<const aclCannAttr *>(), draw.out<size_t>()),
        CALL(aclsysGetCANNVersion, draw.choice<aclCANNPackageName>(8), draw.out<aclCANNPackageVersion>()),
        CALL(aclsysGetVersionStr, const_cast<char *>(draw.text()), draw.out<char>()),
        CALL(aclrtGetVersion, draw.out<int32_t>(), draw.out<int32_t>(), draw.out<int32_t>()),

        CALL(aclrtCreateContext, draw.context_made(), draw.device()),
        CALL(aclrtDestroyContext, draw.context()),
        CALL(aclrtSetCurrentContext, draw.context()),
        CALL(aclrtGetCurrentContext, draw.out<aclrtContext>()),
        CALL(aclrtCtxGetCurrentDefaultStream, draw.out<aclrtStream>()),

        CALL(aclrtCreateStream, draw.stream_made()),
        CALL(aclrtCreateStreamWithConfig, draw.stream_made(), static_cast<uint32_t>(draw.number()),
             static_cast<uint32_t>(draw.number())),
        CALL(aclrtDestroyStream, draw.stream()),
        CALL(aclrtDestroyStreamForce, draw.stream()),
        CALL(aclrtSynchronizeStream, draw.stream()),
        CALL(aclrtSynchronizeStreamWithTimeout, draw.stream(), draw.timeout()),
        CALL(aclrtStreamQuery, draw.stream(), draw.out<aclrtStreamStatus>()),
        CALL(aclrtStreamGetId, draw.stream(), draw.out<int32_t>()),
        CALL(aclrtStreamGetPriority, draw.stream(), draw.out<uint32_t>()),
        CALL(aclrtStreamGetFlags, draw.stream(), draw.out<uint32_t>()),
        CALL(aclrtDeviceGetStreamPriorityRange, draw.out<int32_t>(), draw.out<int32_t>()),
        RARELY(aclrtSetStreamFailureMode, draw.stream(), draw.below(3)),
        CALL(aclrtSetStreamOverflowSwitch, draw.stream(), static_cast<uint32_t>(draw.below(3))),
        CALL(aclrtGetStreamOverflowSwitch, draw.stream(), draw.out<uint32_t>()),
        RARELY(aclrtSetStreamAttribute, draw.stream(), draw.choice<aclrtStreamAttr>(6), draw.given(stream_value(draw))),
        CALL(aclrtGetStreamAttribute, draw.stream(), draw.choice<aclrtStreamAttr>(6), draw.out<aclrtStreamAttrValue>()),

        CALL(aclrtCreateEvent, draw.event_made()),
        // Not EXTERNAL: a stream waits for such a one until it is recorded, here perhaps for ever.
        CALL(aclrtCreateEventWithFlag, draw.event_made(), static_cast<uint32_t>(draw.below(128)) & ~ACL_EVENT_EXTERNAL),
        CALL(aclrtCreateEventExWithFlag, draw.event_made(),
             draw.once_in(4) ? ACL_EVENT_IPC : static_cast<uint32_t>(draw.below(16))),
        CALL(aclrtIpcGetEventHandle, draw.event(), draw.out<aclrtIpcEventHandle>()),
        {"aclrtIpcOpenEventHandle",
         [](Draw &draw) -> int {
             aclrtIpcEventHandle handle{};
             if (!draw.once_in(4)) aclrtIpcGetEventHandle(draw.event(), &handle);
             return aclrtIpcOpenEventHandle(handle, draw.event_made());
         },
         1},
        CALL(aclrtDestroyEvent, draw.event()),
        CALL(aclrtRecordEvent, draw.event(), draw.stream()),
        CALL(aclrtResetEvent, draw.event(), draw.stream()),
        CALL(aclrtStreamWaitEvent, draw.stream(), draw.event()),
        CALL(aclrtStreamWaitEventWithTimeout, draw.stream(), draw.event(), draw.timeout()),
        CALL(aclrtSynchronizeEvent, draw.event()),
        CALL(aclrtSynchronizeEventWithTimeout, draw.event(), draw.timeout()),
        CALL(aclrtQueryEventStatus, draw.event(), draw.out<aclrtEventRecordedStatus>()),
        CALL(aclrtQueryEvent, draw.event(), draw.out<aclrtEventStatus>()),
        CALL(aclrtQueryEventWaitStatus, draw.event(), draw.out<aclrtEventWaitStatus>()),
        CALL(aclrtEventElapsedTime, draw.out<float>(), draw.event(), draw.event()),
        CALL(aclrtEventGetTimestamp, draw.event(), draw.out<uint64_t>()),
        CALL(aclrtGetEventId, draw.event(), draw.out<uint32_t>()),

        CALL(aclrtSubscribeReport, servant(draw), draw.stream()),
        CALL(aclrtUnSubscribeReport, draw.once_in(8) ? draw.random()() : servant(draw), draw.stream()),
        CALL(aclrtLaunchCallback, function(draw), draw.stream(), draw.choice<aclrtCallbackBlockType>(2), draw.stream()),
        CALL(aclrtLaunchHostFunc, draw.stream(), function(draw), draw.stream()),
        CALL(aclrtProcessReport, draw.timeout()),

        CALL(aclmdlRICaptureBegin, draw.stream(), draw.choice<aclmdlRICaptureMode>(3)),
        {"aclmdlRICaptureEnd", [](Draw &draw) -> int { return aclmdlRICaptureEnd(draw.stream(), draw.graph_made()); },
         64},
        CALL(aclmdlRICaptureGetInfo, draw.stream(), draw.out<aclmdlRICaptureStatus>(), draw.graph_made()),
        CALL(aclmdlRICaptureTaskGrpBegin, draw.stream()),
        CALL(aclmdlRICaptureTaskGrpEnd, draw.stream(), draw.group_made()),
        CALL(aclmdlRICaptureTaskUpdateBegin, draw.stream(), draw.group()),
        CALL(aclmdlRICaptureTaskUpdateEnd, draw.stream()),
        CALL(aclmdlRICaptureThreadExchangeMode, draw.given(draw.choice<aclmdlRICaptureMode>(3))),
        CALL(aclmdlRIExecuteAsync, draw.graph(), draw.stream()),
        CALL(aclmdlRIDestroy, draw.graph()),
        CALL(aclmdlRIGetId, draw.graph(), draw.out<uint32_t>()),
        CALL(aclmdlRIDebugJsonPrint, draw.graph(), draw.once_in(4) ? nullptr : "/dev/null", draw.below(3)),

        CALL(aclrtSetDeviceResLimit, draw.device(), draw.choice<aclrtDevResLimitType>(2),
             static_cast<uint32_t>(draw.below(60))),
        CALL(aclrtGetDeviceResLimit, draw.device(), draw.choice<aclrtDevResLimitType>(2), draw.out<uint32_t>()),
        CALL(aclrtResetDeviceResLimit, draw.device()),
        CALL(aclrtSetStreamResLimit, draw.stream(), draw.choice<aclrtDevResLimitType>(2),
             static_cast<uint32_t>(draw.below(60))),
        CALL(aclrtGetStreamResLimit, draw.stream(), draw.choice<aclrtDevResLimitType>(2), draw.out<uint32_t>()),
        CALL(aclrtResetStreamResLimit, draw.stream()),
        CALL(aclrtUseStreamResInCurrentThread, draw.stream()),
        CALL(aclrtUnuseStreamResInCurrentThread, draw.stream()),
        CALL(aclrtGetResInCurrentThread, draw.choice<aclrtDevResLimitType>(2), draw.out<uint32_t>()),

        CALL(aclrtSetSysParamOpt, draw.choice<aclSysParamOpt>(4), draw.number()),
        CALL(aclrtGetSysParamOpt, draw.choice<aclSysParamOpt>(4), draw.out<int64_t>()),
        CALL(aclrtCtxSetSysParamOpt, draw.choice<aclSysParamOpt>(4), draw.number()),
        CALL(aclrtCtxGetSysParamOpt, draw.choice<aclSysParamOpt>(4), draw.out<int64_t>()),
        CALL(aclrtSetDeviceSatMode, draw.choice<aclrtFloatOverflowMode>(2)),
        CALL(aclrtGetDeviceSatMode, draw.out<aclrtFloatOverflowMode>()),

        // A second is the shortest limit; none would let a wait for a value last for ever, as it should.
        CALL(aclrtSetOpWaitTimeout, 1),
        CALL(aclrtSetOpExecuteTimeOut, static_cast<uint32_t>(draw.number())),
        CALL(aclrtSetOpExecuteTimeOutWithMs, static_cast<uint32_t>(draw.number())),
        CALL(aclrtSetOpExecuteTimeOutV2, draw.size(), draw.out<uint64_t>()),
        CALL(aclrtGetOpExecuteTimeout, draw.out<uint32_t>()),

        PLAIN(aclGetRecentErrMsg),
        PLAIN(aclrtPeekAtLastError, draw.choice<aclrtLastErrLevel>(2)),
        PLAIN(aclrtGetLastError, draw.choice<aclrtLastErrLevel>(2)),
    };
}

}  // namespace random_calls
