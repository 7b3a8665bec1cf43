// Boxes as differences from anchors, overlaps without a gradient, and which anchors answer for which truth. In fp32,
// rounded once.
#include <cmath>

#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kHalves{at::kHalf, at::kFloat};

void check_boxes(const at::Tensor &tensor, std::string_view what) {
    allowed(tensor, kHalves, what);
    sizes(tensor, {-1, 4}, what);
}

at::Tensor numbers(const aclopAttr &attributes, const char *name, float otherwise, size_t count) {
    const auto values = attribute<std::vector<float>>(attributes, name, std::vector<float>(count, otherwise));
    if (values.size() != count)
        fail(FaultKind::InvalidArgument, "attribute {} has {} values, expected {}", name, values.size(), count);
    return at::tensor(values, at::kFloat);
}

// Centre and size; corners are pixels that belong to the box where `inclusive`.
struct Centred {
    at::Tensor x, y, width, height;

    Centred(const at::Tensor &box, int64_t dim, bool inclusive) {
        const auto at = [&](int64_t i) { return box.select(dim, i); };
        x = (at(0) + at(2)) * 0.5;
        y = (at(1) + at(3)) * 0.5;
        width = at(2) - at(0) + (inclusive ? 1 : 0);
        height = at(3) - at(1) + (inclusive ? 1 : 0);
    }
};

// ops-cv: bounding_box_encode. A 910B rounds every step to float16, whatever it is given, and multiplies by 1 / std
// (the values in op-plugin's test_bounding_box_encode and torch_npu's test_bbox_coder).
at::Tensor encoded(const at::Tensor &anchors, const at::Tensor &truth, const aclopAttr &attributes) {
    const Centred a(anchors.to(at::kHalf), -1, true), b(truth.to(at::kHalf), -1, true);
    const at::Tensor raw = at::stack(
        {(b.x - a.x) / a.width, (b.y - a.y) / a.height, (b.width / a.width).log(), (b.height / a.height).log()}, -1);
    return (raw - numbers(attributes, "means", 0, 4).to(at::kHalf)) *
           numbers(attributes, "stds", 1, 4).reciprocal().to(at::kHalf);
}

struct Image {
    double height, width, ratio;
};

Image image(const aclopAttr &attributes) {
    const auto shape = attribute<std::vector<int64_t>>(attributes, "max_shape", {});
    if (shape.size() != 2)
        fail(FaultKind::InvalidArgument, "attribute max_shape has {} values, expected height and width", shape.size());
    const double clip = attribute<float>(attributes, "wh_ratio_clip", 0.016F);
    if (!(clip > 0)) fail(FaultKind::InvalidArgument, "attribute wh_ratio_clip is {}, expected more than 0", clip);
    return {static_cast<double>(shape[0]), static_cast<double>(shape[1]), std::abs(std::log(clip))};
}

// The last pixel that a box has is inside of the image (op-plugin: test_bounding_box_decode).
at::Tensor decoded(const at::Tensor &rois, const at::Tensor &deltas, const aclopAttr &attributes) {
    const Image frame = image(attributes);
    const Centred a(widened(rois), -1, true);
    const at::Tensor d = widened(deltas) * numbers(attributes, "stds", 1, 4) + numbers(attributes, "means", 0, 4);
    const at::Tensor x = a.x + a.width * d.select(-1, 0), y = a.y + a.height * d.select(-1, 1);
    const auto half = [&](const at::Tensor &size, int64_t i) {
        return size * d.select(-1, i).clamp(-frame.ratio, frame.ratio).exp() * 0.5 - 0.5;
    };
    const at::Tensor wide = half(a.width, 2), high = half(a.height, 3);
    return at::stack({(x - wide).clamp(0, frame.width - 1), (y - high).clamp(0, frame.height - 1),
                      (x + wide).clamp(0, frame.width - 1), (y + high).clamp(0, frame.height - 1)},
                     -1);
}

// Rows are the truth. Sides have an epsilon in the areas of the boxes, not in what they share; iof divides by the area
// of the truth. Every step is rounded to float16, with sides a fifth as long so that areas do not overflow (ops-cv:
// iou_v2's page; the values on an Ascend910B in op-plugin's test_iou and torch_npu's contrib test_iou).
at::Tensor shared(const at::Tensor &boxes, const at::Tensor &truth, const aclopAttr &attributes) {
    constexpr double kScale = 0.2;
    const at::Tensor eps = at::scalar_tensor(kScale * attribute<float>(attributes, "eps", 1), boxes.options());
    const at::Tensor a = (boxes * kScale).unsqueeze(0), b = (truth * kScale).unsqueeze(1);
    const auto area = [&](const at::Tensor &box) {
        return (box.select(-1, 2) - box.select(-1, 0) + eps) * (box.select(-1, 3) - box.select(-1, 1) + eps);
    };
    const auto along = [&](int64_t low) {
        return (at::minimum(a.select(-1, low + 2), b.select(-1, low + 2)) -
                at::maximum(a.select(-1, low), b.select(-1, low)))
            .clamp_min(0);
    };
    const at::Tensor common = along(0) * along(1);
    const bool by_truth = attribute<std::string>(attributes, "mode", "iou") == "iof";
    return common / (by_truth ? area(b).expand_as(common) : area(a) - common + area(b));
}

