// Where attention without gradients finds its keys and values: in one tensor, in one for each batch, or in the blocks
// of a paged cache, in float, int8 or int4.
#pragma once

#include "opapi/attention/attention.h"

namespace vnpu::opapi::attention {

// How numbers of 8 or 4 bits stand for others: (number + offset) * scale.
// (ops-transformer: aclnnFusedInferAttentionScoreV4.md, keyAntiquantMode)
enum AntiquantMode {
    kByChannel = 0,           // or one for all
    kByToken = 1,             // [batch, length], perhaps with ones before it
    kByHead = 2,              // [heads]
    kByTokenAndHead = 3,      // [batch, heads, length], perhaps with ones before it
    kPagedByToken = 4,        // [blocks, block]
    kPagedByTokenAndHead = 5  // [blocks, heads, block]
};
struct Antiquant {
    at::Tensor scale{}, offset{};
    int64_t mode = kByChannel;
};

// Keys or values of all batches.
struct Cache {
    at::ArrayRef<Operand> tensors;
    std::string layout;  // of what is not paged
    int64_t heads;
    at::Tensor table{};  // int32 [batch, blocks]: paged
    Antiquant antiquant{};
    at::Tensor prefix{};  // before every batch's own, [1, ...] in the layout
    int64_t prefix_length = 0;

    bool paged() const { return table.defined(); }
    // Tokens that lie in a paged block, and the width of one head.
    int64_t block() const;
    int64_t width() const;
    // How many a batch can have: of its tensor's length, or in the blocks that its row of the table names.
    int64_t longest(int64_t batch) const;
    // Batch b's `length` from `start` on, as [heads, prefix + length, width], as `dtype` where they were not before.
    at::Tensor rows(int64_t batch, int64_t start, int64_t length, at::ScalarType dtype) const;

  private:
    at::Tensor own(int64_t batch) const;
    at::Tensor blocks_of(const at::Tensor &cache, int64_t batch, int64_t length) const;
    at::Tensor factors(const at::Tensor &factor, int64_t batch, int64_t start, int64_t length) const;
    at::Tensor restored(const at::Tensor &stored, int64_t batch, int64_t start, int64_t length,
                        at::ScalarType dtype) const;
};

}  // namespace vnpu::opapi::attention
