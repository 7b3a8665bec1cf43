#include "ascendcl/visible_devices.h"

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "device/machine.h"

namespace vnpu::acl {
namespace {

// CANN's rule: numbers separated by commas; what follows the first bad one counts as absent. One that is not above the
// one before it voids them all (runtime: RT_ALL_ORDER_ERROR, RT_ALL_DUPLICATED_ERROR; torch_npu counts likewise).
const std::vector<int> &visible_devices() {
    static const std::vector<int> devices = [] {
        const int all = Machine::instance().settings().devices;
        std::vector<int> found;
        const char *variable = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
        if (variable == nullptr) {
            for (int i = 0; i < all; ++i) found.push_back(i);
            return found;
        }
        std::string_view text(variable);
        for (;;) {
            int device = -1;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), device);
            if (error != std::errc() || device < 0 || device >= all) return found;
            if (!found.empty() && device <= found.back()) return std::vector<int>{};
            found.push_back(device);
            text.remove_prefix(static_cast<size_t>(end - text.data()));
            if (text.empty() || text.front() != ',') return found;
            text.remove_prefix(1);
        }
    }();
    return devices;
}

}  // namespace

int visible_device_count() { return static_cast<int>(visible_devices().size()); }

int physical_device(int index) { return visible_devices().at(static_cast<size_t>(index)); }

}  // namespace vnpu::acl
