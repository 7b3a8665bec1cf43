#include "opapi/aclnn/format.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "device/fault.h"
#include "opapi/aclnn/op.h"

namespace vnpu::opapi {
namespace {

// The order of storage in letters of the base order. A small letter counts blocks of its dimension, the large one the
// places in a block, or the whole dimension where no small one stands. The blocks of the last letter are Layout::block
// long, others kFractal.
struct Format {
    aclFormat format;
    const char *name;
    std::string_view base, stored;
};
constexpr Format kFormats[] = {
    {ACL_FORMAT_NC1HWC0, "NC1HWC0", "NCHW", "NcHWC"},
    {ACL_FORMAT_FRACTAL_Z, "FRACTAL_Z", "NCHW", "cHWnNC"},
    {ACL_FORMAT_NDC1HWC0, "NDC1HWC0", "NCDHW", "NDcHWC"},
    {ACL_FRACTAL_Z_3D, "FRACTAL_Z_3D", "NCDHW", "DcHWnNC"},
    {ACL_FORMAT_FRACTAL_NZ, "FRACTAL_NZ", "MN", "nmMN"},
    {ACL_FORMAT_FRACTAL_NZ_C0_16, "FRACTAL_NZ_C0_16", "MN", "nmMN"},
    {ACL_FORMAT_FRACTAL_NZ_C0_32, "FRACTAL_NZ_C0_32", "MN", "nmMN"},
    {ACL_FORMAT_FRACTAL_NZ_C0_2, "FRACTAL_NZ_C0_2", "MN", "nmMN"},
    {ACL_FORMAT_FRACTAL_NZ_C0_4, "FRACTAL_NZ_C0_4", "MN", "nmMN"},
    {ACL_FORMAT_FRACTAL_NZ_C0_8, "FRACTAL_NZ_C0_8", "MN", "nmMN"},
};
constexpr int64_t kFractal = 16;

const Format &format_of(Layout layout) {
    return *std::ranges::find(kFormats, static_cast<aclFormat>(layout.format), &Format::format);
}

bool nz(const Format &format) { return format.base == "MN"; }

int64_t blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

// One dimension of the base order: so many blocks, so many elements in each. Unblocked ones are one block.
struct Dimension {
    int64_t size, count, block;
    bool blocked;
};

struct Geometry {
    const Format &format;
    std::vector<int64_t> batch;         // what comes before the matrices of FRACTAL_NZ
    std::vector<Dimension> dimensions;  // by letter of the base order
    const Dimension &of(char letter) const {
        return dimensions[format.base.find(static_cast<char>(std::toupper(letter)))];
    }
    std::vector<int64_t> stored() const {
        std::vector<int64_t> sizes(batch);
        for (const char letter : format.stored)
            sizes.push_back(std::islower(letter) != 0 ? of(letter).count : of(letter).block);
        return sizes;
    }
};

Geometry geometry(Layout layout, at::IntArrayRef sizes) {
    const Format &format = format_of(layout);
    Geometry made{format, {}, {}};
    std::vector<int64_t> base(sizes.begin(), sizes.end());
    const size_t rank = format.base.size();
    if (nz(format) && base.size() > rank) {
        made.batch.assign(base.begin(), base.end() - 2);
        base.erase(base.begin(), base.end() - 2);
    } else if (rank == 4 && base.size() < rank) {  // C, CH and CHW, as torch_npu reads them
        if (base.empty()) base.push_back(1);
        base.insert(base.begin(), 1);
        base.resize(rank, 1);
    }
    if (base.size() != rank)
        fail(FaultKind::InvalidArgument, "a tensor with {} dimensions cannot be in format {}", sizes.size(),
             format.name);
    for (size_t i = 0; i < rank; ++i) {
        const char letter = format.base[i];
        const bool blocked = format.stored.find(static_cast<char>(std::tolower(letter))) != std::string_view::npos;
        const int64_t block = !blocked ? base[i] : letter == format.stored.back() ? layout.block : kFractal;
        made.dimensions.push_back({base[i], blocked ? blocks(base[i], block) : 1, block, blocked});
    }
    return made;
}

// The stored elements in base order, each blocked dimension as two: [..., blocks, places in a block, ...].
at::Tensor tiles(const at::Tensor &storage, const Geometry &shape) {
    const auto batch = static_cast<int64_t>(shape.batch.size());
    std::vector<int64_t> order;
    for (int64_t i = 0; i < batch; ++i) order.push_back(i);
    for (const char letter : shape.format.base)
        for (const char wanted : {static_cast<char>(std::tolower(letter)), letter})
            if (const size_t at = shape.format.stored.find(wanted); at != std::string_view::npos)
                order.push_back(batch + static_cast<int64_t>(at));
    return storage.view(shape.stored()).permute(order);
}

}  // namespace

Layout layout_of(aclFormat format, at::IntArrayRef storage) {
    switch (static_cast<int>(format)) {
        case ACL_FORMAT_UNDEFINED:
        case ACL_FORMAT_ND:
        case ACL_FORMAT_NCHW:
        case ACL_FORMAT_NHWC:
        case ACL_FORMAT_NCDHW:
        case ACL_FORMAT_NDHWC:
        case ACL_FORMAT_HWCN:
        case ACL_FORMAT_NC:
        case ACL_FORMAT_NCL:
            return {};
        default:
            break;
    }
    const bool known = std::ranges::find(kFormats, format, &Format::format) != std::end(kFormats);
    if (!known || storage.empty() || storage.back() < 1 || storage.back() > 64)
        fail(FaultKind::Unsupported, "The virtual NPU does not have the private format {} with storage [{}].",
             static_cast<int>(format), fmt::join(storage.begin(), storage.end(), ", "));
    return {static_cast<uint8_t>(format), static_cast<uint8_t>(storage.back())};
}

std::string name_of(Layout layout) { return layout ? format_of(layout).name : "ND"; }

std::vector<int64_t> storage_shape(Layout layout, at::IntArrayRef sizes) {
    const Geometry shape = geometry(layout, sizes);
    std::vector<int64_t> stored = shape.stored();
    // CANN describes FRACTAL_Z with four dimensions: what comes before the fractals is one.
    if (const size_t fractals = stored.size() - 3; !nz(shape.format) && shape.format.stored.ends_with("nNC")) {
        for (size_t i = 1; i < fractals; ++i) stored[0] *= stored[i];
        stored.erase(stored.begin() + 1, stored.begin() + static_cast<int64_t>(fractals));
    }
    return stored;
}

at::Tensor unpacked(const at::Tensor &storage, Layout layout, at::IntArrayRef sizes) {
    const Geometry shape = geometry(layout, sizes);
    std::vector<int64_t> padded(shape.batch);
    for (const Dimension &dimension : shape.dimensions) padded.push_back(dimension.count * dimension.block);
    at::Tensor tensor = tiles(storage, shape).reshape(padded);
    auto at = static_cast<int64_t>(shape.batch.size());
    for (const Dimension &dimension : shape.dimensions) tensor = tensor.narrow(at++, 0, dimension.size);
    return tensor.reshape(sizes);
}

void pack(const at::Tensor &storage, Layout layout, const at::Tensor &tensor) {
    const Geometry shape = geometry(layout, tensor.sizes());
    std::vector<int64_t> base(shape.batch), split(shape.batch);
    std::vector<int64_t> padding;
    bool padded = false;
    for (const Dimension &dimension : shape.dimensions) {
        base.push_back(dimension.size);
        if (dimension.blocked) split.push_back(dimension.count);
        split.push_back(dimension.block);
        const int64_t missing = dimension.count * dimension.block - dimension.size;
        padding.insert(padding.begin(), {0, missing});  // ATen counts from the last dimension
        padded = padded || missing > 0;
    }
    at::Tensor whole = tensor.reshape(base);
    if (padded) whole = at::constant_pad_nd(whole, padding);
    tiles(storage, shape).copy_(whole.reshape(split));
}

at::Tensor stored(const at::Tensor &tensor, Layout layout) {
    const int64_t length = c10::multiply_integers(storage_shape(layout, tensor.sizes())),
                  before = tensor.storage_offset();
    return tensor.as_strided({length}, {1}, before == 0 ? 0 : before * length / tensor.numel());
}

void fractal_nz(Operand &operand) {
    operand.allow_layout();
    if (!operand.defined() || !operand.layout()) return;
    if (!nz(format_of(operand.layout())))
        fail(FaultKind::InvalidArgument, "parameter {} has format {}, allowed are ND and FRACTAL_NZ",
             operand.parameter(), name_of(operand.layout()));
    const int64_t matrix = operand.dim() < 2 ? 0 : operand.size(-1) * operand.size(-2);
    const bool whole = operand.is_contiguous() || (matrix > 0 && operand.transpose(-1, -2).is_contiguous());
    if (matrix == 0 || !whole || operand.storage_offset() % matrix != 0)
        fail(FaultKind::InvalidArgument,
             "parameter {} is {}, a view of a tensor in format {} that is neither whole matrices nor their transpose",
             operand.parameter(), describe(operand), name_of(operand.layout()));
}

at::Tensor unpacked(const Operand &operand) {
    if (!operand.layout()) return operand;
    const bool transposed = !operand.is_contiguous();
    const at::Tensor rows = transposed ? operand.transpose(-1, -2) : at::Tensor(operand);
    const at::Tensor tensor = unpacked(stored(rows, operand.layout()), operand.layout(), rows.sizes());
    return transposed ? tensor.transpose(-1, -2) : tensor;
}

void fractal_nz(Operands &list) {
    for (Operand &operand : list) fractal_nz(operand);
}

Operands unpacked(const Operands &list) {
    Operands rows = list;
    for (size_t i = 0; i < list.size(); ++i) rows[i] = unpacked(list[i]);
    return rows;
}

}  // namespace vnpu::opapi
