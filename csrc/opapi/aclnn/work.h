// What an operator has to do, as the time model counts it (device/clock.h): which unit it keeps busy, and how much.
#pragma once

#include <string_view>

#include "device/description.h"
#include "opapi/aclnn/dump.h"

namespace vnpu::opapi {

// Writes an operator's tensors into a description.
class Shapes final : public Taker {
  public:
    explicit Shapes(Description &into) : into_(into) {}
    void take(std::initializer_list<Part> inputs, std::initializer_list<Part> outputs) override;
    // One tensor; left out where it is undefined. `format` as in TensorLine.
    void add(const at::Tensor &tensor, bool output, uint8_t format = ACL_FORMAT_ND);

  private:
    Description &into_;
};

// The work of the operator of that name, aclnn's or a legacy one, on these tensors. `name`: one pointer for one name.
Work work_of(const char *name, const Description &what);

}  // namespace vnpu::opapi
