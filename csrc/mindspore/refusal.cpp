#include "mindspore/refusal.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

namespace vnpu::mindspore {

void refuse(const char *function) {
    int status = 0;
    const std::unique_ptr<char, void (*)(void *)> readable(abi::__cxa_demangle(function, nullptr, nullptr, &status),
                                                           std::free);
    const std::string name = status == 0 ? readable.get() : function;
    throw std::runtime_error(
        "The virtual NPU has no graph compiler, so " + name.substr(0, name.find('(')) +
        " is not offered. Use MindSpore's own backend: PyNative, or ms.jit and GRAPH_MODE with jit_level=\"O0\".");
}

}  // namespace vnpu::mindspore
