// libcudart.so. What registers kernels is called when a library is loaded, and has nothing to remember.
#include "nocuda/absent.h"

NOCUDA_EXPORT void **__cudaRegisterFatBinary(void *) { return nullptr; }
NOCUDA_EXPORT void __cudaRegisterFatBinaryEnd(void **) {}
NOCUDA_EXPORT void __cudaRegisterFunction() {}
NOCUDA_EXPORT void __cudaRegisterVar() {}
NOCUDA_EXPORT void __cudaUnregisterFatBinary(void **) {}

ABSENT(__cudaGetKernel)
ABSENT(__cudaInitModule)
ABSENT(__cudaLaunchKernel)
ABSENT(__cudaPopCallConfiguration)
ABSENT(__cudaPushCallConfiguration)
ABSENT(cudaDeviceSynchronize)
ABSENT(cudaEventCreateWithFlags)
ABSENT(cudaEventDestroy)
ABSENT(cudaEventElapsedTime)
ABSENT(cudaEventQuery)
ABSENT(cudaEventRecord)
ABSENT(cudaEventSynchronize)
ABSENT(cudaGetErrorName)
ABSENT(cudaGetErrorString)
ABSENT(cudaGetLastError)
ABSENT(cudaMemcpy2DAsync)
ABSENT(cudaMemcpyAsync)
ABSENT(cudaMemset)
ABSENT(cudaMemsetAsync)
ABSENT(cudaSetDevice)
ABSENT(cudaStreamIsCapturing)
ABSENT(cudaStreamSynchronize)
ABSENT(cudaStreamWaitEvent)
