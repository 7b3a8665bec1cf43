// Rectangles with an angle in degrees: what they share, and which of them stay beside better ones. A rectangle is
// turned by its angle around its centre, from the first coordinate towards the second.
#include <array>
#include <cmath>
#include <numeric>

#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

struct Point {
    double x, y;
};

double cross(const Point &a, const Point &b, const Point &c) {
    return (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x);
}

double area(const std::vector<Point> &polygon) {
    double twice = 0;
    for (size_t i = 2; i < polygon.size(); ++i) twice += cross(polygon[0], polygon[i - 1], polygon[i]);
    return std::abs(twice) / 2;
}

struct Rectangle {
    double x, y, width, height, angle;

    // Five numbers: a centre and sizes or two corners, and an angle.
    Rectangle(const std::array<double, 5> &box, bool by_corners, bool clockwise) {
        x = by_corners ? (box[0] + box[2]) / 2 : box[0];
        y = by_corners ? (box[1] + box[3]) / 2 : box[1];
        width = by_corners ? box[2] - box[0] : box[2];
        height = by_corners ? box[3] - box[1] : box[3];
        angle = (clockwise ? -box[4] : box[4]) * M_PI / 180;
    }
    double size() const { return width * height; }
    std::vector<Point> corners() const {
        std::vector<Point> made;
        for (const auto &[dx, dy] : {std::pair{-0.5, -0.5}, {0.5, -0.5}, {0.5, 0.5}, {-0.5, 0.5}})
            made.push_back({x + dx * width * std::cos(angle) - dy * height * std::sin(angle),
                            y + dx * width * std::sin(angle) + dy * height * std::cos(angle)});
        return made;
    }
};

// One polygon cut by the sides of the other. A rectangle whose area is not positive shares nothing (op-plugin:
// test_nms_rotated); two negative sides are a rectangle turned half round.
double shared(const Rectangle &a, const Rectangle &b) {
    constexpr double kSmallest = 1e-14;
    if (a.size() < kSmallest || b.size() < kSmallest) return 0;
    std::vector<Point> kept = a.corners(), knife = b.corners();
    if (cross(knife[0], knife[1], knife[2]) < 0) std::reverse(knife.begin(), knife.end());
    for (size_t side = 0; side < 4 && !kept.empty(); ++side) {
        const std::vector<Point> before = std::move(kept);
        kept.clear();
        for (size_t i = 0; i < before.size(); ++i) {
            const Point &from = before[(i + before.size() - 1) % before.size()], &to = before[i];
            const double was = cross(knife[side], knife[(side + 1) % 4], from);
            const double is = cross(knife[side], knife[(side + 1) % 4], to);
            if ((was >= 0) != (is >= 0)) {
                const double t = was / (was - is);
                kept.push_back({from.x + (to.x - from.x) * t, from.y + (to.y - from.y) * t});
            }
            if (is >= 0) kept.push_back(to);
        }
    }
    return area(kept);
}

void check_rectangles(LegacyArguments &call) {
    const at::Tensor &boxes = call.in[0], &others = call.in[1];
    for (size_t i = 0; i < 2; ++i) {
        allowed(call.in[i], at::kFloat, "boxes");
        sizes(call.in[i], {boxes.size(0), 5, -1}, "boxes");
    }
    const bool all = attribute<bool>(call.attributes, "is_cross", true);
    if (!all && boxes.size(2) != others.size(2))
        fail(FaultKind::InvalidArgument, "the boxes are {} and {}, expected as many without is_cross", describe(boxes),
             describe(others));
    if (attribute<std::string>(call.attributes, "mode", "iou") != "iou")
        fail(FaultKind::InvalidArgument, "attribute mode is not iou, which alone is allowed");
    sizes(call.out[0], {boxes.size(0), boxes.size(2), others.size(2)}, "the output");
}

