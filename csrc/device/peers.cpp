#include "device/peers.h"

#include <array>
#include <atomic>
#include <cstdint>

namespace vnpu {
namespace {

std::array<std::atomic<uint64_t>, 64> opened{};  // of each device, a bit for each peer: VNPU_DEVICES is at most 64

uint64_t bit(int peer) noexcept { return uint64_t{1} << peer; }

}  // namespace

void open_peer(int device, int peer) noexcept { opened[static_cast<size_t>(device)] |= bit(peer); }

void close_peer(int device, int peer) noexcept { opened[static_cast<size_t>(device)] &= ~bit(peer); }

bool reaches(int device, int owner) noexcept {
    return device == owner || owner < 0 ||  // of no device: registered host memory
           (opened[static_cast<size_t>(device)] & bit(owner)) != 0;
}

}  // namespace vnpu
