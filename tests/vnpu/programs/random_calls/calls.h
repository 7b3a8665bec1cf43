// Every function that libascendcl and libhccl export, and how one random call of it is made.
#pragma once

#include <vector>

#include "draw.h"

namespace random_calls {

struct Call {
    const char *name;
    int (*run)(Draw &draw);  // the code; 0 of a function that gives none
    int weight = 16;
};

std::vector<Call> runtime_calls();     // devices, streams, events, graphs, switches
std::vector<Call> memory_calls();      // memory of all kinds, copies
std::vector<Call> descriptor_calls();  // the old operators, dumps
std::vector<Call> profiling_calls();
std::vector<Call> collective_calls();
std::vector<Call> refused_calls();  // those that only say that they are not offered
// A function with that fault: hang, silence, memory, file, thread; none for another word.
std::vector<Call> planted_calls(const char *fault);

// For functions that give no code: a pointer, a size, nothing.
template <class Answer>
int ignored(const Answer &) {
    return 0;
}

}  // namespace random_calls

#define CALL(name, ...)             \
    {#name, [](Draw &draw) -> int { \
         static_cast<void>(draw);   \
         return name(__VA_ARGS__);  \
     }}
// Some calls for each of the others'.
#define RARELY(name, ...)          \
    {#name,                        \
     [](Draw &draw) -> int {       \
         static_cast<void>(draw);  \
         return name(__VA_ARGS__); \
     },                            \
     1}
#define PLAIN(name, ...)                    \
    {#name, [](Draw &draw) -> int {         \
         static_cast<void>(draw);           \
         return ignored(name(__VA_ARGS__)); \
     }}
