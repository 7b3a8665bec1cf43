// Regions of images brought to one size. crop_and_resize takes its regions as shares of an image in NHWC; MindSpore has
// kernels of its own for it (crop_and_resize*.cc), which are TensorFlow's, and computes where a pixel comes from in
// fp32, as is done here: at an edge the last bit decides what lies outside.
#include <cmath>

#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

enum class Method : uint8_t { Bilinear, BilinearV2, Nearest };

Method method(const aclopAttr &attributes, bool of_crops) {
    const auto name = attribute<std::string>(attributes, "method", "bilinear");
    if (name == "bilinear") return Method::Bilinear;
    if (name == "nearest") return Method::Nearest;
    if (name == "bilinear_v2" && of_crops) return Method::BilinearV2;
    fail(FaultKind::InvalidArgument, "attribute method is \"{}\", which is none that the operator takes", name);
}

// The crops are [K, height, width, C], boxes [K, 4] have y1, x1, y2, x2.
void check_crops(const at::Tensor &of, const at::Tensor &boxes, const at::Tensor &pictures) {
    sizes(of, {-1, -1, -1, -1}, "the crops");
    if (of.numel() > 0 && (of.size(1) < 1 || of.size(2) < 1))
        fail(FaultKind::InvalidArgument, "the crops are {}, which have no pixels", describe(of));
    allowed(boxes, {at::kHalf, at::kFloat}, "boxes");
    sizes(boxes, {of.size(0), 4}, "boxes");
    allowed(pictures, at::kInt, "box_index");
    sizes(pictures, {of.size(0)}, "box_index");
}

// One axis of a crop: `low` and `high` in shares of `from` pixels become `count`.
struct Axis {
    float low, high;
    int64_t from, count;

    float ratio() const { return count > 1 ? static_cast<float>(from - 1) / static_cast<float>(count - 1) : 0; }
    float at(int64_t i) const {
        const auto last = static_cast<float>(from - 1);
        if (count == 1) return 0.5F * (low + high) * last;
        const float step = (high - low) * last / static_cast<float>(count - 1);
        return static_cast<float>(static_cast<double>(low * last) + static_cast<double>(static_cast<float>(i) * step));
    }
    bool outside(float place) const { return !(place >= 0 && place <= static_cast<float>(from - 1)); }
    // How far a place moves with the one end and with the other.
    std::pair<float, float> moves(int64_t i) const {
        const auto last = static_cast<float>(from - 1);
        if (count == 1) return {0.5F * last, 0.5F * last};
        return {last - static_cast<float>(i) * ratio(), static_cast<float>(i) * ratio()};
    }
};

// Two pixels of an axis and the second one's share.
struct Between {
    int64_t low, high;
    float share;
};

Between between(float place) {
    const float low = std::floor(place);
    return {static_cast<int64_t>(low), static_cast<int64_t>(std::ceil(place)), place - low};
}

// "bilinear_v2": whole pixels of the box, the last one among them, whose centres lie on those of the crop. A box to the
// end of the picture has a pixel behind it, and hardware reads there; here it is the picture's last.
Between between_centres(const Axis &axis, int64_t i) {
    const auto first = static_cast<int64_t>(axis.low * static_cast<float>(axis.from)),
               end = static_cast<int64_t>(axis.high * static_cast<float>(axis.from));
    const int64_t length = std::max<int64_t>(end - first + 1, 1);
    const float place =
        (static_cast<float>(i) + 0.5F) * (static_cast<float>(length) / static_cast<float>(axis.count)) - 0.5F;
    const auto inside = [&](float at) { return std::clamp<int64_t>(static_cast<int64_t>(at), 0, length - 1); };
    const int64_t low = inside(std::floor(place)), high = inside(std::ceil(place));
    const auto pixel = [&](int64_t at) { return std::clamp<int64_t>(first + at, 0, axis.from - 1); };
    return {pixel(low), pixel(high), place - static_cast<float>(low)};
}

