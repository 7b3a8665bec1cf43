// Boxes (y0, x0, y1, x1) that stay beside better ones. One that overlaps a better one by more than the limit goes.
#include <numeric>

#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kHalves{at::kHalf, at::kFloat};

struct Box {
    float low[2], high[2], size;

    explicit Box(const float *corners)
        : low{corners[0], corners[1]},
          high{corners[2], corners[3]},
          size((corners[2] - corners[0]) * (corners[3] - corners[1])) {}
};

bool covers(const Box &a, const Box &b, float limit) {
    const float tall = std::max(0.0F, std::min(a.high[0], b.high[0]) - std::max(a.low[0], b.low[0]));
    const float wide = std::max(0.0F, std::min(a.high[1], b.high[1]) - std::max(a.low[1], b.low[1]));
    return tall * wide > limit * (a.size + b.size - tall * wide);
}

// Of `order`, best first, those that stay, at most `most`.
template <class Corners>
std::vector<int64_t> stay(const std::vector<int64_t> &order, float limit, int64_t most, Corners corners) {
    std::vector<int64_t> kept;
    std::vector<Box> boxes;
    for (const int64_t i : order) {
        if (static_cast<int64_t>(kept.size()) >= most) break;
        const Box one(corners(i));
        bool alone = true;
        for (const Box &other : boxes) alone = alone && !covers(one, other, limit);
        if (!alone) continue;
        kept.push_back(i);
        boxes.push_back(one);
    }
    return kept;
}

std::vector<int64_t> above(const float *scores, int64_t count, float least) {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < count; ++i)
        if (scores[i] > least) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
    return order;
}

void check_mask(LegacyArguments &call) {
    allowed(call.in[0], kNative, "box_scores");
    sizes(call.in[0], {-1, 5}, "box_scores");
    alike(call.out[0], call.in[0], "selected_boxes");
    allowed(call.out[1], at::kInt, "selected_idx");
    allowed(call.out[2], {at::kByte, at::kBool}, "selected_mask");  // MindSpore's is of truths
    for (const size_t i : {1, 2}) holds(call.out[i], call.in[0].size(0), "an output");
}

// The order is the caller's: boxes come best first (ops-cv: nms_with_mask).
void mask(LegacyArguments &call) {
    const at::Tensor boxes = call.in[0].to(at::kFloat).contiguous();
    std::vector<int64_t> order(static_cast<size_t>(boxes.size(0)));
    std::iota(order.begin(), order.end(), 0);
    const std::vector<int64_t> kept =
        stay(order, attribute<float>(call.attributes, "iou_threshold", 0.5F), boxes.size(0),
             [&](int64_t i) { return boxes.const_data_ptr<float>() + 5 * i; });
    call.out[0].copy_(call.in[0]);
    call.out[1].copy_(at::arange(boxes.size(0)));
    call.out[2].zero_().index_fill_(0, at::tensor(kept, at::kLong), 1);
}

float number(const at::Tensor &tensor) { return tensor.reshape({}).to(at::kFloat).item<float>(); }

// in: boxes, scores, how many at most, the largest overlap, the smallest score.
void check_best(LegacyArguments &call) {
    allowed(call.in[0], kHalves, "boxes");
    sizes(call.in[0], {-1, 4}, "boxes");
    holds(call.in[1], call.in[0].size(0), "scores");
    for (const size_t i : {2, 3, 4}) holds(call.in[i], 1, "a limit");
    for (size_t i = 0; i < 2; ++i) allowed(call.out[i], at::kInt, "an output");
    holds(call.out[1], 1, "valid_outputs");
}

// Corners of TensorFlow's boxes are any two that lie opposite.
void best(LegacyArguments &call) {
    const at::Tensor given = call.in[0].to(at::kFloat).view({-1, 2, 2}),
                     scores = call.in[1].to(at::kFloat).contiguous();
    const at::Tensor boxes = at::cat({given.amin(1), given.amax(1)}, 1).contiguous();
    const int64_t most = std::min(call.in[2].to(at::kLong).item<int64_t>(), call.out[0].numel());
    const std::vector<int64_t> kept =
        stay(above(scores.const_data_ptr<float>(), boxes.size(0), number(call.in[4])), number(call.in[3]), most,
             [&](int64_t i) { return boxes.const_data_ptr<float>() + 4 * i; });
    const auto count = static_cast<int64_t>(kept.size());
    call.out[0].zero_().flatten().narrow(0, 0, count).copy_(at::tensor(kept, at::kLong));
    call.out[1].fill_(count);
}

struct Limits {
    float score, overlap;
    int64_t per_class, total;
    bool channels_first;
};

