// Rows of a table by index, and the gradient of the table.
#include <c10/util/accumulate.h>

#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"
#include "opapi/index/positions.h"

namespace vnpu::opapi {
namespace {

// [*indices, row size]
void check_rows(const Operand &rows, const Operand &indices, int64_t row) {
    at::DimVector sizes(indices.sizes().begin(), indices.sizes().end());
    sizes.push_back(row);
    shape(rows, sizes);
}

void check_rows_exist(const Operand &table) {
    if (table.size(0) == 0)
        fail(FaultKind::InvalidArgument, "parameter {} is {}: it has no rows to take", table.parameter(),
             describe(table));
}

// An index outside of the table is an error of the kernel: it surfaces when the program synchronises. A negative one is
// an error on hardware too (ops-nn: aclnnEmbedding.md).
void embedding(at::Tensor &out, const at::Tensor &weight, const at::Tensor &indices) {
    constexpr int64_t kNegative = std::numeric_limits<int32_t>::min();
    reading(indices.reshape({-1}), kNegative, weight.size(0), [&](const at::Tensor &flat) {
        if (!out.is_contiguous()) return void(out.copy_(at::index_select(weight, 0, flat).view(out.sizes())));
        at::Tensor rows = out.view({flat.numel(), weight.size(1)});
        at::index_select_out(rows, weight, 0, flat);
    });
}

void check_gradient(const Operand &grad, const Operand &indices, int64_t rows, const Operand &out) {
    network(grad);
    if (rows < 0) fail(FaultKind::InvalidArgument, "parameter numWeights is {}, allowed is >= 0", rows);
    if (grad.dim() == 0) rank(grad, {1, 2, 3, 4, 5, 6, 7, 8});
    const int64_t row = grad.size(-1);
    if (indices.numel() * row != grad.numel())
        fail(FaultKind::InvalidArgument, "parameter grad is {}, which has not one row for each of the indices {}",
             describe(grad), describe(indices));
    shape(out, {rows, row});
}

// --- bags: rows added up (mode 0), averaged (1) or their maxima (2) between one offset and the next.

void check_bag(const Operand &weight, const Operand &indices, const Operand &offsets, int64_t mode,
               const Operand &weights, bool last_offset, const Operand &output) {
    rank(weight, {2});
    network(weight, output);
    rank(indices, {1});
    rank(offsets, {1});
    dtype(indices, kInts);
    dtype(offsets, kInts);
    // (ops-nn: aclnn_embedding_bag.cpp, CheckDtypeValid and CheckShape)
    constexpr DTypes kWide{at::kInt, at::kLong};
    on_chip(kWide.has(indices.scalar_type()) || kWide.has(offsets.scalar_type()),
            "indices or offsets must has one dtype in [int32, int64]: they are {} and {}", describe(indices),
            describe(offsets));
    if (weights.defined() && (mode != 0 || weights.numel() != indices.numel()))
        fail(FaultKind::InvalidArgument,
             "per_sample_weights only supported with mode='sum', one for each index: parameter {} is {}, mode is {}, "
             "the indices are {}",
             weights.parameter(), describe(weights), mode, describe(indices));
    if (mode < 0 || mode > 2)
        fail(FaultKind::InvalidArgument, "parameter mode is {}, allowed are 0 (sum), 1 (mean) and 2 (max)", mode);
    shape(output, {offsets.size(0) - (last_offset ? 1 : 0), weight.size(1)});
}

// torch_npu allocates some of the side outputs in sizes that hold nothing in this mode.
void give_if_it_fits(at::Tensor &out, const at::Tensor &value) {
    if (out.sizes() == value.sizes())
        out.copy_(value);
    else
        out.zero_();
}

std::pair<int64_t, int64_t> extremes(const at::Tensor &index) {
    const auto [least, greatest] = at::aminmax(index);
    return {least.item<int64_t>(), greatest.item<int64_t>()};
}

void embedding_bag(at::Tensor &output, at::Tensor &offset2bag, at::Tensor &bag_size, at::Tensor &max_indices,
                   const at::Tensor &weight, const at::Tensor &indices, const at::Tensor &offsets, bool by_frequency,
                   int64_t mode, bool sparse, const at::Tensor &sample_weights, bool last_offset, int64_t padding) {
    const at::Tensor begin = offsets.to(at::kLong);
    at::Tensor index = indices.to(at::kLong);
    const int64_t rows = weight.size(0);
    const auto [first, last] = index.numel() == 0 ? std::pair(int64_t{0}, int64_t{-1}) : extremes(index);
    const auto outside = [&](int64_t wrong, const std::string &instead) {
        return std::runtime_error(fmt::format(
            "index {} is out of bounds for dimension 0 of the table, which has {} rows{}", wrong, rows, instead));
    };
    if (first < 0) throw outside(first, "");
    if (last >= rows && !bugs_hidden())
        throw outside(last, hidden_on_hardware(rows == 0 ? "the bags stay as they are" : kAnyMemory));
    if (begin.numel() != 0 && (begin.diff().lt(0).any().item<bool>() || begin[0].item<int64_t>() < 0 ||
                               begin[-1].item<int64_t>() > index.numel()))
        throw std::runtime_error(
            fmt::format("parameter offsets has values outside of rising ones from 0 to the {} indices", index.numel()));
    // CANN starts no kernel for an empty table (ops-nn: aclnn_embedding_bag.cpp).
    if (weight.numel() == 0 && index.numel() != 0) return;
    if (last >= rows) index = index.clamp_max(rows - 1);
    const auto [bags, unused, sizes, maxima] = at::_embedding_bag(
        widened(weight), index, begin, by_frequency, mode, sparse, widened(sample_weights), last_offset, padding);
    output.copy_(bags);
    give_if_it_fits(bag_size, sizes);
    give_if_it_fits(max_indices, maxima);
    const at::Tensor position = at::arange(index.numel(), index.options());
    give_if_it_fits(offset2bag, at::searchsorted(begin, position, false, true).sub_(1));
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnEmbedding, rank(weight, {2}); dtype(indices, {at::kLong, at::kInt}); same_dtype(out, weight);
   check_rows(out, indices, weight.size(1));
   if (indices.numel() > 0) check_rows_exist(weight), embedding(out, weight, indices))
OP(aclnnEmbeddingDenseBackward, check_gradient(grad, indices, numWeights, out),
   give(out,
        at::embedding_dense_backward(widened(grad), indices.to(at::kLong), numWeights, paddingIdx, scaleGradByFreq)))
OP(aclnnEmbeddingRenorm, rank(selfRef, {2}); network(selfRef);
   dtype(indices, {at::kLong, at::kInt}), at::embedding_renorm_(selfRef, indices.to(at::kLong), maxNorm, normType))
OP(aclnnEmbeddingBag, optional(perSampleWeights);
   check_bag(weight, indices, offsets, mode, perSampleWeights, includeLastOffset, output),
   embedding_bag(output, offset2bag, bagSize, maxIndices, weight, indices, offsets, scaleGradByFreq, mode, sparse,
                 perSampleWeights, includeLastOffset, paddingIdx))