// visit(crop, row, column, picture, height, width): the last two are the crop's axes. One without a picture is left out
// where `lenient`.
template <class Visit>
void walk(const at::Tensor &boxes, const at::Tensor &pictures, at::IntArrayRef image, at::IntArrayRef of, bool lenient,
          Visit visit) {
    const at::Tensor all = boxes.to(at::kFloat).contiguous(), which = pictures.contiguous();
    const float *box = all.const_data_ptr<float>();
    const int32_t *picture = which.const_data_ptr<int32_t>();
    for (int64_t k = 0; k < of[0]; ++k, box += 4) {
        const bool there = picture[k] >= 0 && picture[k] < image[0];
        if (!there && lenient) continue;
        if (!there) fail(FaultKind::OutOfBounds, "box_index {} is none of {} pictures", picture[k], image[0]);
        const Axis height{box[0], box[2], image[1], of[1]}, width{box[1], box[3], image[2], of[2]};
        for (int64_t row = 0; row < of[1]; ++row)
            for (int64_t column = 0; column < of[2]; ++column) visit(k, row, column, picture[k], height, width);
    }
}

int64_t offset(at::IntArrayRef shape, int64_t n, int64_t row, int64_t column) {
    return ((n * shape[1] + row) * shape[2] + column) * shape[3];
}

void crop(LegacyArguments &call) {
    const Method how = method(call.attributes, true);
    const at::Tensor image = call.in[0].to(at::kFloat).contiguous();
    at::Tensor made = at::full(call.out[0].sizes(), attribute<float>(call.attributes, "extrapolation_value", 0),
                               at::TensorOptions(at::kFloat));
    const float *from = image.const_data_ptr<float>();
    float *to = made.mutable_data_ptr<float>();
    const int64_t channels = image.size(3);
    walk(call.in[1], call.in[2], image.sizes(), made.sizes(), false,
         [&](int64_t k, int64_t row, int64_t column, int64_t picture, const Axis &height, const Axis &width) {
             const float y = height.at(row), x = width.at(column);
             if (how != Method::BilinearV2 && (height.outside(y) || width.outside(x))) return;
             Between down{}, along{};
             if (how == Method::Bilinear) {
                 down = between(y);
                 along = between(x);
             } else if (how == Method::BilinearV2) {
                 down = between_centres(height, row);
                 along = between_centres(width, column);
             } else {
                 down.low = down.high = static_cast<int64_t>(std::round(y));
                 along.low = along.high = static_cast<int64_t>(std::round(x));
             }
             const auto pixel = [&](int64_t at, int64_t across) {
                 return from + offset(image.sizes(), picture, at, across);
             };
             const float *corner[4] = {pixel(down.low, along.low), pixel(down.low, along.high),
                                       pixel(down.high, along.low), pixel(down.high, along.high)};
             float *here = to + offset(made.sizes(), k, row, column);
             if (how == Method::Nearest) {
                 std::copy_n(corner[0], channels, here);
                 return;
             }
             for (int64_t c = 0; c < channels; ++c)
                 here[c] = corner[0][c] * (1 - down.share) * (1 - along.share) +
                           corner[1][c] * (1 - down.share) * along.share +
                           corner[2][c] * down.share * (1 - along.share) + corner[3][c] * down.share * along.share;
         });
    call.out[0].copy_(made);
}

// in: the gradient, boxes, box_index, the sizes of the images.
void slope_of_images(LegacyArguments &call) {
    const Method how = method(call.attributes, false);
    const at::Tensor given = call.in[0].to(at::kFloat).contiguous();
    at::Tensor made = at::zeros(call.out[0].sizes(), at::kDouble);
    const float *from = given.const_data_ptr<float>();
    double *to = made.mutable_data_ptr<double>();
    const int64_t channels = given.size(3);
    walk(call.in[1], call.in[2], made.sizes(), given.sizes(), true,
         [&](int64_t k, int64_t row, int64_t column, int64_t picture, const Axis &height, const Axis &width) {
             const float y = height.at(row), x = width.at(column);
             if (height.outside(y) || width.outside(x)) return;
             Between down = between(y), along = between(x);
             if (how == Method::Nearest) {
                 down = {static_cast<int64_t>(std::round(y)), 0, 0};
                 along = {static_cast<int64_t>(std::round(x)), 0, 0};
             }
             const float *here = from + offset(given.sizes(), k, row, column);
             for (int i = 0; i < 4; ++i) {
                 const float share =
                     ((i & 2) != 0 ? down.share : 1 - down.share) * ((i & 1) != 0 ? along.share : 1 - along.share);
                 if (share == 0) continue;
                 double *pixel = to + offset(made.sizes(), picture, (i & 2) != 0 ? down.high : down.low,
                                             (i & 1) != 0 ? along.high : along.low);
                 for (int64_t c = 0; c < channels; ++c) pixel[c] += static_cast<double>(share) * here[c];
             }
         });
    call.out[0].copy_(made);
}