void check_iou(LegacyArguments &call) {
    const auto mode = attribute<std::string>(call.attributes, "mode", "iou");
    if (mode != "iou" && mode != "iof")
        fail(FaultKind::InvalidArgument, "attribute mode is \"{}\", allowed are iou and iof", mode);
    check_boxes(call.in[0], "bboxes");
    check_boxes(call.in[1], "gtboxes");
    allowed(call.in[1], call.in[0].scalar_type(), "gtboxes");
    sizes(call.out[0], {call.in[1].size(0), call.in[0].size(0)}, "the output");
}

// YOLO: where in its cell the truth lies, and how much larger it is than the anchor.
at::Tensor in_cells(const at::Tensor &anchors, const at::Tensor &truth, const at::Tensor &stride) {
    constexpr double kEpsilon = 1e-6;
    const Centred a(widened(anchors), -1, false), b(widened(truth), -1, false);
    const at::Tensor step = stride.flatten().to(at::kFloat);
    const auto place = [&](const at::Tensor &to, const at::Tensor &from) {
        return ((to - from) / step + 0.5).clamp(kEpsilon, 1 - kEpsilon);
    };
    const auto growth = [&](const at::Tensor &to, const at::Tensor &from) {
        return (to / from).clamp_min(kEpsilon).log();
    };
    return at::stack({place(b.x, a.x), place(b.y, a.y), growth(b.width, a.width), growth(b.height, a.height)}, -1);
}

// Boxes with an angle in degrees, [batch, 5, boxes]; angles differ by their tangents.
at::Tensor tangent(const at::Tensor &boxes) { return (widened(boxes).select(1, 4) * (M_PI / 180)).tan(); }

at::Tensor rotated_encoded(const at::Tensor &anchors, const at::Tensor &truth, const aclopAttr &attributes) {
    const Centred a(widened(anchors), 1, false), b(widened(truth), 1, false);
    const at::Tensor raw = at::stack({(b.x - a.x) / a.width, (b.y - a.y) / a.height, (b.width / a.width).log(),
                                      (b.height / a.height).log(), tangent(truth) - tangent(anchors)},
                                     1);
    return raw * numbers(attributes, "weight", 1, 5).unsqueeze(1);
}

at::Tensor rotated_decoded(const at::Tensor &anchors, const at::Tensor &deltas, const aclopAttr &attributes) {
    const Centred a(widened(anchors), 1, false);
    const at::Tensor d = widened(deltas) / numbers(attributes, "weight", 1, 5).unsqueeze(1);
    const at::Tensor x = a.x + a.width * d.select(1, 0), y = a.y + a.height * d.select(1, 1);
    const at::Tensor wide = a.width * d.select(1, 2).exp() * 0.5, high = a.height * d.select(1, 3).exp() * 0.5;
    const at::Tensor angle = (tangent(anchors) + d.select(1, 4)).atan() * (180 / M_PI);
    return at::stack({x - wide, y - high, x + wide, y + high, angle}, 1);
}

void check_rotated(LegacyArguments &call) {
    allowed(call.in[0], kHalves, "anchors");
    sizes(call.in[0], {-1, 5, -1}, "anchors");
    alike(call.in[1], call.in[0], "the second input");
    alike(call.out[0], call.in[0], "the output");
    numbers(call.attributes, "weight", 1, 5);
}

struct Cells {
    std::vector<int64_t> size, stride;
    int64_t anchors;
};

Cells cells(LegacyArguments &call) {
    const Cells made{attribute<std::vector<int64_t>>(call.attributes, "featmap_size", {}),
                     attribute<std::vector<int64_t>>(call.attributes, "strides", {}),
                     attribute<int64_t>(call.attributes, "num_base_anchors", 0)};
    check_boxes(call.in[0], "gt_bboxes");
    if (made.size.size() != 2 || made.stride.size() != 2 || made.stride[0] < 1 || made.stride[1] < 1 ||
        made.anchors < 1)
        fail(FaultKind::InvalidArgument, "featmap_size and strides are two numbers, num_base_anchors is 1 or more");
    allowed(call.out[0], at::kByte, "the output");
    holds(call.out[0], made.size[0] * made.size[1] * made.anchors, "the output");
    return made;
}

