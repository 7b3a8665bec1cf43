// Scaled dot-product attention and its gradient. Scores are computed for a few heads and rows at a time, so that they
// stay in the cache, and only for keys that one of the rows sees: that part (512 KiB for each thread, twice in the
// gradient), fp32 copies of its operands and, in the gradient, fp32 sums for keys and values are what a call
// allocates. Everything is computed in fp32 and rounded once.
#include "opapi/attention.h"

#include <ATen/Parallel.h>

#include <atomic>
#include <limits>
#include <numbers>

#include "opapi/op.h"

// Of the MKL inside libtorch_cpu.so; null in a torch without it.
extern "C" __attribute__((weak)) int MKL_Set_Num_Threads_Local(int threads);

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

// exp(scores - maximum) in place. As a power of two: ATen's exp is MKL's, which takes 50 times as long where the
// result underflows, as it does for what is left out.
void exponential(at::Tensor &scores, const at::Tensor &maximum) {
    scores.sub_(maximum).mul_(std::numbers::log2e).exp2_();
}

void attend(const Sequences &s, const Settings &settings, const Part &part) {
    at::Tensor probabilities = scores(s, settings, part, part.of_query(s.query), part.of_key(s.key));
    const at::Tensor maximum = probabilities.amax(-1, true);
    exponential(probabilities, maximum);
    const at::Tensor sum = probabilities.sum(-1, true);
    // A sum beyond all numbers makes the row's probabilities zero in the gradient: CANN's way.
    if (s.mask.zeroes_blind_queries()) {
        const at::Tensor blind = maximum == kLowest;
        sum.masked_fill_(blind, kLargest);
        probabilities.masked_fill_(blind, 0);
    }
    if (const at::Tensor factors = kept(s, part); factors.defined()) probabilities.mul_(factors);
    const at::Tensor out = probabilities.bmm(part.of_key(s.value)).div_(sum * settings.keep);
    const auto place = [&](const at::Tensor &whole) {
        return whole.select(0, part.batch)
            .narrow(0, part.first_head, part.heads())
            .narrow(1, part.first, part.last - part.first);
    };
    place(s.out).copy_(out);
    place(s.maximum).copy_(maximum);
    place(s.sum).copy_(sum);
}

// Adds factor * weights^T rows to what the part's keys have gathered, summed over the heads that share a key.
void add_to_keys(const at::Tensor &gathered, const at::Tensor &weights, const at::Tensor &rows, double factor,
                 const Part &part) {
    at::Tensor seen = gathered.narrow(1, part.window.begin, part.window.keys());
    const int64_t own = gathered.size(0);
    if (own == part.heads())
        seen.baddbmm_(weights.mT(), rows, 1, factor);
    else
        seen.add_(weights.mT().bmm(rows).unflatten(0, {own, part.heads() / own}).sum(1), factor);
}

void attend_backward(const Sequences &s, const Settings &settings, const Part &part, at::Tensor &key_grad,
                     at::Tensor &value_grad) {
    const at::Tensor query = part.of_query(s.query), key = part.of_key(s.key), grad = part.of_query(s.grad);
    at::Tensor probabilities = scores(s, settings, part, query, key);
    exponential(probabilities, part.of_query(s.maximum).narrow(-1, 0, 1));
    probabilities.div_(part.of_query(s.sum).narrow(-1, 0, 1));
    at::Tensor score_grad = grad.bmm(part.of_key(s.value).mT());
    if (at::Tensor factors = kept(s, part); factors.defined()) {
        factors.div_(settings.keep);
        score_grad.mul_(factors);
        add_to_keys(value_grad, factors.mul_(probabilities), grad, 1, part);
    } else {
        add_to_keys(value_grad, probabilities, grad, 1, part);
    }
    score_grad.sub_((grad * part.of_query(s.out)).sum(-1, true)).mul_(probabilities);
    s.query_grad.select(0, part.batch)
        .narrow(0, part.first_head, part.heads())
        .narrow(1, part.first, part.last - part.first)
        .copy_(score_grad.bmm(key).mul_(settings.scale));
    add_to_keys(key_grad, score_grad, query, settings.scale, part);
    if (s.pse_grad.defined()) {
        at::Tensor place = s.pse_grad.select(0, s.pse_grad.size(0) == 1 ? 0 : part.batch)
                               .narrow(0, part.first_head, part.heads())
                               .narrow(2, part.window.begin, part.window.keys());
        if (place.size(1) == 1) {
            place.add_(score_grad.sum(1, true), settings.pse_factor());
        } else {
            place.narrow(1, part.first, part.last - part.first).add_(score_grad, settings.pse_factor());
        }
    }
}

// Calls work(0) to work(count - 1) on all threads, each taking the next: they differ in size. What runs inside uses one
// thread each; a single piece of work has them all.
template <class Work>
void in_parallel(size_t count, Work work) {
    std::atomic<size_t> next{0};
    const int64_t threads = std::min<int64_t>(static_cast<int64_t>(count), at::get_num_threads());
    at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
        const at::AutoDispatchBelowADInplaceOrView below_autograd;  // a pool thread has the flags of no one
        const AloneInMkl alone(threads > 1);
        for (size_t i = next++; i < count; i = next++) work(i);
    });
}

void forward(const Arguments &arguments, Settings settings) {
    settings = normalized(std::move(settings));
    for (const Sequences &s : sequences(arguments, settings)) {
        if (s.keys() == 0) {
            s.out.zero_();
            s.maximum.fill_(kLowest);
            s.sum.fill_(kLargest);
            continue;
        }
        const std::vector<Part> work = parts(s);
        in_parallel(work.size(), [&](size_t i) { attend(s, settings, work[i]); });
    }
}

