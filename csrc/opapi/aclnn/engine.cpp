#include "opapi/aclnn/engine.h"

#include <algorithm>
#include <span>

#include "device/machine.h"

namespace vnpu::opapi {

Engine engine_of(std::string_view operation, at::ScalarType first) noexcept {
    const std::span rows(kEngines, kEngineCount);
    const auto row = std::ranges::lower_bound(rows, operation, {}, &EngineRow::name);
    if (row == rows.end() || row->name != operation) return Engine::Unknown;
    return row->on_device_cpu.has(first) ? Engine::DeviceCpu : row->engine;
}

FaultKind failure_on(Engine engine) noexcept {
    if (engine == Engine::DeviceCpu) return FaultKind::DeviceCpuFailure;
    // Other chips have one kind of core (vllm-ascend#13647: 507015 for an addition on a 310P3).
    const bool vector = engine != Engine::Cube && Machine::instance().settings().chip->generation == Generation::k910B;
    return vector ? FaultKind::VectorFailure : FaultKind::KernelFailure;
}

}  // namespace vnpu::opapi
