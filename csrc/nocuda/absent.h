// CUDA's libraries as a CUDA build of torchvision or torchaudio needs them to be loaded: every function that such a
// build links is there, and none does anything. There is no CUDA tensor that could lead to a call; one that is made
// all the same is an error with the function's name. Nothing here is CUDA's: only the names are.
#pragma once

#include <stdexcept>
#include <string>

#define NOCUDA_EXPORT extern "C" __attribute__((visibility("default")))
// A function, by the name that the linker knows it by, whatever its parameters are.
#define ABSENT(SYMBOL) \
    NOCUDA_EXPORT void SYMBOL() { nocuda::absent(#SYMBOL); }

namespace nocuda {

[[noreturn]] inline void absent(const char *symbol) {
    throw std::runtime_error(std::string("this torch has no CUDA, and code for CUDA asked for ") + symbol);
}

}  // namespace nocuda
