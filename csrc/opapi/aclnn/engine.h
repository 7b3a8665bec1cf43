// Which unit of the chip runs an operator: engines.json, which generate.py compiles in. A kernel that fails is told by
// the code of its unit.
#pragma once

#include <cstddef>
#include <string_view>

#include "opapi/aclnn/check.h"

namespace vnpu::opapi {

enum class Engine : uint8_t { Unknown, Cube, Vector, DeviceCpu };

struct EngineRow {
    std::string_view name;
    Engine engine;
    DTypes on_device_cpu;  // of the first tensor that is read: these go to the device's CPU
};

// In the order of their names.
extern const EngineRow kEngines[];
extern const size_t kEngineCount;

// The unit of an operator whose first tensor has this dtype; that of most, where it is not known.
Engine engine_of(std::string_view operation, at::ScalarType first) noexcept;

// What a failure of the operator's kernel is, on the chip that is in use.
FaultKind failure_on(Engine engine) noexcept;

}  // namespace vnpu::opapi
