// Scaled dot-product attention and its gradient. Scores are computed for some rows of a head at a time, so that they
// stay in the cache, and only for keys that one of the rows sees. They (up to 512 KiB for each thread, twice in the
// gradient) are what a call allocates, and fp32 copies of operands and results that are not fp32 with contiguous rows.
// Everything is computed in fp32 and rounded once, but for the scores of half_scores.
#include "opapi/attention/attention.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "device/fault.h"
#include "device/sum_order.h"
#include "opapi/aclnn/op.h"
#include "opapi/attention/max_workspace.h"
#include "opapi/reduce/row_softmax.h"
#include "opapi/reordered/order.h"

// Of the MKL inside libtorch_cpu.so; null in a torch without it. BLAS itself, since ATen's functions around it cost
// more than products of this size.
extern "C" {
__attribute__((weak)) int MKL_Set_Num_Threads_Local(int threads);
__attribute__((weak)) void sgemm_(const char *a_form, const char *b_form, const int *m, const int *n, const int *k,
                                  const float *alpha, const float *a, const int *a_step, const float *b,
                                  const int *b_step, const float *beta, float *c, const int *c_step);
}

namespace vnpu::opapi::attention {
namespace {

// While it lives, MKL computes this thread's products alone. Torch lets MKL start threads inside of parallel regions
// (mkl_set_dynamic(0)): larger products then wait for threads that OpenMP does not start.
class AloneInMkl {
  public:
    explicit AloneInMkl(bool alone)
        : before_(alone && MKL_Set_Num_Threads_Local != nullptr ? MKL_Set_Num_Threads_Local(1) : -1) {}
    ~AloneInMkl() {
        if (before_ >= 0) MKL_Set_Num_Threads_Local(before_);
    }
    AloneInMkl(const AloneInMkl &) = delete;
    AloneInMkl &operator=(const AloneInMkl &) = delete;

