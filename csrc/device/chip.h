// Chip profiles: the rows of knowledge/devices.toml, compiled in (chips.inc is generated from it).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "device/description.h"

namespace vnpu {

// How fast the chip works: [<chip>.time] of devices.toml, which has a source for each.
struct TimeModel {
    std::array<double, kUnits> rate;  // of Cube and Depthwise: share of the matrix units' peak; else of bandwidth
    double floor_us;                  // the shortest kernel
    double device_cpu_us;             // of an operator on the device's CPU
    double host_us;                   // a launch, on the program's side
    double l2_gbs, l2_share;          // rate of what fits into that share of the L2 cache
    double pcie_gbs, copy_us;         // copies from and to the host
    double hccs_gbs, roce_gbs;        // of a rank, within a machine and between machines
    double collective_us;
};

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
    bool nd_native;  // matrix units read row-major operands
    bool bf16;       // has bfloat16 arithmetic
    bool inf_nan;    // results out of range can become inf and nan; false: they saturate, always
    bool unified;    // a core holds both units, and is one row of a profile
    bool a3;         // of the A3 series, which has collective operators of its own
    Generation generation;
    TimeModel time;
    const char *lacking;  // of names that begin with this one: why there is no profile; otherwise null
};

// The profile of that name. Fault InvalidArgument when there is none: why, where that is known, and which there are.
const Chip &find_chip(std::string_view name);

// All names, separated by ", ".
std::string chip_names();

}  // namespace vnpu
