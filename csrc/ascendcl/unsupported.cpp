// Functions that torch_npu asks for and the virtual NPU does not offer. Each is exported, answers 200006 and says so by
// name: torch_npu would otherwise report that CANN is too old. The ones it must not find at all are listed at the end.
#include "ascendcl/unsupported.h"

#include <cstdio>
#include <mutex>

using vnpu::fail;
using vnpu::FaultKind;

#define VNPU_UNSUPPORTED(name, reason) VNPU_UNSUPPORTED_AS(Runtime, void, aclError, name, reason)
#define VNPU_UNSUPPORTED_POINTER(name, reason) VNPU_UNSUPPORTED_AS(Runtime, void *, void *, name, reason)

// --- compiled kernels: code for the AI Core cannot run on a CPU
constexpr const char *kBinary = "Kernels compiled for the AI Core cannot run on the virtual NPU.";

// The first that a program calls with such kernels. MindSpore's generator (jit_level="O1") does not look at the answer
// and then says "reg vec failed", so it is written out, too.
extern "C" [[gnu::visibility("default")]] aclError aclrtBinaryLoadFromData() {
    return VNPU_CALL(Runtime)->void {
        static std::once_flag once;
        std::call_once(once, [] {
            std::fprintf(stderr, "torchport: %s MindSpore makes such of jit_level=\"O1\"; with \"O0\" it needs none.\n",
                         kBinary);
        });
        fail(FaultKind::Unsupported, "aclrtBinaryLoadFromData is not offered. {}", kBinary);
    };
}
VNPU_UNSUPPORTED(aclrtBinaryGetFunction, kBinary)
VNPU_UNSUPPORTED(aclrtGetFunctionAddr, kBinary)
VNPU_UNSUPPORTED(aclrtLaunchKernelWithHostArgs, kBinary)
VNPU_UNSUPPORTED(aclrtGetHardwareSyncAddr, kBinary)
VNPU_UNSUPPORTED(rtDevBinaryRegister, kBinary)
VNPU_UNSUPPORTED(rtFunctionRegister, kBinary)
VNPU_UNSUPPORTED(rtKernelLaunch, kBinary)
VNPU_UNSUPPORTED(rtLaunch, kBinary)
VNPU_UNSUPPORTED(rtDevBinaryUnRegister, kBinary)
VNPU_UNSUPPORTED(rtGetC2cCtrlAddr, kBinary)

// --- models that ATC has compiled (.om): asked for by programs that infer, not by torch_npu
constexpr const char *kModel =
    "An .om holds kernels compiled for the AI Core, so hardware is needed to run it. `torchport export --check` "
    "compares the ONNX file that it was made from with PyTorch.";
