// Where the ranks of a communicator are: no two of them may have the same device.
#pragma once

#include <array>
#include <span>
#include <string>

namespace vnpu::hccl {

struct Place {
    std::string node;  // the machine, in words
    int device;        // its physical number there
};

// Fault SharedDevice for the first two ranks that have one device of one node: HCCL refuses them when it collects the
// ranks (hcomm, TopoInfoExchangeAgent::VerifyServerDevicePhysicID).
void check_places(std::span<const Place> places);

// This machine's name, ended by a 0.
std::array<char, 64> host_name();

}  // namespace vnpu::hccl
