// Low-rank updates, of each row by the weights that it names.
#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

// ops-math: add_lora_tiling.cpp
void check_lora(const Operand &y, const Operand &x, const Operand &b, const Operand &indices, const Operand &a,
                int64_t layer, int64_t offset, int64_t width, const Operand &out) {
    for (const Operand *each : {&y, &x, &b, &indices}) require(*each);
    for (const Operand *each : {&y, &x})
        tiled(each->dim() == 2 && each->numel() > 0, "parameter {} is {}, expected 2 dimensions and elements",
              each->parameter(), describe(*each));
    tiled(b.dim() == 4 && b.numel() > 0, "parameter weightB is {}, expected 4 dimensions and elements", describe(b));
    tiled(x.size(0) == y.size(0), "parameter x is {}, expected as many rows as y, {}", describe(x), describe(y));
    tiled(indices.dim() == 1 && indices.size(0) == y.size(0), "parameter indices is {}, expected [{}]",
          describe(indices), y.size(0));
    tiled(b.size(2) <= y.size(1), "parameter weightB is {}, its third size is greater than the row of y, {}",
          describe(b), describe(y));
    for (const int64_t size : {x.size(1), y.size(1), b.size(2), b.size(3)})
        tiled(size % 16 == 0, "x is {}, y {} and weightB {}, expected multiples of 16", describe(x), describe(y),
              describe(b));
    if (a.defined())
        tiled(a.dim() == 4 && a.size(0) == b.size(0) && a.size(1) == b.size(1) && a.size(2) == b.size(3) &&
                  a.size(3) == x.size(1),
              "parameter weightAOptional is {}, expected [{}, {}, {}, {}]", describe(a), b.size(0), b.size(1),
              b.size(3), x.size(1));
    else
        tiled(x.size(1) == b.size(3), "parameter x is {}, expected rows of {} without weightAOptional", describe(x),
              b.size(3));
    tiled(layer >= 0 && layer < b.size(1), "parameter layerIdx is {}, allowed is less than {}", layer, b.size(1));
    tiled(offset >= 0 && width == b.size(2) && offset + width <= y.size(1),
          "yOffset is {} and ySliceSize {}, expected a slice of {} in {} columns", offset, width, b.size(2), y.size(1));
    shape(out, y.sizes());
}

// A row whose index names no weights stays as it is. What is between the two products is float16, as the cube unit
// takes it.
void add_lora(const at::Tensor &y, const at::Tensor &x, const at::Tensor &b, const at::Tensor &indices,
              const at::Tensor &a, int64_t layer, double scale, int64_t offset, int64_t width, at::Tensor &out) {
    at::Tensor value = widened(y).clone();
    for (int64_t w = 0; w < b.size(0); ++w) {
        const at::Tensor rows = at::nonzero(indices.eq(w)).reshape({-1});
        if (rows.numel() == 0) continue;
        at::Tensor inner = x.index_select(0, rows);
        if (a.defined()) inner = at::matmul(widened(inner), widened(a[w][layer]).t()).to(at::kHalf);
        const at::Tensor update = at::matmul(widened(inner), widened(b[w][layer]).t()) * scale;
        value.narrow(1, offset, width).index_add_(0, rows, update);
    }
    out.copy_(value);
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnAddLora, check_lora(y, x, weightB, indices, weightAOptional, layerIdx, yOffset, ySliceSize, out),
   add_lora(y, x, weightB, indices, weightAOptional, layerIdx, scale, yOffset, ySliceSize, out))
