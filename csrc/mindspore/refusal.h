// What the functions of a graph compiler answer here.
#pragma once

namespace vnpu::mindspore {

// Throws std::runtime_error with a sentence that names `function`, mangled. Not a code: what these functions return
// differs, and a C++ program above them has handlers for exceptions, which become Python's.
[[noreturn]] void refuse(const char *function);

}  // namespace vnpu::mindspore