// All anchors of the cells in which centres lie (ops-cv: anchor_response_flags).
void respond(const Cells &grid, const at::Tensor &truth, at::Tensor &out) {
    const Centred box(widened(truth), -1, false);
    const at::Tensor column = (box.x / grid.stride[0]).floor(), row = (box.y / grid.stride[1]).floor();
    const at::Tensor place = (row * grid.size[1] + column).to(at::kLong);
    const int64_t count = grid.size[0] * grid.size[1];
    at::Tensor found = at::zeros({count}, at::kByte);
    found.index_fill_(0, place.masked_select(place.ge(0).logical_and_(place.lt(count))), 1);
    out.copy_(found.unsqueeze(1).expand({count, grid.anchors}).reshape(out.sizes()));
}

// in: assigned, overlaps [truth, boxes], responsible, the largest overlap of each box and where, that of each truth and
// where, the number of truths.
void check_assign(LegacyArguments &call) {
    allowed(call.in[0], kHalves, "assigned_gt_inds");
    alike(call.out[0], call.in[0], "the output");
    const int64_t count = call.in[0].numel();
    sizes(call.in[1], {-1, count}, "overlaps");
    allowed(call.in[2], at::kByte, "box_responsible_flags");
    for (const size_t i : {2, 3, 4}) holds(call.in[i], count, "a value of each box");
    for (const size_t i : {5, 6}) holds(call.in[i], call.in[1].size(0), "a value of each truth");
    for (const size_t i : {4, 6}) allowed(call.in[i], at::kInt, "an index");
    holds(call.in[7], 1, "num_gts");
}

void assign(LegacyArguments &call) {
    const auto number = [&](const char *name) { return attribute<float>(call.attributes, name, 0); };
    const bool all = attribute<bool>(call.attributes, "gt_max_assign_all", true);
    const at::Tensor overlaps = widened(call.in[1]), responsible = call.in[2].ne(0), best = widened(call.in[5]);
    const at::Tensor sure =
        widened(call.in[3]).ge(static_cast<double>(number("pos_iou_thr"))).logical_and_(responsible);
    at::Tensor result = at::where(sure, call.in[4].to(at::kFloat) + 1, widened(call.in[0]));
    const int64_t count = std::min(overlaps.size(0), call.in[7].to(at::kLong).item<int64_t>());
    for (int64_t i = 0; i < count; ++i) {
        if (!(best[i].item<float>() > number("min_pos_iou"))) continue;
        if (all) {
            result.masked_fill_(overlaps[i].eq(best[i]).logical_and_(responsible), i + 1);
            continue;
        }
        const auto place = call.in[6][i].item<int64_t>();
        if (place >= 0 && place < result.numel() && responsible[place].item<bool>()) result[place] = i + 1;
    }
    call.out[0].copy_(result);
}

// Boxes in a picture of height, width and ratio: their last pixels are in it, too.
at::Tensor inside(const at::Tensor &box, const at::Tensor &picture) {
    const at::Tensor wide = box.to(at::kFloat),
                     size = picture.to(at::kFloat).flatten() * picture.flatten()[2].to(at::kFloat);
    return wide.select(1, 0).ge(0) & wide.select(1, 1).ge(0) & wide.select(1, 2).le(size[1] - 1) &
           wide.select(1, 3).le(size[0] - 1);
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(BoundingBoxEncode, check_boxes(in[0], "anchor_box"); alike(in[1], in[0], "ground_truth_box");
       alike(out[0], in[0], "the output"); numbers(attributes, "means", 0, 4);
       numbers(attributes, "stds", 1, 4), out[0].copy_(encoded(in[0], in[1], attributes)))
LEGACY(BoundingBoxDecode, check_boxes(in[0], "rois"); alike(in[1], in[0], "deltas"); alike(out[0], in[0], "the output");
       image(attributes); numbers(attributes, "means", 0, 4);
       numbers(attributes, "stds", 1, 4), out[0].copy_(decoded(in[0], in[1], attributes)))
LEGACY(Iou, check_iou(arguments), out[0].copy_(shared(in[0], in[1], attributes)))
LEGACY(YoloBoxesEncode, check_boxes(in[0], "anchor_boxes"); alike(in[1], in[0], "gt_bboxes");
       allowed(in[2], at::kInt, "stride"); holds(in[2], in[0].size(0), "stride");
       alike(out[0], in[0], "the output"), out[0].copy_(in_cells(in[0], in[1], in[2])))
LEGACY(RotatedBoxEncode, check_rotated(arguments), out[0].copy_(rotated_encoded(in[0], in[1], attributes)))
LEGACY(RotatedBoxDecode, check_rotated(arguments), out[0].copy_(rotated_decoded(in[0], in[1], attributes)))
LEGACY(AnchorResponseFlags, cells(arguments), respond(cells(arguments), in[0], out[0]))
LEGACY(GridAssignPositive, check_assign(arguments), assign(arguments))
LEGACY(CheckValid, check_boxes(in[0], "bbox_tensor"); allowed(in[1], in[0].scalar_type(), "img_metas");
       holds(in[1], 3, "img_metas"); holds(out[0], in[0].size(0), "the output"), put(out[0], inside(in[0], in[1])))