Limits limits(const aclopAttr &attributes) {
    const auto whole = [&](const char *name) { return attribute<int64_t>(attributes, name, 0); };
    const Limits made{attribute<float>(attributes, "score_threshold", 0),
                      attribute<float>(attributes, "iou_threshold", 0), whole("max_size_per_class"),
                      whole("max_total_size"), attribute<bool>(attributes, "transpose_box", false)};
    if (!(made.overlap >= 0 && made.overlap <= 1) || made.per_class < 1 || made.total < 1)
        fail(FaultKind::InvalidArgument,
             "attribute iou_threshold is {}, max_size_per_class {}, max_total_size {}: expected 0 to 1, and 1 or more",
             made.overlap, made.per_class, made.total);
    if (attribute<bool>(attributes, "change_coordinate_frame", false))
        fail(FaultKind::InvalidArgument, "attribute change_coordinate_frame is true, which needs a clip_window");
    return made;
}

// Boxes are [batch, boxes, classes or 1, 4] or [batch, classes or 1, 4, boxes].
void check_batch(LegacyArguments &call) {
    const Limits chosen = limits(call.attributes);
    allowed(call.in[0], kHalves, "boxes");
    allowed(call.in[1], call.in[0].scalar_type(), "scores");
    sizes(call.in[1], {-1, -1, -1}, "scores");
    const int64_t batch = call.in[1].size(0), count = call.in[1].size(1), classes = call.in[1].size(2);
    if (chosen.channels_first)
        sizes(call.in[0], {batch, -1, 4, count}, "boxes");
    else
        sizes(call.in[0], {batch, count, -1, 4}, "boxes");
    const int64_t of = call.in[0].size(chosen.channels_first ? 1 : 2);
    if (of != 1 && of != classes)
        fail(FaultKind::InvalidArgument, "boxes is {}, expected one box or one for each of {} classes",
             describe(call.in[0]), classes);
    holds(call.out[0], batch * chosen.total * 4, "nmsed_boxes");
    for (const size_t i : {1, 2}) holds(call.out[i], batch * chosen.total, "an output");
    holds(call.out[3], batch, "nmsed_num");
}

struct Found {
    float score;
    int64_t index, of;
};

// Each class by itself; of all that stay the best (ops-cv: batch_multi_class_non_max_suppression).
void batch(LegacyArguments &call) {
    const Limits chosen = limits(call.attributes);
    at::Tensor boxes = call.in[0].to(at::kFloat);
    if (!chosen.channels_first) boxes = boxes.permute({0, 2, 3, 1});
    boxes = boxes.transpose(2, 3).contiguous();  // [batch, classes or 1, boxes, 4]
    const at::Tensor scores = call.in[1].to(at::kFloat).transpose(1, 2).contiguous();
    for (size_t i = 0; i < 4; ++i) call.out[i].zero_();
    for (int64_t n = 0; n < scores.size(0); ++n) {
        std::vector<Found> all;
        for (int64_t c = 0; c < scores.size(1); ++c) {
            const at::Tensor own = boxes[n][boxes.size(1) == 1 ? 0 : c], given = scores[n][c];
            const float *corners = own.const_data_ptr<float>(), *score = given.const_data_ptr<float>();
            std::vector<int64_t> order = above(score, given.size(0), chosen.score);
            std::erase_if(order, [&](int64_t i) {
                return !(corners[4 * i + 2] > corners[4 * i] && corners[4 * i + 3] > corners[4 * i + 1]);
            });
            for (const int64_t i :
                 stay(order, chosen.overlap, chosen.per_class, [&](int64_t index) { return corners + 4 * index; }))
                all.push_back({score[i], i, c});
        }
        std::stable_sort(all.begin(), all.end(), [](const Found &a, const Found &b) { return a.score > b.score; });
        const auto count = std::min(static_cast<int64_t>(all.size()), chosen.total);
        at::Tensor to_boxes = call.out[0].view({scores.size(0), chosen.total, 4})[n];
        at::Tensor to_scores = call.out[1].view({scores.size(0), -1})[n];
        at::Tensor to_classes = call.out[2].view({scores.size(0), -1})[n];
        for (int64_t i = 0; i < count; ++i) {
            const Found &one = all[static_cast<size_t>(i)];
            to_boxes[i].copy_(boxes[n][boxes.size(1) == 1 ? 0 : one.of][one.index]);
            to_scores[i].fill_(one.score);
            to_classes[i].fill_(one.of);
        }
        call.out[3].flatten()[n].fill_(count);
    }
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(NMSWithMask, check_mask(arguments), mask(arguments))
LEGACY(NonMaxSuppressionV4, check_best(arguments), best(arguments))
LEGACY(BatchMultiClassNonMaxSuppression, check_batch(arguments), batch(arguments))
