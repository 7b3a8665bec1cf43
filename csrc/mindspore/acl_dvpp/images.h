// The chip's image and video units (dvpp) are not modelled: each of their functions says so by its name. MindSpore's
// data pipeline drops the words of an error, so the first call writes them out, too.
#pragma once

#include "ascendcl/call.h"

namespace vnpu::mindspore {

[[noreturn]] void no_images(const char *function);

}  // namespace vnpu::mindspore

// `type` is what the function returns, `body` what its body gives: void where the type is a code.
#define NO_IMAGES(type, body, name)                                               \
    extern "C" [[gnu::visibility("default")]] type name() {                       \
        return VNPU_CALL(Runtime)->body { ::vnpu::mindspore::no_images(#name); }; \
    }
