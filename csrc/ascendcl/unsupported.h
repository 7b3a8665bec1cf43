// An entry point that is exported and only says, by its name, that the virtual NPU does not offer it. For files that
// include no header of CANN: a function that ignores its arguments needs none of their types (the caller passes them in
// registers or cleans its own stack), and its declaration would contradict the header's. `type` is what the function
// returns, `body` what its body gives: void where the type is a code.
#pragma once

#include "ascendcl/call.h"

#define VNPU_UNSUPPORTED_AS(face, body, type, name, reason)                                       \
    extern "C" [[gnu::visibility("default")]] type name() {                                       \
        return VNPU_CALL(face)->body {                                                            \
            ::vnpu::fail(::vnpu::FaultKind::Unsupported, "{} is not offered. {}", #name, reason); \
        };                                                                                        \
    }
