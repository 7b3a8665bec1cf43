// Arithmetic of reductions: float16 and bfloat16 accumulate in float32 and round once, everything else in its own type
// (integers wrap around). A NaN goes through maximum and minimum, as in torch.
#pragma once

#include <cstddef>

#include "hccl/api.h"

namespace vnpu::hccl {

struct Reduction {
    size_t element;                                               // bytes, in memory
    size_t wide;                                                  // bytes, in the accumulator
    void (*load)(void *wide, const void *from, size_t count);     // wide = from
    void (*combine)(void *wide, const void *with, size_t count);  // wide = wide op with
    void (*store)(void *to, const void *wide, size_t count);      // to = wide, rounded
};

// Fault InvalidArgument for what is none of HCCL's types and reductions; Unsupported for 8-bit floating point.
const Reduction &reduction(HcclDataType type, HcclReduceOp op);

// Bytes of an element. Fault InvalidArgument.
size_t size_of(HcclDataType type);
const char *name_of(HcclDataType type) noexcept;
const char *name_of(HcclReduceOp op) noexcept;

}  // namespace vnpu::hccl
