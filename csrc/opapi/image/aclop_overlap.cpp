// Overlaps of boxes that have a gradient: generalized, distance and complete IoU, [4, N] by [4, M], corners or (trans)
// centres and sizes. One formula per kind, computed in plain numbers or in numbers that carry their slopes.
#include <array>
#include <cmath>
#include <numbers>

#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

// A number and its slopes by the coordinates of both boxes.
struct Sloped {
    float value = 0;
    std::array<float, 8> slopes{};

    Sloped() = default;
    Sloped(float number) : value(number) {}
    Sloped(float number, size_t coordinate) : value(number) { slopes[coordinate] = 1; }
};

// f(a, b), whose slopes by them are p and q.
Sloped chain(float value, const Sloped &a, float p, const Sloped &b, float q) {
    Sloped made(value);
    for (size_t i = 0; i < 8; ++i) made.slopes[i] = p * a.slopes[i] + q * b.slopes[i];
    return made;
}
Sloped operator+(const Sloped &a, const Sloped &b) { return chain(a.value + b.value, a, 1, b, 1); }
Sloped operator-(const Sloped &a, const Sloped &b) { return chain(a.value - b.value, a, 1, b, -1); }
Sloped operator*(const Sloped &a, const Sloped &b) { return chain(a.value * b.value, a, b.value, b, a.value); }
Sloped operator/(const Sloped &a, const Sloped &b) {
    return chain(a.value / b.value, a, 1 / b.value, b, -a.value / (b.value * b.value));
}
Sloped arctangent(const Sloped &a) { return chain(std::atan(a.value), a, 1 / (1 + a.value * a.value), a, 0); }
float arctangent(float a) { return std::atan(a); }
// Of two that are equal each has half of the slope, as in torch.
Sloped larger(const Sloped &a, const Sloped &b) {
    const float p = a.value > b.value ? 1.0F : a.value == b.value ? 0.5F : 0.0F;
    return chain(std::max(a.value, b.value), a, p, b, 1 - p);
}
Sloped smaller(const Sloped &a, const Sloped &b) {
    const float p = a.value < b.value ? 1.0F : a.value == b.value ? 0.5F : 0.0F;
    return chain(std::min(a.value, b.value), a, p, b, 1 - p);
}
float larger(float a, float b) { return std::max(a, b); }
float smaller(float a, float b) { return std::min(a, b); }
Sloped not_negative(const Sloped &a) { return a.value >= 0 ? a : Sloped(); }
float not_negative(float a) { return std::max(a, 0.0F); }
Sloped constant(const Sloped &a) { return {a.value}; }
float constant(float a) { return a; }

enum class Kind { Generalized, Distance, Complete };

constexpr float kEpsilon = 1e-9F;  // op-plugin: test_npu_diou, test_ciou; ops-cv: g_io_u_grad

template <class T>
using Box = std::array<T, 4>;

template <class T>
Box<T> corners(const Box<T> &box, bool sizes) {
    if (!sizes) return box;
    const T half(0.5F);
    return {box[0] - box[2] * half, box[1] - box[3] * half, box[0] + box[2] * half, box[1] + box[3] * half};
}

template <class T>
T square(const T &number) {
    return number * number;
}

// `turn` is the difference of the boxes' angles, of complete IoU alone.
template <class T>
T overlap(Kind kind, const Box<T> &a, const Box<T> &b, bool by_truth, T &turn) {
    const T epsilon(kEpsilon), wide_a = a[2] - a[0], wide_b = b[2] - b[0];
    // Heights have an epsilon where an angle is made of them.
    const T high_a = a[3] - a[1] + (kind == Kind::Generalized ? T(0.0F) : epsilon);
    const T high_b = b[3] - b[1] + (kind == Kind::Generalized ? T(0.0F) : epsilon);
    const T common =
        not_negative(smaller(a[2], b[2]) - larger(a[0], b[0])) * not_negative(smaller(a[3], b[3]) - larger(a[1], b[1]));
    const T both = wide_a * high_a + wide_b * high_b - common;
    const T iou = common / ((by_truth ? wide_b * high_b : both) + epsilon);
    const T outer_w = larger(a[2], b[2]) - smaller(a[0], b[0]), outer_h = larger(a[3], b[3]) - smaller(a[1], b[1]);
    if (kind == Kind::Generalized) {
        const T outer = outer_w * outer_h;
        return iou - (outer - both) / (outer + epsilon);
    }
    const T apart = (square(b[0] + b[2] - a[0] - a[2]) + square(b[1] + b[3] - a[1] - a[3])) * T(0.25F);
    const T near = iou - apart / (square(outer_w) + square(outer_h) + epsilon);
    if (kind == Kind::Distance) return near;
    turn = arctangent(wide_b / high_b) - arctangent(wide_a / high_a);
    const T shape = square(turn) * T(4 / (std::numbers::pi_v<float> * std::numbers::pi_v<float>));
    // How much the shape counts has no slope.
    const T weight = constant(shape / (T(1 + kEpsilon) - iou + shape));
    return near - shape * weight;
}