  private:
    int before_;
};

constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kLargest = std::numeric_limits<float>::max();

// --- rows of float32, and their products

// Whether BLAS can take the matrices of a tensor [batch, heads, rows, width] as they are.
bool has_rows(const at::Tensor &tensor) {
    return tensor.scalar_type() == at::kFloat && (tensor.size(3) == 1 || tensor.stride(3) == 1) &&
           (tensor.size(2) == 1 || tensor.stride(2) >= tensor.size(3));
}

at::Tensor with_rows(const at::Tensor &tensor) {
    return !tensor.defined() || has_rows(tensor) ? tensor : tensor.to(at::kFloat).contiguous();
}

// A matrix of float32 in memory.
struct Rows {
    float *data;
    int64_t stride;
    Rows from(int64_t row) const { return {data + row * stride, stride}; }
    float *operator[](int64_t row) const { return data + row * stride; }
};

// Of one batch and head; rows of 1 stand for all.
Rows rows(const at::Tensor &tensor, int64_t batch, int64_t head) {
    return {static_cast<float *>(tensor.unsafeGetTensorImpl()->mutable_data()) +
                (tensor.size(0) == 1 ? 0 : batch) * tensor.stride(0) + head * tensor.stride(1),
            tensor.size(2) == 1 ? 0 : tensor.stride(2)};
}

// c[m, n] = alpha a b + beta c, where a is [m, k], or [k, m] if transposed, and b [k, n], or [n, k] if transposed.
void multiply_at_once(Rows c, int64_t m, int64_t n, int64_t k, float alpha, Rows a, bool a_transposed, Rows b,
                      bool b_transposed, float beta) {
    if (sgemm_ != nullptr) {  // column by column, as Fortran has matrices: c^T = b^T a^T
        const auto step = [](Rows rows, int64_t width) {
            return static_cast<int>(std::max<int64_t>({rows.stride, width, 1}));
        };
        const int columns = static_cast<int>(n), lines = static_cast<int>(m), inner = static_cast<int>(k);
        const int of_b = step(b, b_transposed ? k : n), of_a = step(a, a_transposed ? m : k), of_c = step(c, n);
        sgemm_(b_transposed ? "T" : "N", a_transposed ? "T" : "N", &columns, &lines, &inner, &alpha, b.data, &of_b,
               a.data, &of_a, &beta, c.data, &of_c);
        return;
    }
    const auto matrix = [](Rows rows, int64_t height, int64_t width) {
        return at::from_blob(rows.data, {height, width}, {std::max(rows.stride, width), 1}, at::kFloat);
    };
    const at::Tensor left = a_transposed ? matrix(a, k, m).t() : matrix(a, m, k);
    const at::Tensor right = b_transposed ? matrix(b, n, k).t() : matrix(b, k, n);
    matrix(c, m, n).addmm_(left, right, beta, alpha);
}

// The same; where sums have another order (opapi/reordered), the second part of k, cut at a place of the seed's, first.
void multiply(Rows c, int64_t m, int64_t n, int64_t k, float alpha, Rows a, bool a_transposed, Rows b,
              bool b_transposed, float beta) {
    const std::optional<uint64_t> seed = reordered::seed();
    if (!seed || k < 2) return multiply_at_once(c, m, n, k, alpha, a, a_transposed, b, b_transposed, beta);
    const int64_t cut = sum_cut(*seed, k);
    const Rows rest_of_a = a_transposed ? a.from(cut) : Rows{a.data + cut, a.stride};
    const Rows rest_of_b = b_transposed ? Rows{b.data + cut, b.stride} : b.from(cut);
    multiply_at_once(c, m, n, k - cut, alpha, rest_of_a, a_transposed, rest_of_b, b_transposed, beta);
    multiply_at_once(c, m, n, cut, alpha, a, a_transposed, b, b_transposed, 1);
}

// --- one block of queries of one head

struct Place {
    int64_t batch, head, key_head;
};

// What the kernels read: float32 with contiguous rows.
struct Inputs {
    const Sequences &s;
    const Settings &settings;
    at::Tensor query = with_rows(s.query), key = with_rows(s.key), value = with_rows(s.value), pse = with_rows(s.pse);
    at::Tensor grad = with_rows(s.grad), result{};  // the gradient's: the forward result

    int64_t width() const { return query.size(3); }
    int64_t value_width() const { return value.size(3); }
    int64_t score_row(const Place &place, int64_t query_row) const {
        return (place.batch * s.heads() + place.head) * s.queries() + query_row;
    }
    // scale * (q k^T + pse) or scale * q k^T + pse; left-out ones are the lowest float.
    void scores(const Place &place, const Block &block, Rows out) const {
        const Window &window = block.window;
        const auto scale = static_cast<float>(settings.scale);
        multiply(out, block.rows(), window.keys(), width(), settings.half_scores ? 1 : scale,
                 rows(query, place.batch, place.head).from(block.first), false,
                 rows(key, place.batch, place.key_head).from(window.begin), true, 0);
        for (int64_t i = 0; i < block.rows(); ++i) {
            if (settings.half_scores)
                std::transform(out[i], out[i] + window.keys(), out[i], [&](float score) {
                    const float rounded = c10::Half(score);
                    return static_cast<float>(c10::Half(rounded * scale));
                });
            if (pse.defined())
                row::add(out[i], rows(pse, place.batch, place.head)[block.first + i] + window.begin, window.keys(),
                         static_cast<float>(settings.pse_factor()));
            if (window.mixed_begin < window.mixed_end)
                s.mask.leave_out(place.batch, place.head, block.first + i, window, out[i]);
        }
    }
};

// A row's maximum or sum, which stands eight times.
class Statistic {
  public:
    Statistic(const at::Tensor &whole, const Place &place)
        : rows_(rows(whole, place.batch, place.head)), copies_(whole.size(3)), step_(whole.stride(3)) {}
    float get(int64_t row) const { return *rows_[row]; }
    void set(int64_t row, float value) {
        for (int64_t i = 0; i < copies_; ++i) rows_[row][i * step_] = value;
    }

