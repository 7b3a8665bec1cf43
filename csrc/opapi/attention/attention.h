// Scaled dot-product attention as CANN's FlashAttentionScore family defines it: layouts, sparse modes, dropout bits.
// https://gitcode.com/cann/ops-transformer, attention/flash_attention_score and docs/context/sparse_mode.
//
// Forward and gradient share what is here: the arguments brought into one form (heads first), and which scores count.
#pragma once

#include <string>
#include <vector>

#include "opapi/aclnn/check.h"

namespace vnpu::opapi::attention {

// What a call asks for, besides tensors.
struct Settings {
    double scale;
    double keep;  // the share of probabilities that dropout keeps
    int64_t pre_tokens, next_tokens;
    int64_t heads;  // of the query
    std::string layout;
    int64_t inner_precise;
    int64_t sparse_mode;
    Ints prefix;
    Ints query_ends = nullptr, key_ends = nullptr;  // TND: running totals of the sequences' lengths
    bool softmax_like_input = false;                // TND: the row statistics are [T, N, 8], else [N, T, 8]
    int64_t pse_type = 1;                           // 0: scale * q k + pse; 1: scale * (q k + pse)
    bool half_scores = false;                       // q k is rounded to fp16, and again when scaled

    bool packed() const { return layout == "TND"; }
    double pse_factor() const { return pse_type == 0 ? 1.0 : scale; }
};

enum SparseMode {
    kDefaultMask = 0,        // the mask, within the band [-pre_tokens, next_tokens] around the diagonal
    kAllMask = 1,            // the mask
    kLeftUpCausal = 2,       // a compressed triangle, from the upper left corner
    kRightDownCausal = 3,    // ... from the lower right corner
    kBand = 4,               // two triangles, from the lower right corner
    kPrefix = 5,             // the mask (which holds the prefix)
    kPrefixCompressed = 6,   // right-down causal, but every query sees the first prefix[batch] keys
    kRightDownThenBand = 7,  // TND: the last sequence is a band, the others right-down causal
    kBandThenLeftUp = 8,     // TND: the first sequence is a band, the others left-up causal
};

// "Heads first" views, [batch, heads, length, width], of a tensor in one of CANN's layouts: BNSD, BSND, BSH, SBH, TND,
// and of inference NTD, NSD and NBSD.
at::Tensor heads_first(const at::Tensor &tensor, const std::string &layout, int64_t heads);
// How many heads a key in this layout has; the query decides a head's width.
int64_t key_heads(const at::Tensor &query, const at::Tensor &key, const Settings &settings);

// How long one sequence is.
struct Lengths {
    int64_t queries, keys;
};
// Refuses the bands and prefixes beside a mask that the kernels have no plan for. `all` are the sequences of a packed
// batch, or the one length of the `batch` sequences of any other.
void check_band(const Settings &settings, const std::vector<Lengths> &all, int64_t batch);

// What a block of queries needs to know of its keys.
struct Window {
    int64_t begin, end;              // all others are left out by every query
    int64_t mixed_begin, mixed_end;  // of these in turn, what some queries leave out; the rest counts for all

    int64_t keys() const { return end - begin; }
};

// Which scores of one batch of equally long sequences are left out.
class Mask {
  public:
    // `sequence` is the position of the (only) sequence in a packed batch, 0 otherwise.
    Mask(const at::Tensor &mask, const Settings &settings, int64_t queries, int64_t keys, int64_t sequence);

    // Whether any score may be left out, and whether that differs between batches.
    bool leaves_out() const { return full_.defined() || !diagonals_.empty(); }
    bool by_batch() const { return !prefix_.empty() || (full_.defined() && full_.size(0) > 1); }
    // Of the rows [first, last) of the queries, for all heads. Holds at least one key.
    Window window(int64_t batch, int64_t first, int64_t last) const;
    // Sets the left-out scores of one query, `scores` being those of the window's keys, to the lowest float.
    void leave_out(int64_t batch, int64_t head, int64_t query, const Window &window, float *scores) const;
    // Queries that see no key give zeros. Otherwise they weigh all keys alike, as the hardware does.
    bool zeroes_blind_queries() const { return zeroes_blind_queries_; }

  private:
    bool triangle(int64_t right_of_diagonal) const;
    bool outside(int64_t right_of_diagonal) const;
    int64_t prefix(int64_t batch) const { return prefix_.empty() ? 0 : prefix_[static_cast<size_t>(batch)]; }
    at::Tensor given(int64_t batch, int64_t first, int64_t last) const;

    int64_t mode_, queries_, keys_, pre_, next_;
    int64_t shift_ = 0;      // of the diagonal, to the right
    at::Tensor full_;        // bool [batch or 1, heads or 1, queries, keys], its rows contiguous, or undefined
    at::Tensor compressed_;  // the 2048 x 2048 triangle, or undefined
    std::vector<int64_t> prefix_;
    std::vector<char> diagonals_;  // left out or not, by position right of the diagonal + queries_; empty: all count
    std::vector<int64_t> left_out_before_;  // how many diagonals are left out before each
    bool zeroes_blind_queries_;
};

// Dropout's decisions, one bit for each of [batch, heads, queries, keys], least significant first.
struct Dropout {
    at::Tensor bits;  // uint8, or undefined
    int64_t start = 0;
    // Multiplies what is kept by `factor` and makes the rest 0. `row` counts all rows of scores, each of `keys`;
    // `values` are those of the window's keys.
    void apply(int64_t row, int64_t keys, const Window &window, float factor, float *values) const;
};

// One batch of equally long sequences: views, heads first. Undefined where a call has none.
struct Sequences {
    at::Tensor query{}, key{}, value{}, pse{}, out{}, maximum{}, sum{};
    at::Tensor grad{}, query_grad{}, key_grad{}, value_grad{}, pse_grad{};
    at::Tensor sink{};  // float32 [heads]: a score of each row beside those of its keys, which has no value
    Mask mask;
    Dropout dropout;

    int64_t batch() const { return query.size(0); }
    int64_t heads() const { return query.size(1); }
    int64_t queries() const { return query.size(2); }
    int64_t keys() const { return key.size(2); }
};

// The operands of a call, as they come.
struct Arguments {
    const Operand &query, &key, &value, &pse, &drop_mask, &padding_mask, &mask;
    const Operand &maximum, &sum, &out;
    // Null: the operator has no such parameter.
    Operand *query_rope = nullptr, *key_rope = nullptr;  // widths of query and key that lie elsewhere
    Operand *sink = nullptr;
};

inline bool given(const Operand *operand) { return operand != nullptr && operand->defined() && operand->numel() > 0; }

void check_attention(const Arguments &arguments, Settings settings);
// A copy of `settings` with the layout in capitals.
Settings normalized(Settings settings);
// The batches of equally long sequences in a call: one, or one for each sequence of a packed batch.
std::vector<Sequences> sequences(const Arguments &arguments, const Settings &settings);

// A part of the work that fits the cache: some queries of a head, and the keys that these see.
struct Block {
    int64_t first, last;
    Window window;
    int64_t rows() const { return last - first; }
};
// The blocks of a head's queries, ascending; those of each batch where batches differ, else of all.
std::vector<std::vector<Block>> blocks(const Sequences &sequences);

// Computes out, maximum and sum of one batch of sequences. A row without a single key has the lowest float as maximum.
void forward(const Sequences &sequences, const Settings &settings);

}  // namespace vnpu::opapi::attention
