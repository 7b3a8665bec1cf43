// What an operator does on the host beyond reading its inputs and writing its outputs, for the trace: the memory it
// allocates, the strided tensors it puts in order. Of the worker's own thread; of ATen's other threads nothing is seen.
#pragma once

#include <string>

namespace vnpu::opapi::footprint {

// From here on, for the operator that this thread starts to run. ATen then tells of every call: for the trace alone.
void watch();
// Writes what has been seen of the operator, and forgets it:
//     call contiguous(aclnnGather, tensors=1)
//     call scratch(aclnnMean, bytes=2048, in=mean.dim, self=float32[512, 1024], ...)
// bytes: the most that were allocated at one time; in: the ATen functions, as the kernel calls them, that allocated.
void report(const char *name, const std::string &arguments) noexcept;

}  // namespace vnpu::opapi::footprint