VNPU_UNSUPPORTED(aclmdlLoadFromFile, kModel)
VNPU_UNSUPPORTED(aclmdlLoadFromFileWithMem, kModel)
VNPU_UNSUPPORTED(aclmdlLoadFromFileWithQ, kModel)
VNPU_UNSUPPORTED(aclmdlLoadFromMem, kModel)
VNPU_UNSUPPORTED(aclmdlLoadFromMemWithMem, kModel)
VNPU_UNSUPPORTED(aclmdlLoadFromMemWithQ, kModel)
VNPU_UNSUPPORTED(aclmdlLoadWithConfig, kModel)
VNPU_UNSUPPORTED(aclmdlQuerySize, kModel)
VNPU_UNSUPPORTED(aclmdlQuerySizeFromMem, kModel)
VNPU_UNSUPPORTED(aclmdlAddDatasetBuffer, kModel)
VNPU_UNSUPPORTED(aclmdlBundleGetModelId, kModel)
VNPU_UNSUPPORTED(aclmdlBundleLoadFromMem, kModel)
VNPU_UNSUPPORTED(aclmdlBundleUnload, kModel)
VNPU_UNSUPPORTED(aclmdlDestroyDataset, kModel)
VNPU_UNSUPPORTED(aclmdlDestroyDesc, kModel)
VNPU_UNSUPPORTED(aclmdlDestroyExecConfigHandle, kModel)
VNPU_UNSUPPORTED(aclmdlExecute, kModel)
VNPU_UNSUPPORTED(aclmdlExecuteV2, kModel)
VNPU_UNSUPPORTED(aclmdlGetCurOutputDims, kModel)
VNPU_UNSUPPORTED(aclmdlGetDesc, kModel)
VNPU_UNSUPPORTED(aclmdlGetDynamicBatch, kModel)
VNPU_UNSUPPORTED(aclmdlGetDynamicHW, kModel)
VNPU_UNSUPPORTED(aclmdlGetInputDims, kModel)
VNPU_UNSUPPORTED(aclmdlGetInputDimsV2, kModel)
VNPU_UNSUPPORTED(aclmdlGetInputDynamicDims, kModel)
VNPU_UNSUPPORTED(aclmdlGetInputDynamicGearCount, kModel)
VNPU_UNSUPPORTED(aclmdlGetInputIndexByName, kModel)
VNPU_UNSUPPORTED(aclmdlGetOutputDims, kModel)
VNPU_UNSUPPORTED(aclmdlSetDatasetTensorDesc, kModel)
VNPU_UNSUPPORTED(aclmdlSetDynamicBatchSize, kModel)
VNPU_UNSUPPORTED(aclmdlSetDynamicHWSize, kModel)
VNPU_UNSUPPORTED(aclmdlSetExecConfigOpt, kModel)
VNPU_UNSUPPORTED(aclmdlSetInputDynamicDims, kModel)
VNPU_UNSUPPORTED(aclmdlUnload, kModel)
VNPU_UNSUPPORTED(aclopSetModelDir, kModel)
VNPU_UNSUPPORTED_POINTER(aclmdlCreateDataset, kModel)
VNPU_UNSUPPORTED_POINTER(aclmdlCreateDesc, kModel)
VNPU_UNSUPPORTED_POINTER(aclmdlCreateExecConfigHandle, kModel)
VNPU_UNSUPPORTED_POINTER(aclmdlGetDatasetBuffer, kModel)
VNPU_UNSUPPORTED_POINTER(aclmdlGetDatasetTensorDesc, kModel)
VNPU_UNSUPPORTED_POINTER(aclmdlGetInputNameByIndex, kModel)
VNPU_UNSUPPORTED_POINTER(aclmdlGetOutputNameByIndex, kModel)
// These answer a number: 0, as CANN does of a description that is none.
VNPU_UNSUPPORTED_AS(Runtime, std::size_t, std::size_t, aclmdlGetDatasetNumBuffers, kModel)
VNPU_UNSUPPORTED_AS(Runtime, std::size_t, std::size_t, aclmdlGetInputDataType, kModel)
VNPU_UNSUPPORTED_AS(Runtime, std::size_t, std::size_t, aclmdlGetInputFormat, kModel)
VNPU_UNSUPPORTED_AS(Runtime, std::size_t, std::size_t, aclmdlGetInputSizeByIndex, kModel)
VNPU_UNSUPPORTED_AS(Runtime, std::size_t, std::size_t, aclmdlGetNumInputs, kModel)
VNPU_UNSUPPORTED_AS(Runtime, std::size_t, std::size_t, aclmdlGetNumOutputs, kModel)
VNPU_UNSUPPORTED_AS(Runtime, std::size_t, std::size_t, aclmdlGetOutputDataType, kModel)
VNPU_UNSUPPORTED_AS(Runtime, std::size_t, std::size_t, aclmdlGetOutputFormat, kModel)
VNPU_UNSUPPORTED_AS(Runtime, std::size_t, std::size_t, aclmdlGetOutputSizeByIndex, kModel)

// --- graph capture, beyond what graph.cpp has
constexpr const char *kCapture =
    "The virtual NPU captures, updates and replays graphs, but cannot branch in a captured one.";
VNPU_UNSUPPORTED(aclmdlRICaptureToModelRIBegin, kCapture)
VNPU_UNSUPPORTED(aclmdlRICondHandleCreate, kCapture)
VNPU_UNSUPPORTED(aclmdlRICondHandleGetCondPtr, kCapture)
VNPU_UNSUPPORTED(aclmdlRIAddCondTask, kCapture)
VNPU_UNSUPPORTED(aclmdlRIDebugPrint, kCapture)

// --- dumps of what operators are compiled from (ACL_DUMP_DATA=1); their tensors are in dump.h
constexpr const char *kDump =
    "Operators of the virtual NPU are not compiled for each call, so there is no graph and no argument block to dump.";