  private:
    Rows rows_;
    int64_t copies_, step_;
};

// A sink takes its share of a row's weights.
row::Statistics beside_sink(row::Statistics found, float sink, float *weights, int64_t keys) {
    const float top = std::max(found.maximum, sink), rest = found.sum * std::exp(found.maximum - top);
    const float sum = rest + std::exp(sink - top);
    for (int64_t i = 0; i < keys; ++i) weights[i] *= rest / sum;
    return {top, sum};
}

void attend(const Inputs &inputs, const Place &place, const Block &block, Rows weights, Rows out) {
    const Sequences &s = inputs.s;
    inputs.scores(place, block, weights);
    Statistic maxima(s.maximum, place), sums(s.sum, place);
    const int64_t keys = block.window.keys();
    const float *sinks = s.sink.defined() ? s.sink.const_data_ptr<float>() : nullptr;
    for (int64_t i = 0; i < block.rows(); ++i) {
        row::Statistics found = row::softmax(weights[i], keys);
        if (sinks != nullptr) found = beside_sink(found, sinks[place.head], weights[i], keys);
        if (found.maximum == kLowest && s.mask.zeroes_blind_queries()) {
            // A sum beyond all numbers makes the row's probabilities zero in the gradient: CANN's way.
            found.sum = kLargest;
            std::fill_n(weights[i], keys, 0.0F);
        }
        maxima.set(block.first + i, found.maximum);
        sums.set(block.first + i, found.sum);
        if (s.dropout.bits.defined())
            s.dropout.apply(inputs.score_row(place, block.first + i), s.keys(), block.window,
                            1 / static_cast<float>(inputs.settings.keep), weights[i]);
    }
    multiply(out.from(block.first), block.rows(), inputs.value_width(), keys, 1, weights, false,
             rows(inputs.value, place.batch, place.key_head).from(block.window.begin), false, 0);
}

// Where the gradients of one block go; keys and values gather theirs from all blocks.
struct Targets {
    Rows query, key, value;
    Rows pse{};  // of all keys; without data: not wanted
};

void attend_backward(const Inputs &inputs, const Place &place, const Block &block, Rows probabilities, Rows score_grad,
                     const Targets &targets) {
    const Sequences &s = inputs.s;
    const Window &window = block.window;
    const int64_t keys = window.keys(), width = inputs.width(), value_width = inputs.value_width();
    const Rows query = rows(inputs.query, place.batch, place.head).from(block.first);
    const Rows grad = rows(inputs.grad, place.batch, place.head).from(block.first);
    const Rows result = rows(inputs.result, place.batch, place.head).from(block.first);
    inputs.scores(place, block, probabilities);
    multiply(score_grad, block.rows(), keys, value_width, 1, grad, false,
             rows(inputs.value, place.batch, place.key_head).from(window.begin), true, 0);
    const Statistic maxima(s.maximum, place), sums(s.sum, place);
    const float factor = 1 / static_cast<float>(inputs.settings.keep);
    for (int64_t i = 0; i < block.rows(); ++i) {
        const int64_t number = block.first + i;
        row::probabilities(probabilities[i], keys, {maxima.get(number), sums.get(number)});
        const auto drop = [&](float *values) {
            if (s.dropout.bits.defined())
                s.dropout.apply(inputs.score_row(place, number), s.keys(), window, factor, values);
        };
        drop(score_grad[i]);
        // The mean is taken from the result, which may be that of more keys than these (context parallelism).
        row::gradient(score_grad[i], probabilities[i], keys, row::dot(grad[i], result[i], value_width));
        drop(probabilities[i]);
        if (targets.pse.data != nullptr)
            row::add(targets.pse[number] + window.begin, score_grad[i], keys,
                     static_cast<float>(inputs.settings.pse_factor()));
    }
    const float scale = static_cast<float>(inputs.settings.scale);
    multiply(targets.query.from(block.first), block.rows(), width, keys, scale, score_grad, false,
             rows(inputs.key, place.batch, place.key_head).from(window.begin), false, 0);
    multiply(targets.key.from(window.begin), keys, width, block.rows(), scale, score_grad, true, query, false, 1);
    multiply(targets.value.from(window.begin), keys, value_width, block.rows(), 1, probabilities, true, grad, false, 1);
}

// --- all of them

// Calls work(i, scratch) for i below count on all threads, each taking the next: they differ in size. Each thread has
// `floats` of scratch and what runs inside uses that thread alone; a single piece of work has them all.
template <class Work>
void in_parallel(size_t count, int64_t floats, Work work) {
    std::atomic<size_t> next{0};
    const int64_t threads = std::min<int64_t>(static_cast<int64_t>(count), at::get_num_threads());
    at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
        const at::AutoDispatchBelowADInplaceOrView below_autograd;  // a pool thread has the flags of no one
        const AloneInMkl alone(threads > 1);
        const at::Tensor scratch = at::empty({floats}, at::kFloat);
        for (size_t i = next++; i < count; i = next++) work(i, scratch.mutable_data_ptr<float>());
    });
}

