// What a task works on, in plain numbers: what the time model counts, the event log keeps and dry mode needs to know of
// a kernel that it does not run. Written by Task::describe(), by operators from their lists of inputs and outputs.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace vnpu {

// The unit of the chip that a task keeps busy, each with a rate of its own (clock.h, devices.toml).
enum class Unit : uint8_t {
    None,        // nothing that takes time: events, host functions
    Cube,        // matrix products and convolutions
    Depthwise,   // convolutions whose groups leave most of the matrix unit idle
    Stream,      // element by element, from memory to memory
    Norm,        // batch, layer and group normalisation, softmax: several passes
    Pool,        // windows
    Move,        // transpositions, format conversions, copies of views
    Gather,      // by index
    DeviceCpu,   // what no core has a kernel for
    HostCopy,    // over PCIe
    Collective,  // between ranks
};
inline constexpr size_t kUnits = 11;

// How much of it: `flops` as the unit counts them (padded to its blocks), `bytes` read and written.
struct Work {
    Unit unit = Unit::None;
    double flops = 0;
    double bytes = 0;
    double converted = 0;  // bytes of operands that are brought into another format or order before and after
};

struct TensorLine {
    static constexpr size_t kRanks = 8;
    uint64_t address = 0;  // on the device; 0: none
    uint64_t bytes = 0;
    uint8_t dtype = 0;   // c10::ScalarType's number
    uint8_t format = 0;  // aclFormat's, of private formats; else 2, ND
    uint8_t rank = 0;    // of more than kRanks dimensions the first are kept
    bool output = false;
    bool view = false;  // its elements do not lie one behind another
    std::array<int64_t, kRanks> sizes;
};

struct Description {
    Work work;
    int ranks = 1;  // that a collective is between
    std::vector<TensorLine> tensors;
    void clear() noexcept {
        work = {};
        ranks = 1;
        tensors.clear();
    }
};

}  // namespace vnpu