struct Options {
    bool sizes, by_truth;
};

Options options(const aclopAttr &attributes) {
    const auto mode = attribute<std::string>(attributes, "mode", "iou");
    if (mode != "iou" && mode != "iof")
        fail(FaultKind::InvalidArgument, "attribute mode is \"{}\", allowed are iou and iof", mode);
    if (attribute<bool>(attributes, "is_cross", true))
        fail(FaultKind::InvalidArgument, "attribute is_cross is true, allowed is false");
    return {attribute<bool>(attributes, "trans", false), mode == "iof"};
}

void pairs(LegacyArguments &call, size_t boxes) {
    options(call.attributes);
    allowed(call.in[boxes], {at::kHalf, at::kFloat}, "bboxes");
    sizes(call.in[boxes], {4, -1}, "bboxes");
    alike(call.in[boxes + 1], call.in[boxes], "gtboxes");
}

void check_forward(LegacyArguments &call) {
    pairs(call, 0);
    for (at::Tensor &out : call.out) holds(out, call.in[0].size(1), "an output");
}

void check_backward(LegacyArguments &call) {
    pairs(call, 1);
    holds(call.in[0], call.in[1].size(1), "the gradient");
    for (size_t i = 0; i < 2; ++i) alike(call.out[i], call.in[1], "an output");
}

struct Pairs {
    at::Tensor first, second;
    const float *a, *b;
    int64_t count;

    Pairs(const at::Tensor &boxes, const at::Tensor &truth)
        : first(boxes.to(at::kFloat).contiguous()),
          second(truth.to(at::kFloat).contiguous()),
          a(first.const_data_ptr<float>()),
          b(second.const_data_ptr<float>()),
          count(boxes.size(1)) {}
};

void forward(Kind kind, LegacyArguments &call) {
    const Options chosen = options(call.attributes);
    const Pairs pairs(call.in[0], call.in[1]);
    at::Tensor values = at::empty({pairs.count}, at::kFloat), turns = at::zeros({pairs.count}, at::kFloat);
    const auto box = [&](const float *from, int64_t i) {
        return corners(Box<float>{from[i], from[pairs.count + i], from[2 * pairs.count + i], from[3 * pairs.count + i]},
                       chosen.sizes);
    };
    for (int64_t i = 0; i < pairs.count; ++i)
        values.mutable_data_ptr<float>()[i] =
            overlap(kind, box(pairs.a, i), box(pairs.b, i), chosen.by_truth, turns.mutable_data_ptr<float>()[i]);
    put(call.out[0], values);
    if (call.out.size() > 1) put(call.out[1], turns);
}

void backward(Kind kind, LegacyArguments &call) {
    const Options chosen = options(call.attributes);
    const Pairs pairs(call.in[1], call.in[2]);
    const at::Tensor given = call.in[0].to(at::kFloat).contiguous();
    at::Tensor to_a = at::empty({4, pairs.count}, at::kFloat), to_b = at::empty({4, pairs.count}, at::kFloat);
    for (int64_t i = 0; i < pairs.count; ++i) {
        const auto box = [&](const float *from, size_t first) {
            Box<Sloped> made;
            for (size_t c = 0; c < 4; ++c) made[c] = {from[static_cast<int64_t>(c) * pairs.count + i], first + c};
            return corners(made, chosen.sizes);
        };
        Sloped turn;
        const Sloped made = overlap(kind, box(pairs.a, 0), box(pairs.b, 4), chosen.by_truth, turn);
        const float slope = given.const_data_ptr<float>()[i];
        for (int64_t c = 0; c < 4; ++c) {
            to_a.mutable_data_ptr<float>()[c * pairs.count + i] = slope * made.slopes[static_cast<size_t>(c)];
            to_b.mutable_data_ptr<float>()[c * pairs.count + i] = slope * made.slopes[static_cast<size_t>(c) + 4];
        }
    }
    call.out[0].copy_(to_a);
    call.out[1].copy_(to_b);
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(GIoU, check_forward(arguments), forward(Kind::Generalized, arguments))
LEGACY(DIoU, check_forward(arguments), forward(Kind::Distance, arguments))
// out: the overlap and the difference of the angles, which the gradient takes and computes again.
LEGACY(CIoU, check_forward(arguments), forward(Kind::Complete, arguments))
LEGACY(GIoUGrad, check_backward(arguments), backward(Kind::Generalized, arguments))
LEGACY(DIoUGrad, check_backward(arguments), backward(Kind::Distance, arguments))
LEGACY(CIoUGrad, check_backward(arguments), backward(Kind::Complete, arguments))