// The scores of the largest block.
int64_t most_scores(const std::vector<std::vector<Block>> &blocks) {
    int64_t most = 0;
    for (const std::vector<Block> &of_batch : blocks)
        for (const Block &block : of_batch) most = std::max(most, block.rows() * block.window.keys());
    return most;
}

// What kernels write: the tensor itself, or a float32 stand-in that store() rounds into it.
class Target {
  public:
    explicit Target(const at::Tensor &tensor)
        : to_(tensor), rows_(has_rows(tensor) ? tensor : at::empty(tensor.sizes(), at::kFloat)) {}
    const at::Tensor &rows() const { return rows_; }
    void store() const {
        if (!rows_.is_same(to_)) to_.copy_(rows_);
    }

  private:
    at::Tensor to_, rows_;
};

}  // namespace

void forward(const Sequences &s, const Settings &settings) {
    if (s.keys() == 0) {
        s.out.zero_();
        s.maximum.fill_(kLowest);
        s.sum.fill_(kLargest);
        return;
    }
    const Inputs inputs{s, settings};
    const Target out(s.out);
    const std::vector<std::vector<Block>> work = blocks(s);
    const size_t of_head = work.empty() ? 0 : work[0].size(), heads = static_cast<size_t>(s.heads());
    const int64_t group = s.heads() / s.key.size(1);
    in_parallel(static_cast<size_t>(s.batch()) * heads * of_head, most_scores(work), [&](size_t i, float *scratch) {
        const auto batch = static_cast<int64_t>(i / of_head / heads), head = static_cast<int64_t>(i / of_head % heads);
        const Block &block = work[work.size() == 1 ? 0 : static_cast<size_t>(batch)][i % of_head];
        attend(inputs, {batch, head, head / group}, block, {scratch, block.window.keys()},
               rows(out.rows(), batch, head));
    });
    out.store();
}