VNPU_UNSUPPORTED(aclopStartDumpArgs, kDump)
VNPU_UNSUPPORTED(aclopStopDumpArgs, kDump)
VNPU_UNSUPPORTED(aclGenGraphAndDumpForOp, kDump)
VNPU_UNSUPPORTED(aclDestroyGraphDumpOpt, kDump)
VNPU_UNSUPPORTED_POINTER(aclCreateGraphDumpOpt, kDump)

// --- what operators of a compiled model took, told while it runs
constexpr const char *kSubscription =
    "There is no compiled model on the virtual NPU whose operators could be subscribed.";
VNPU_UNSUPPORTED(aclprofModelSubscribe, kSubscription)
VNPU_UNSUPPORTED(aclprofModelUnSubscribe, kSubscription)
VNPU_UNSUPPORTED_POINTER(aclprofCreateSubscribeConfig, kSubscription)
VNPU_UNSUPPORTED(aclprofDestroySubscribeConfig, kSubscription)
VNPU_UNSUPPORTED(aclprofGetOpDescSize, kSubscription)
VNPU_UNSUPPORTED(aclprofGetOpNum, kSubscription)
VNPU_UNSUPPORTED(aclprofGetOpTypeLen, kSubscription)
VNPU_UNSUPPORTED(aclprofGetOpType, kSubscription)
VNPU_UNSUPPORTED(aclprofGetOpNameLen, kSubscription)
VNPU_UNSUPPORTED(aclprofGetOpName, kSubscription)
VNPU_UNSUPPORTED_AS(Runtime, uint64_t, uint64_t, aclprofGetOpStart, kSubscription)
VNPU_UNSUPPORTED_AS(Runtime, uint64_t, uint64_t, aclprofGetOpEnd, kSubscription)
VNPU_UNSUPPORTED_AS(Runtime, uint64_t, uint64_t, aclprofGetOpDuration, kSubscription)
VNPU_UNSUPPORTED_AS(Runtime, size_t, size_t, aclprofGetModelId, kSubscription)
VNPU_UNSUPPORTED_AS(Runtime, int, int, aclprofGetOpFlag, kSubscription)
VNPU_UNSUPPORTED_POINTER(aclprofGetOpAttriValue, kSubscription)
// What a program tells of the tensors of kernels that it has compiled itself.
VNPU_UNSUPPORTED(aclprofRangePushEx, kBinary)
VNPU_UNSUPPORTED(aclprofRangePop, kBinary)
VNPU_UNSUPPORTED_AS(Runtime, uint64_t, uint64_t, aclprofStr2Id, kBinary)

// --- memory shared between processes
constexpr const char *kShare = "Device memory cannot be shared between processes on the virtual NPU yet.";
VNPU_UNSUPPORTED(aclrtMemExportToShareableHandle, kShare)
VNPU_UNSUPPORTED(aclrtMemImportFromShareableHandle, kShare)
VNPU_UNSUPPORTED(aclrtMemSetPidToShareableHandle, kShare)
VNPU_UNSUPPORTED(aclrtIpcMemGetExportKey, kShare)
VNPU_UNSUPPORTED(aclrtIpcMemSetImportPid, kShare)
VNPU_UNSUPPORTED(aclrtIpcMemImportByKey, kShare)
VNPU_UNSUPPORTED(aclrtIpcMemClose, kShare)

// --- recovery from faults of the hardware
constexpr const char *kRecovery =
    "Faults of the hardware do not occur on the virtual NPU, so there is nothing to repair.";
VNPU_UNSUPPORTED(aclrtMemUceRepair, kRecovery)
VNPU_UNSUPPORTED(aclrtGetErrorVerbose, kRecovery)
VNPU_UNSUPPORTED(aclrtRepairError, kRecovery)

// Deliberately absent, because to torch_npu their presence is a promise. tests/vnpu/test_error.py has them by name.
//   aclRfft1D                 without it torch.fft.rfft multiplies by a matrix, which works
//   aclStressDetect           a test of the hardware; torch_npu.npu.stress_detect() says that it was not made
//   aclsk* (libascendsk), dcmi* (libdcmi), libascend_ml, libatb   whole libraries; without them super kernels, CPU
//                             affinity by NUMA distance, AI Core diagnosis and ATB operators are off
