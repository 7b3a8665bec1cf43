#include "opapi/aclnn/unbacked.h"

#include <fmt/ranges.h>

#include "device/description.h"
#include "opapi/aclnn/op.h"

namespace vnpu::opapi {

constinit std::atomic<bool> any_unbacked{false};

void refuse_unbacked(Executor &executor) {
    Description what;
    executor.describe(what);
    for (const TensorLine &line : what.tensors)
        if (line.bytes > 0 && line.address == 0)
            fail(FaultKind::InvalidAddress,
                 "an {} of shape [{}] was described without memory: that is enough for the first phase, not to run",
                 line.output ? "output" : "input", fmt::join(line.sizes.begin(), line.sizes.begin() + line.rank, ", "));
}

}  // namespace vnpu::opapi