namespace {

void forward_all(const Arguments &arguments, Settings settings) {
    settings = normalized(std::move(settings));
    for (const Sequences &s : sequences(arguments, settings)) forward(s, settings);
}

struct Gradients {
    const Operand &grad;
    Operand &query, &key, &value, &pse;
    Operand *query_rope = nullptr, *key_rope = nullptr, *sink = nullptr;
};

void check_gradients(const Arguments &arguments, const Gradients &gradients, const Settings &settings) {
    check_attention(arguments, settings);
    same_shape(gradients.grad, arguments.out);
    same_dtype(gradients.grad, arguments.query);
    const auto like = [](const Operand &gradient, const Operand &of) {
        same_shape(gradient, of);
        same_dtype(gradient, of);
    };
    like(gradients.query, arguments.query);
    like(gradients.key, arguments.key);
    like(gradients.value, arguments.value);
    if (arguments.pse.defined()) like(gradients.pse, arguments.pse);
    for (const auto &[gradient, of] :
         {std::pair{gradients.query_rope, arguments.query_rope}, std::pair{gradients.key_rope, arguments.key_rope},
          std::pair{gradients.sink, arguments.sink}}) {
        if (gradient != nullptr) optional(*gradient);
        if (!given(of)) continue;
        if (!gradient->defined())
            fail(FaultKind::NullArgument, "parameter {} is null, but {} is given", gradient->parameter(),
                 of->parameter());
        like(*gradient, *of);
    }
}

// What a sink's share of each row's weights takes from the mean of their gradients.
at::Tensor sink_gradient(const Sequences &s) {
    const at::Tensor share =
        (s.sink.unsqueeze(1) - s.maximum.select(-1, 0)).exp_() / s.sum.select(-1, 0);  // [batch, heads, queries]
    const at::Tensor mean = (s.grad.to(at::kFloat) * s.out.to(at::kFloat)).sum(-1);
    return (share * mean).sum(at::IntArrayRef({0, 2})).neg_();
}

// The gradient of one batch of sequences. A piece of work is a key's head: it gathers from the queries that share it.
void backward(const Sequences &s, const Settings &settings) {
    if (s.keys() == 0 || s.queries() == 0) {
        for (const at::Tensor *gradient : {&s.query_grad, &s.key_grad, &s.value_grad}) gradient->zero_();
        return;
    }
    const Inputs inputs{.s = s, .settings = settings, .result = with_rows(s.out)};
    const Target query(s.query_grad), key(s.key_grad), value(s.value_grad);
    key.rows().zero_();
    value.rows().zero_();
    const std::vector<std::vector<Block>> work = blocks(s);
    const int64_t key_heads = s.key.size(1), group = s.heads() / key_heads, most = most_scores(work);
    const auto gather = [&](size_t i, float *scratch) {
        const auto batch = static_cast<int64_t>(i) / key_heads, key_head = static_cast<int64_t>(i) % key_heads;
        for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head)
            for (const Block &block : work[work.size() == 1 ? 0 : static_cast<size_t>(batch)])
                attend_backward(inputs, {batch, head, key_head}, block, {scratch, block.window.keys()},
                                {scratch + most, block.window.keys()},
                                {rows(query.rows(), batch, head), rows(key.rows(), batch, key_head),
                                 rows(value.rows(), batch, key_head),
                                 s.pse_grad.defined() ? rows(s.pse_grad, batch, head) : Rows{}});
    };
    const auto count = static_cast<size_t>(s.batch() * key_heads);
    if (s.pse_grad.defined()) {  // batches may add to the same
        const at::Tensor scratch = at::empty({2 * most}, at::kFloat);
        for (size_t i = 0; i < count; ++i) gather(i, scratch.mutable_data_ptr<float>());
    } else {
        in_parallel(count, 2 * most, gather);
    }
    for (const Target *target : {&query, &key, &value}) target->store();
}

