// Chip profiles: the rows of knowledge/devices.toml, compiled in (chips.inc is generated from it).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace vnpu {

// Whose operators a chip has, as CANN's checks tell them apart. A3 has those of 910B.
enum class Generation : uint8_t { k910B, k910A, k310P };
inline constexpr size_t kGenerations = 3;

struct Chip {
    const char *name;  // what aclrtGetSocName answers
    int64_t cube_cores;
    int64_t vector_cores;
    uint64_t memory_bytes;   // what programs get of HBM (LPDDR on 310P)
    uint64_t context_bytes;  // what of it a process's context takes; 0: no figure has been seen
    double bandwidth_gbs;    // memory bandwidth, GB/s
    double clock_ghz;
    uint64_t l2_bytes;
    bool bf16;     // has bfloat16 arithmetic
    bool inf_nan;  // results out of range can become inf and nan; false: they saturate, always
    Generation generation;
    const char *lacking;  // of names that begin with this one: why there is no profile; otherwise null
};

// The profile of that name. Fault InvalidArgument when there is none: why, where that is known, and which there are.
const Chip &find_chip(std::string_view name);

// All names, separated by ", ".
std::string chip_names();

}  // namespace vnpu
