// libc10_cuda.so, and what torchvision 0.28 and torchaudio 2.11 link of libtorch_cuda.so.
#include "nocuda/absent.h"

NOCUDA_EXPORT signed char _ZN3c104cuda12device_countEv() { return 0; }  // c10::cuda::device_count()

extern "C" {
// c10::cuda::CUDACachingAllocator::allocator, an atomic pointer to the allocator that CUDA would have set.
__attribute__((visibility("default"))) void *_ZN3c104cuda20CUDACachingAllocator9allocatorE = nullptr;
}

ABSENT(_ZN2at4cuda26getCurrentDevicePropertiesEv)
ABSENT(_ZN3c104cuda14current_deviceEv)
ABSENT(_ZN3c104cuda14ExchangeDeviceEa)
ABSENT(_ZN3c104cuda14MaybeSetDeviceEa)
ABSENT(_ZN3c104cuda17getStreamFromPoolEba)
ABSENT(_ZN3c104cuda17getStreamFromPoolEia)
ABSENT(_ZN3c104cuda20getCurrentCUDAStreamEa)
ABSENT(_ZN3c104cuda20getDefaultCUDAStreamEa)
ABSENT(_ZN3c104cuda20setCurrentCUDAStreamENS0_10CUDAStreamE)
ABSENT(_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb)
ABSENT(_ZN3c104cuda9GetDeviceEPa)
ABSENT(_ZN3c104cuda9SetDeviceEab)
ABSENT(_ZNK3c104cuda10CUDAStream11synchronizeEv)
ABSENT(_ZNK3c104cuda10CUDAStream5queryEv)
ABSENT(_ZNK3c104cuda10CUDAStream6streamEv)
// torch's stable C interface
ABSENT(aoti_torch_get_current_cuda_stream)
ABSENT(torch_c10_cuda_check_msg)
ABSENT(torch_c10_cuda_free_error_msg)
ABSENT(torch_cuda_stream_synchronize)
ABSENT(torch_get_cuda_stream_from_pool)
ABSENT(torch_set_current_cuda_stream)