void backward(const Arguments &arguments, const Gradients &gradients, Settings settings) {
    settings = normalized(std::move(settings));
    const int64_t key_count = key_heads(arguments.query, arguments.key, settings);
    const at::Tensor grad = heads_first(gradients.grad, settings.layout, settings.heads);
    const auto like = [&](const Operand &gradient, const Operand *rope, int64_t heads) {
        const at::Tensor own = heads_first(gradient, settings.layout, heads);
        if (!given(rope)) return own;
        at::DimVector sizes(own.sizes());
        sizes.back() += rope->size(-1);
        return at::empty(sizes, at::kFloat);
    };
    const at::Tensor query = like(gradients.query, arguments.query_rope, settings.heads);
    const at::Tensor key = like(gradients.key, arguments.key_rope, key_count);
    const at::Tensor value = heads_first(gradients.value, settings.layout, key_count);
    const at::Tensor sink = given(arguments.sink) ? at::zeros({settings.heads}, at::kFloat) : at::Tensor();
    // Rows and batches add up in pse's gradient: in fp32.
    const at::Tensor pse = arguments.pse.defined() ? at::zeros(arguments.pse.sizes(), at::kFloat) : at::Tensor();
    if (settings.packed()) {  // tokens behind the last sequence
        for (const at::Tensor *gradient : {&query, &key, &value}) gradient->zero_();
    }
    int64_t query_start = 0, key_start = 0;
    for (Sequences &s : sequences(arguments, settings)) {
        const auto of_query = [&](const at::Tensor &tensor) { return tensor.narrow(2, query_start, s.queries()); };
        const auto of_key = [&](const at::Tensor &tensor) { return tensor.narrow(2, key_start, s.keys()); };
        s.grad = of_query(grad);
        s.query_grad = of_query(query);
        s.key_grad = of_key(key);
        s.value_grad = of_key(value);
        s.pse_grad = pse;
        backward(s, settings);
        if (sink.defined()) sink.add_(sink_gradient(s));
        query_start += s.queries();
        key_start += s.keys();
    }
    if (pse.defined()) gradients.pse.copy_(pse);
    if (sink.defined()) gradients.sink->copy_(sink);
    if (!given(arguments.query_rope)) return;
    const auto divide = [&](const at::Tensor &whole, const Operand &rest, const Operand &rope, int64_t heads) {
        const std::vector<at::Tensor> parts = whole.split({whole.size(3) - rope.size(-1), rope.size(-1)}, 3);
        heads_first(rest, settings.layout, heads).copy_(parts[0]);
        heads_first(rope, settings.layout, heads).copy_(parts[1]);
    };
    divide(query, gradients.query, *gradients.query_rope, settings.heads);
    divide(key, gradients.key, *gradients.key_rope, key_count);
}

}  // namespace
}  // namespace vnpu::opapi::attention

// The members of the family differ in what follows the attributes that all have, `...`: the rest of Settings.
#define ATTENTION_SETTINGS(...) \
    {scaleValue, keepProb, preTokens, nextTokens, headNum, inputLayout, innerPrecise, sparseMode, __VA_ARGS__}
#define ATTENTION_OPERANDS(...) \
    {query,                     \
     key,                       \
     value,                     \
     realShiftOptional,         \
     dropMaskOptional,          \
     paddingMaskOptional,       \
     attenMaskOptional,         \
     softmaxMaxOut,             \
     softmaxSumOut,             \
     attentionOutOut,           \
     __VA_ARGS__}
#define GRAD_OPERANDS(...) \
    {query,                \
     keyIn,                \
     value,                \
     pseShiftOptional,     \
     dropMaskOptional,     \
     paddingMaskOptional,  \
     attenMaskOptional,    \
     softmaxMaxOptional,   \
     softmaxSumOptional,   \
     attentionInOptional,  \
     __VA_ARGS__}
#define GRAD_RESULTS(...) {dy, dqOut, dkOut, dvOut, dpseOut, __VA_ARGS__}
// ... and in operands that only some have, `OPERANDS` and `RESULTS`, each with parentheses around it.
#define ATTENTION_CHECK(OPERANDS, ...) \
    optional(softmaxOutOut);           \
    attention::check_attention(ATTENTION_OPERANDS OPERANDS, ATTENTION_SETTINGS(__VA_ARGS__))
#define ATTENTION(NAME, OPERANDS, ...)               \
    OP(NAME, ATTENTION_CHECK(OPERANDS, __VA_ARGS__), \
       attention::forward_all(ATTENTION_OPERANDS OPERANDS, ATTENTION_SETTINGS(__VA_ARGS__)))