struct Gradients {
    const Operand &grad;
    Operand &query, &key, &value, &pse;
};

void check_gradients(const Arguments &arguments, const Gradients &gradients, const Settings &settings) {
    check(arguments, settings);
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
}

// The gradient of one batch of sequences; keys and values gather theirs from all queries in fp32.
void backward(const Sequences &s, const Settings &settings) {
    if (s.keys() == 0 || s.queries() == 0) {
        for (const at::Tensor *gradient : {&s.query_grad, &s.key_grad, &s.value_grad}) gradient->zero_();
        return;
    }
    // The parts that share keys follow each other; each such group gathers the gradients of its keys.
    const std::vector<Part> work = parts(s);
    std::vector<size_t> groups;
    for (size_t i = 0; i < work.size(); ++i)
        if (work[i].first == 0) groups.push_back(i);
    const auto gather = [&](size_t group) {
        const Part &keys = work[groups[group]];
        const int64_t heads = keys.last_key_head - keys.first_key_head;
        at::Tensor key_grad = at::zeros({heads, s.keys(), s.key.size(3)}, at::kFloat);
        at::Tensor value_grad = at::zeros({heads, s.keys(), s.value.size(3)}, at::kFloat);
        const size_t end = group + 1 < groups.size() ? groups[group + 1] : work.size();
        for (size_t i = groups[group]; i < end; ++i) attend_backward(s, settings, work[i], key_grad, value_grad);
        const auto place = [&](const at::Tensor &whole) {
            return whole.select(0, keys.batch).narrow(0, keys.first_key_head, heads);
        };
        place(s.key_grad).copy_(key_grad);
        place(s.value_grad).copy_(value_grad);
    };
    if (s.pse_grad.defined()) {  // all groups add to it
        for (size_t group = 0; group < groups.size(); ++group) gather(group);
    } else {
        in_parallel(groups.size(), gather);
    }
}

void backward(const Arguments &arguments, const Gradients &gradients, Settings settings) {
    settings = normalized(std::move(settings));
    const int64_t key_count = key_heads(arguments.query, arguments.key, settings);
    const at::Tensor grad = heads_first(gradients.grad, settings.layout, settings.heads);
    const at::Tensor query = heads_first(gradients.query, settings.layout, settings.heads);
    const at::Tensor key = heads_first(gradients.key, settings.layout, key_count);
    const at::Tensor value = heads_first(gradients.value, settings.layout, key_count);
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
        query_start += s.queries();
        key_start += s.keys();
    }
    if (pse.defined()) gradients.pse.copy_(pse);
}

}  // namespace
}  // namespace vnpu::opapi::attention

// The members of the family differ in what follows the attributes that all have, `...`: the rest of Settings.
#define ATTENTION_SETTINGS(...) \
    {scaleValue, keepProb, preTokens, nextTokens, headNum, inputLayout, innerPrecise, sparseMode, __VA_ARGS__}
#define ATTENTION(NAME, ...)                                                                            \
    OP(NAME, optional(softmaxOutOut);                                                                   \
       attention::check({query, key, value, realShiftOptional, dropMaskOptional, paddingMaskOptional,   \
                         attenMaskOptional, softmaxMaxOut, softmaxSumOut, attentionOutOut},             \
                        ATTENTION_SETTINGS(__VA_ARGS__)),                                               \
       attention::forward({query, key, value, realShiftOptional, dropMaskOptional, paddingMaskOptional, \
                           attenMaskOptional, softmaxMaxOut, softmaxSumOut, attentionOutOut},           \
                          ATTENTION_SETTINGS(__VA_ARGS__)))
#define ATTENTION_GRAD(NAME, ...)                                                                                   \
    OP(NAME, optional(dpseOut);                                                                                     \
       attention::check_gradients({query, keyIn, value, pseShiftOptional, dropMaskOptional, paddingMaskOptional,    \
                                   attenMaskOptional, softmaxMaxOptional, softmaxSumOptional, attentionInOptional}, \
                                  {dy, dqOut, dkOut, dvOut, dpseOut}, ATTENTION_SETTINGS(__VA_ARGS__)),             \
       attention::backward({query, keyIn, value, pseShiftOptional, dropMaskOptional, paddingMaskOptional,           \
                            attenMaskOptional, softmaxMaxOptional, softmaxSumOptional, attentionInOptional},        \
                           {dy, dqOut, dkOut, dvOut, dpseOut}, ATTENTION_SETTINGS(__VA_ARGS__)))

ATTENTION(aclnnFlashAttentionScore, prefixOptional)
ATTENTION(aclnnFlashAttentionScoreV2, prefixOptional, nullptr, nullptr, false, pseType)
ATTENTION(aclnnFlashAttentionVarLenScore, prefixOptional, actualSeqQLenOptional, actualSeqKvLenOptional)
ATTENTION(aclnnFlashAttentionVarLenScoreV4, prefixOptional, actualSeqQLenOptional, actualSeqKvLenOptional,
          softmaxOutLayout == "same_as_input")
ATTENTION_GRAD(aclnnFlashAttentionScoreGrad, prefixOptional)
ATTENTION_GRAD(aclnnFlashAttentionScoreGradV2, prefixOptional, nullptr, nullptr, false, pseType)
ATTENTION_GRAD(aclnnFlashAttentionUnpaddingScoreGrad, prefixOptional, actualSeqQLenOptional, actualSeqKvLenOptional)
ATTENTION_GRAD(aclnnFlashAttentionUnpaddingScoreGradV4, prefixOptional, actualSeqQLenOptional, actualSeqKvLenOptional,
               softmaxInLayout == "same_as_input")
