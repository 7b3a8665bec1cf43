#include "hccl/places.h"

#include <unistd.h>

#include <map>
#include <utility>

#include "device/fault.h"

namespace vnpu::hccl {

void check_places(std::span<const Place> places) {
    std::map<std::pair<std::string, int>, size_t> taken;
    for (size_t rank = 0; rank < places.size(); ++rank) {
        const Place &place = places[rank];
        const auto [first, free] = taken.try_emplace({place.node, place.device}, rank);
        if (!free)
            fail(
                FaultKind::SharedDevice,
                "Rank {} of node {} has the same physical device ID {} as the rank {}. Each rank needs a device of its "
                "own: call torch.npu.set_device(int(os.environ[\"LOCAL_RANK\"])) before init_process_group.",
                first->second, place.node, place.device, rank);
    }
}

std::array<char, 64> host_name() {
    std::array<char, 64> name{};
    gethostname(name.data(), name.size() - 1);
    return name;
}

}  // namespace vnpu::hccl
