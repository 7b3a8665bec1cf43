// Tokens of several sequences, as operators on chosen keys take them: a dimension of batches (BSND), one sequence
// behind another (TND), or in the blocks of a paged cache (PA_BSND). How long the sequences are stands in device
// memory.
#pragma once

#include <string>
#include <vector>

#include "opapi/aclnn/check.h"

namespace vnpu::opapi::attention {

class TokenSets {
  public:
    // `lengths`: int32 [batch], running totals with TND; undefined: all that there is. `table`: of PA_BSND.
    TokenSets(const at::Tensor &lengths, std::string layout, const at::Tensor &table = {})
        : layout_(std::move(layout)), table_(table) {
        if (!lengths.defined()) return;
        const at::Tensor all = lengths.to(at::kLong).contiguous();
        lengths_.assign(all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + all.numel());
    }

    int64_t batches(const at::Tensor &tensor) const {
        return layout_ == "BSND" ? tensor.size(0) : static_cast<int64_t>(lengths_.size());
    }
    // Those of one sequence, [tokens, ...]: a view, or a copy of what is paged.
    at::Tensor of(const at::Tensor &tensor, int64_t batch) const {
        const auto b = static_cast<size_t>(batch);
        if (layout_ == "BSND") {
            const at::Tensor own = tensor.select(0, batch);
            return lengths_.empty() ? own : own.narrow(0, 0, lengths_[b]);
        }
        if (layout_ == "TND") {
            const int64_t start = b == 0 ? 0 : lengths_[b - 1];
            return tensor.narrow(0, start, lengths_[b] - start);
        }
        const int64_t size = tensor.size(1), length = lengths_[b];
        const at::Tensor blocks = table_.select(0, batch).narrow(0, 0, (length + size - 1) / size).to(at::kLong);
        return tensor.index_select(0, blocks).flatten(0, 1).narrow(0, 0, length);
    }

  private:
    std::string layout_;
    at::Tensor table_;
    std::vector<int64_t> lengths_;
};

// Which tokens a query sees.
enum Causal { kAll = 0, kRightDown = 3, kInBand = 4 };
void check_mode(int64_t mode, std::initializer_list<int64_t> allowed);

struct Sight {
    int64_t block;  // tokens that one index names
    int64_t mode, pre_tokens, next_tokens;
    // Of those that a row of indices names, for the query at place `own` among the keys.
    at::Tensor tokens(const at::Tensor &indices, int64_t own, int64_t keys) const;
};

// Of the two sets that an operator has: what the first phase can know of them.
void check_sets(const Operand &query, const Operand &query_lengths, const std::string &query_layout, const Operand &key,
                const Operand &key_lengths, const std::string &key_layout, const Operand &table);

}  // namespace vnpu::opapi::attention