#define ATTENTION_GRAD_CHECK(OPERANDS, RESULTS, ...) \
    optional(dpseOut);                               \
    attention::check_gradients(GRAD_OPERANDS OPERANDS, GRAD_RESULTS RESULTS, ATTENTION_SETTINGS(__VA_ARGS__))
#define ATTENTION_GRAD(NAME, OPERANDS, RESULTS, ...)               \
    OP(NAME, ATTENTION_GRAD_CHECK(OPERANDS, RESULTS, __VA_ARGS__), \
       attention::backward(GRAD_OPERANDS OPERANDS, GRAD_RESULTS RESULTS, ATTENTION_SETTINGS(__VA_ARGS__)))

#define LENGTHS prefixOptional, actualSeqQLenOptional, actualSeqKvLenOptional
#define ROPES &queryRope, &keyRope
#define ROPES_IN &queryRope, &keyInRope
#define ROPE_RESULTS &dqRopeOut, &dkRopeOut
#define NO_ROPES nullptr, nullptr

ATTENTION(aclnnFlashAttentionScore, (), prefixOptional)
ATTENTION(aclnnFlashAttentionScoreV2, (), prefixOptional, nullptr, nullptr, false, pseType)
ATTENTION(aclnnFlashAttentionScoreV3, (NO_ROPES, &sinkOptional), prefixOptional, nullptr, nullptr, false, pseType)
ATTENTION(aclnnFlashAttentionVarLenScore, (), LENGTHS)
ATTENTION(aclnnFlashAttentionVarLenScoreV2, (), LENGTHS, false, pseType)
ATTENTION(aclnnFlashAttentionVarLenScoreV3, (ROPES), LENGTHS, false, pseType)
ATTENTION(aclnnFlashAttentionVarLenScoreV4, (), LENGTHS, softmaxOutLayout == "same_as_input")
ATTENTION(aclnnFlashAttentionVarLenScoreV5, (ROPES, &sinkOptional), LENGTHS, softmaxOutLayout == "same_as_input",
          pseType)
ATTENTION_GRAD(aclnnFlashAttentionScoreGrad, (), (), prefixOptional)
ATTENTION_GRAD(aclnnFlashAttentionScoreGradV2, (), (), prefixOptional, nullptr, nullptr, false, pseType)
ATTENTION_GRAD(aclnnFlashAttentionScoreGradV3, (NO_ROPES, &sinkInOptional), (NO_ROPES, &dsinkOut), prefixOptional,
               nullptr, nullptr, false, pseType)
ATTENTION_GRAD(aclnnFlashAttentionUnpaddingScoreGrad, (), (), LENGTHS)
ATTENTION_GRAD(aclnnFlashAttentionUnpaddingScoreGradV2, (), (), LENGTHS, false, pseType)
ATTENTION_GRAD(aclnnFlashAttentionUnpaddingScoreGradV3, (ROPES_IN), (ROPE_RESULTS), LENGTHS, false, pseType)
ATTENTION_GRAD(aclnnFlashAttentionUnpaddingScoreGradV4, (), (), LENGTHS, softmaxInLayout == "same_as_input")
ATTENTION_GRAD(aclnnFlashAttentionUnpaddingScoreGradV5, (ROPES_IN, &sinkInOptional), (ROPE_RESULTS, &dsinkOut), LENGTHS,
               softmaxInLayout == "same_as_input", pseType)
MAX_WORKSPACE(aclnnFlashAttentionVarLenScoreV5GetMaxWorkspaceSize,
              ATTENTION_CHECK((ROPES, &sinkOptional), LENGTHS, softmaxOutLayout == "same_as_input", pseType))
MAX_WORKSPACE(aclnnFlashAttentionUnpaddingScoreGradV5GetMaxWorkspaceSize,
              ATTENTION_GRAD_CHECK((ROPES_IN, &sinkInOptional), (ROPE_RESULTS, &dsinkOut), LENGTHS,
                                   softmaxInLayout == "same_as_input", pseType))
