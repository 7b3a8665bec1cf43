#include <dlfcn.h>

#include "calls.h"

namespace random_calls {
namespace {

// These look at none of their arguments, so any will do.
int refused(Draw &draw, const char *name) {
    const auto function = reinterpret_cast<int (*)(void *, void *, void *)>(dlsym(RTLD_DEFAULT, name));
    return function(draw.anything(), draw.anything(), draw.anything());
}

}  // namespace

#define REFUSED(name) {#name, [](Draw &draw) -> int { return refused(draw, #name); }, 2}

std::vector<Call> refused_calls() {
    return {
        REFUSED(HcclCommActivateCommMemory),
        REFUSED(HcclCommDeactivateCommMemory),
        REFUSED(HcclCommDeregister),
        REFUSED(HcclCommExchangeMem),
        REFUSED(HcclCommRegister),
        REFUSED(HcclCommSetMemoryRange),
        REFUSED(HcclCommSymWinDeregister),
        REFUSED(HcclCommSymWinRegister),
        REFUSED(HcclCommUnsetMemoryRange),
        REFUSED(HcclCommWorkingDevNicSet),
        REFUSED(aclCreateGraphDumpOpt),
        REFUSED(aclDestroyGraphDumpOpt),
        REFUSED(aclGenGraphAndDumpForOp),
        REFUSED(aclmdlAddDatasetBuffer),
        REFUSED(aclmdlBundleGetModelId),
        REFUSED(aclmdlBundleLoadFromMem),
        REFUSED(aclmdlBundleUnload),
        REFUSED(aclmdlCreateDataset),
        REFUSED(aclmdlCreateDesc),
        REFUSED(aclmdlCreateExecConfigHandle),
        REFUSED(aclmdlDestroyDataset),
        REFUSED(aclmdlDestroyDesc),
        REFUSED(aclmdlDestroyExecConfigHandle),
        REFUSED(aclmdlExecute),
        REFUSED(aclmdlExecuteV2),
        REFUSED(aclmdlGetCurOutputDims),
        REFUSED(aclmdlGetDatasetBuffer),
        REFUSED(aclmdlGetDatasetNumBuffers),
        REFUSED(aclmdlGetDatasetTensorDesc),
        REFUSED(aclmdlGetDesc),
        REFUSED(aclmdlGetDynamicBatch),
        REFUSED(aclmdlGetDynamicHW),
        REFUSED(aclmdlGetInputDataType),
        REFUSED(aclmdlGetInputDims),
        REFUSED(aclmdlGetInputDimsV2),
        REFUSED(aclmdlGetInputDynamicDims),
        REFUSED(aclmdlGetInputDynamicGearCount),
        REFUSED(aclmdlGetInputFormat),
        REFUSED(aclmdlGetInputIndexByName),
        REFUSED(aclmdlGetInputNameByIndex),
        REFUSED(aclmdlGetInputSizeByIndex),
        REFUSED(aclmdlGetNumInputs),
        REFUSED(aclmdlGetNumOutputs),
        REFUSED(aclmdlGetOutputDataType),
        REFUSED(aclmdlGetOutputDims),
        REFUSED(aclmdlGetOutputFormat),
        REFUSED(aclmdlGetOutputNameByIndex),
        REFUSED(aclmdlGetOutputSizeByIndex),
        REFUSED(aclmdlSetDatasetTensorDesc),
        REFUSED(aclmdlSetDynamicBatchSize),
        REFUSED(aclmdlSetDynamicHWSize),
        REFUSED(aclmdlSetExecConfigOpt),
        REFUSED(aclmdlSetInputDynamicDims),
        REFUSED(aclmdlUnload),
        REFUSED(aclopSetModelDir),
        REFUSED(rtDevBinaryUnRegister),
        REFUSED(rtLaunch),
        REFUSED(aclmdlLoadFromFile),
        REFUSED(aclmdlLoadFromFileWithMem),
        REFUSED(aclmdlLoadFromFileWithQ),
        REFUSED(aclmdlLoadFromMem),
        REFUSED(aclmdlLoadFromMemWithMem),
        REFUSED(aclmdlLoadFromMemWithQ),
        REFUSED(aclmdlLoadWithConfig),
        REFUSED(aclmdlQuerySize),
        REFUSED(aclmdlQuerySizeFromMem),
        REFUSED(aclmdlRIAddCondTask),
        REFUSED(aclmdlRICaptureToModelRIBegin),
        REFUSED(aclmdlRICondHandleCreate),
        REFUSED(aclmdlRICondHandleGetCondPtr),
        REFUSED(aclmdlRIDebugPrint),
        REFUSED(aclopStartDumpArgs),
        REFUSED(aclopStopDumpArgs),
        REFUSED(aclrtBinaryGetFunction),
        REFUSED(aclrtBinaryLoadFromData),
        REFUSED(aclrtGetErrorVerbose),
        REFUSED(aclrtGetFunctionAddr),
        REFUSED(aclrtGetHardwareSyncAddr),
        REFUSED(aclrtIpcMemClose),
        REFUSED(aclrtIpcMemGetExportKey),
        REFUSED(aclrtIpcMemImportByKey),
        REFUSED(aclrtIpcMemSetImportPid),
        REFUSED(aclrtLaunchKernelWithHostArgs),
        REFUSED(aclrtMemExportToShareableHandle),
        REFUSED(aclrtMemImportFromShareableHandle),
        REFUSED(aclrtMemSetPidToShareableHandle),
        REFUSED(aclrtMemUceRepair),
        REFUSED(aclrtRepairError),
        REFUSED(rtDevBinaryRegister),
        REFUSED(rtFunctionRegister),
        REFUSED(rtGetC2cCtrlAddr),
        REFUSED(rtKernelLaunch),
    };
}

}  // namespace random_calls