// in: the gradient, the images, boxes, box_index.
void slope_of_boxes(LegacyArguments &call) {
    const at::Tensor given = call.in[0].to(at::kFloat).contiguous(), image = call.in[1].to(at::kFloat).contiguous();
    at::Tensor made = at::zeros(call.out[0].sizes(), at::kDouble);
    const float *from = given.const_data_ptr<float>(), *pixels = image.const_data_ptr<float>();
    double *to = made.mutable_data_ptr<double>();
    const int64_t channels = given.size(3);
    walk(call.in[2], call.in[3], image.sizes(), given.sizes(), true,
         [&](int64_t k, int64_t row, int64_t column, int64_t picture, const Axis &height, const Axis &width) {
             const float y = height.at(row), x = width.at(column);
             if (height.outside(y) || width.outside(x)) return;
             const Between down = between(y), along = between(x);
             const auto pixel = [&](int64_t at, int64_t across) {
                 return pixels + offset(image.sizes(), picture, at, across);
             };
             const float *corner[4] = {pixel(down.low, along.low), pixel(down.low, along.high),
                                       pixel(down.high, along.low), pixel(down.high, along.high)};
             const float *here = from + offset(given.sizes(), k, row, column);
             double by_y = 0, by_x = 0;
             for (int64_t c = 0; c < channels; ++c) {
                 by_y += here[c] * static_cast<double>((1 - along.share) * (corner[2][c] - corner[0][c]) +
                                                       along.share * (corner[3][c] - corner[1][c]));
                 by_x += here[c] * static_cast<double>((1 - down.share) * (corner[1][c] - corner[0][c]) +
                                                       down.share * (corner[3][c] - corner[2][c]));
             }
             const auto [top, bottom] = height.moves(row);
             const auto [left, right] = width.moves(column);
             const double shares[4] = {by_y * top, by_x * left, by_y * bottom, by_x * right};
             for (int i = 0; i < 4; ++i) to[4 * k + i] += shares[i];
         });
    call.out[0].copy_(made);
}

void check_crop(LegacyArguments &call) {
    sizes(call.in[0], {-1, -1, -1, -1}, "the images");
    check_crops(call.out[0], call.in[1], call.in[2]);
    const std::vector<int64_t> size = ints(call.in[3]);
    if (size.size() != 2) fail(FaultKind::InvalidArgument, "crop_size has {} values, expected 2", size.size());
    sizes(call.out[0], {-1, size[0], size[1], call.in[0].size(3)}, "the output");
    method(call.attributes, true);
}

void check_slope_of_images(LegacyArguments &call) {
    allowed(call.in[0], at::kFloat, "the gradient");
    check_crops(call.in[0], call.in[1], call.in[2]);
    const std::vector<int64_t> size = ints(call.in[3]);
    if (size.size() != 4 || size[3] != call.in[0].size(3))
        fail(FaultKind::InvalidArgument, "image_size has {} values or other channels than the gradient", size.size());
    sizes(call.out[0], size, "the output");
    method(call.attributes, false);
}

void check_slope_of_boxes(LegacyArguments &call) {
    allowed(call.in[0], at::kFloat, "the gradient");
    check_crops(call.in[0], call.in[2], call.in[3]);
    sizes(call.in[1], {-1, -1, -1, call.in[0].size(3)}, "the images");
    alike(call.out[0], call.in[2], "the output");
    if (method(call.attributes, false) != Method::Bilinear)
        fail(FaultKind::InvalidArgument, "attribute method is not bilinear");
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(CustCropAndResize, check_crop(arguments), crop(arguments))
LEGACY(CustCropAndResizeGradImage, check_slope_of_images(arguments), slope_of_images(arguments))
LEGACY(CustCropAndResizeGradBoxes, check_slope_of_boxes(arguments), slope_of_boxes(arguments))
