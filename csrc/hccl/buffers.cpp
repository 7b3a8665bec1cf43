#include "hccl/buffers.h"

#include <map>
#include <mutex>
#include <utility>

#include "device/fault.h"

namespace vnpu::hccl {
namespace {

constexpr uint64_t kMegabyte = 1024 * 1024;

uint64_t reserve(Device &device, uint64_t each) {
    const uint64_t size = 2 * each + kMegabyte;
    try {
        return device.heap().reserve(size);
    } catch (const Fault &fault) {
        // The first words are HCCL's.
        fail(fault.kind(),
             "Resource_Error_Insufficient_Device_Memory(EI0011): Failed to allocate {} bytes of NPU memory. They are "
             "the buffers of a communicator: 2 x {} MB (HCCL_BUFFSIZE or hccl_buffer_size) and 1 MB. {}",
             size, each / kMegabyte, fault.what());
    }
}

}  // namespace

Buffers::Buffers(Device &device, uint64_t each) : heap_(device.heap()), offset_(reserve(device, each)) {}

Buffers::~Buffers() { heap_.release(offset_); }

std::shared_ptr<Buffers> Buffers::take(Device &device, uint64_t each, const std::string &shared) {
    if (shared.empty()) return std::make_shared<Buffers>(device, each);
    static std::mutex mutex;
    static auto *named = new std::map<std::pair<int, std::string>, std::weak_ptr<Buffers>>;  // never destroyed
    const std::lock_guard lock(mutex);
    std::weak_ptr<Buffers> &known = (*named)[{device.index(), shared}];
    auto found = known.lock();
    if (found == nullptr) known = found = std::make_shared<Buffers>(device, each);
    return found;
}

}  // namespace vnpu::hccl
