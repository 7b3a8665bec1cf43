// Results stay laid out as the caller's descriptors say. Some of ATen's out= kernels (softmax, the pads) write as if
// the result were contiguous, and some (adaptive_avg_pool2d) make it channels-last where an input is, which the caller
// never learns.
#pragma once

#include <c10/util/SmallVector.h>

#include <array>
#include <tuple>

#include "opapi/aclnn/tensor.h"

namespace vnpu::opapi {

// One result, as it was before the kernel.
class Laid {
  public:
    // A result that is not contiguous is computed aside; of one whose shape the kernel decides, the layout is its own.
    explicit Laid(Operand &result);
    // Moves what was written elsewhere to where the caller reads it.
    void again() const;

  private:
    Operand *result_;
    at::Tensor place_;
    at::DimVector strides_;
};

class LaidList {
  public:
    explicit LaidList(Operands &results) {
        for (Operand &result : results) each_.emplace_back(result);
    }
    void again() const {
        for (const Laid &one : each_) one.again();
    }

  private:
    std::vector<Laid> each_;
};

inline Laid laid(Operand &result) { return Laid(result); }
inline LaidList laid(Operands &results) { return LaidList(results); }

template <class... T>
auto as_laid_out(T &...results) {
    return std::tuple{laid(results)...};
}
template <class Results>
void laid_out_again(const Results &results) {
    std::apply([](const auto &...each) { (each.again(), ...); }, results);
}

}  // namespace vnpu::opapi
