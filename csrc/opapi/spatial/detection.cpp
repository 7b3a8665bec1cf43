// Overlap of boxes (x0, y0, x1, y1), [N, 4] by [M, 4].
#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

void check_boxes(const Operand &boxes, const Operand &truth, const std::string &mode, bool aligned,
                 const Operand &overlap) {
    for (const Operand *operand : {&boxes, &truth}) {
        network(*operand);
        rank(*operand, {2});
        shape(*operand, {operand->size(0), 4});
    }
    if (mode != "iou" && mode != "iof")
        fail(FaultKind::InvalidArgument, "parameter mode is \"{}\", allowed are iou and iof", mode);
    if (aligned && boxes.size(0) != truth.size(0))
        fail(FaultKind::InvalidArgument, "parameter gtBoxes is {}, expected {} boxes in aligned mode", describe(truth),
             boxes.size(0));
    if (overlap.numel() != (aligned ? boxes.size(0) : boxes.size(0) * truth.size(0)))
        fail(FaultKind::InvalidArgument, "parameter overlap is {}, expected one value for each pair",
             describe(overlap));
}

// Rows are the truth, columns the boxes; iof divides by the area of the truth alone. Each side is longer by eps, in the
// boxes and in what they share (ops-cv: iou_v2): 1 stands for corners that are pixels of the box.
void overlap_of(const at::Tensor &boxes, const at::Tensor &truth, bool union_of_both, double eps, bool aligned,
                at::Tensor &out) {
    const at::Tensor a = aligned ? widened(boxes) : widened(boxes).unsqueeze(0);
    const at::Tensor b = aligned ? widened(truth) : widened(truth).unsqueeze(1);
    const auto area = [&](const at::Tensor &box) {
        return (box.select(-1, 2) - box.select(-1, 0) + eps) * (box.select(-1, 3) - box.select(-1, 1) + eps);
    };
    const auto shared = [&](int64_t low, int64_t high) {
        return (at::minimum(a.select(-1, high), b.select(-1, high)) + eps -
                at::maximum(a.select(-1, low), b.select(-1, low)))
            .clamp_min(0);
    };
    const at::Tensor common = shared(0, 2) * shared(1, 3);
    const at::Tensor whole = union_of_both ? area(a) + area(b) - common : area(b).expand_as(common);
    out.copy_((common / whole).reshape(out.sizes()));
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnIou, check_boxes(bBoxes, gtBoxes, mode, aligned, overlap),
   overlap_of(bBoxes, gtBoxes, mode == "iou", eps, aligned, overlap))