// Each with each, or (is_cross false) the i-th with the i-th alone.
void overlap(LegacyArguments &call, bool relative) {
    const at::Tensor a = call.in[0].contiguous(), b = call.in[1].contiguous();
    const bool by_corners = attribute<bool>(call.attributes, "trans", false);
    const bool all = attribute<bool>(call.attributes, "is_cross", true);
    const auto from = [&](const at::Tensor &boxes, int64_t batch, int64_t i) {
        std::array<double, 5> box;
        for (int64_t c = 0; c < 5; ++c)
            box[static_cast<size_t>(c)] = boxes.const_data_ptr<float>()[(batch * 5 + c) * boxes.size(2) + i];
        return Rectangle(box, by_corners, false);
    };
    at::Tensor result = at::zeros(call.out[0].sizes(), at::kFloat);
    float *to = result.mutable_data_ptr<float>();
    for (int64_t batch = 0; batch < a.size(0); ++batch)
        for (int64_t i = 0; i < a.size(2); ++i)
            for (int64_t j = 0; j < b.size(2); ++j) {
                if (!all && i != j) continue;
                const Rectangle first = from(a, batch, i), second = from(b, batch, j);
                const double common = shared(first, second);
                const double whole = relative ? first.size() + second.size() - common : 1;
                to[(batch * a.size(2) + i) * b.size(2) + j] = static_cast<float>(common == 0 ? 0 : common / whole);
            }
    call.out[0].copy_(result);
}

void check_nms(LegacyArguments &call) {
    allowed(call.in[0], at::kFloat, "boxes");
    sizes(call.in[0], {-1, 5}, "boxes");
    allowed(call.in[1], at::kFloat, "scores");
    holds(call.in[1], call.in[0].size(0), "scores");
    alike(call.out[0], call.in[0], "the first output");
    allowed(call.out[1], at::kInt, "the second output");
    holds(call.out[1], call.in[0].size(0), "the second output");
    const auto mode = attribute<int64_t>(call.attributes, "mode", 0);
    if (mode != 0 && mode != 1) fail(FaultKind::InvalidArgument, "attribute mode is {}, allowed are 0 and 1", mode);
}

// The outputs get as many rows as stay. In mode 1 boxes are corners and angles go the other way round (op-plugin:
// test_nms_rotated).
void nms(LegacyArguments &call) {
    const at::Tensor boxes = call.in[0].contiguous(), scores = call.in[1].contiguous().flatten();
    const bool by_corners = attribute<int64_t>(call.attributes, "mode", 0) == 1;
    const auto limit = attribute<float>(call.attributes, "iou_threshold", 0);
    const auto least = attribute<float>(call.attributes, "score_threshold", 0);
    const auto most = attribute<int64_t>(call.attributes, "max_output_size", -1);
    const float *score = scores.const_data_ptr<float>();
    std::vector<int64_t> order(static_cast<size_t>(boxes.size(0))), kept;
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return score[a] > score[b]; });
    std::vector<Rectangle> stay;
    for (const int64_t i : order) {
        if (score[i] < least || (most >= 0 && static_cast<int64_t>(kept.size()) >= most)) break;
        std::array<double, 5> box;
        for (size_t c = 0; c < 5; ++c) box[c] = boxes.const_data_ptr<float>()[5 * i + static_cast<int64_t>(c)];
        const Rectangle one(box, by_corners, by_corners);
        bool alone = true;
        for (const Rectangle &other : stay) {
            const double common = shared(one, other);
            const double iou = common == 0 ? 0 : common / (one.size() + other.size() - common);
            alone = alone && iou <= static_cast<double>(limit);
        }
        if (!alone) continue;
        kept.push_back(i);
        stay.push_back(one);
    }
    const auto count = static_cast<int64_t>(kept.size());
    const at::Tensor chosen = at::tensor(kept, at::kLong);
    call.out[0].narrow(0, 0, count).copy_(boxes.index_select(0, chosen));
    call.out[1].narrow(0, 0, count).copy_(chosen);
    (*call.found)[0] = {count, 5};
    (*call.found)[1] = {count};
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(RotatedOverlaps, check_rectangles(arguments), overlap(arguments, false))
LEGACY(RotatedIou, check_rectangles(arguments), overlap(arguments, true))
LEGACY(RotatedNMS, check_nms(arguments), nms(arguments))
