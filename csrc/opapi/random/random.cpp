// Random numbers (philox.h). Elements are numbered in logical order, so a view gets the values a contiguous tensor
// gets.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/native/DistributionTemplates.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "device/fault.h"
#include "opapi/aclnn/limits.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"
#include "opapi/aclnn/unsigned.h"
#include "opapi/random/draw.h"
#include "opapi/random/philox.h"

namespace vnpu::opapi {
namespace {

constexpr int64_t kGrain = 4096;  // blocks that are worth a thread

// [0, 1) with the 24 bits of a float, the 53 of a double.
float unit(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24F; }
double unit(uint64_t word) { return static_cast<double>(word >> 11) * 0x1p-53; }

// values[i] = element(i, number i of the stream), `Per` elements to a block.
template <int Per, class T, class Element>
void fill(at::Tensor &out, uint64_t seed, uint64_t offset, Element element) {
    at::Tensor target = out.contiguous();  // a view with gaps is filled aside
    T *values = target.mutable_data_ptr<T>();
    const int64_t count = target.numel();
    const Philox philox(seed, offset);
    at::parallel_for(0, (count + Per - 1) / Per, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
            const Philox::Block numbers = philox(static_cast<uint64_t>(block));
            const int64_t last = std::min<int64_t>(Per, count - block * Per);
            for (int i = 0; i < last; ++i)
                values[block * Per + i] = static_cast<T>(element(block * Per + i, numbers, i));
        }
    });
    if (!target.is_same(out)) out.copy_(target);
}

// u(i, block, k): the k-th uniform number of a block, in fp32 (four to a block) or, for doubles, fp64 (two).
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <class T>
constexpr int per_block() {
    return std::is_same_v<T, double> ? 2 : 4;
}
template <class T>
Wide<T> draw(const Philox::Block &block, int k) {
    if constexpr (std::is_same_v<T, double>)
        return unit(Philox::wide(block, k));
    else
        return unit(block[static_cast<size_t>(k)]);
}

// compute(target) draws into `out` itself or, where its dtype is not drawn, into a tensor of `drawn` that is then cast.
template <class Compute>
void through(at::Tensor &out, at::ScalarType drawn, bool direct, Compute compute) {
    if (direct) return compute(out);
    at::Tensor target = at::empty(out.sizes(), out.options().dtype(drawn));
    compute(target);
    out.copy_(target);
}

void uniform(at::Tensor &result, double from, double to, uint64_t seed, uint64_t offset) {
    through(result, at::kFloat, result.is_floating_point(), [&](at::Tensor &out) {
        AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "uniform", [&] {
            const auto low = static_cast<Wide<scalar_t>>(from), high = static_cast<Wide<scalar_t>>(to);
            fill<per_block<scalar_t>(), scalar_t>(out, seed, offset, [=](int64_t, const Philox::Block &block, int k) {
                const auto value = static_cast<scalar_t>(low + draw<scalar_t>(block, k) * (high - low));
                return static_cast<Wide<scalar_t>>(value) >= high ? static_cast<scalar_t>(low)
                                                                  : value;  // rounded up to an end that is excluded
            });
        });
    });
}

// Box-Muller: two uniform numbers to two normal ones.
template <class T>
T gauss(T u, T v, bool second) {
    const T radius = std::sqrt(T{-2} * std::log(T{1} - u));  // 1 - u: (0, 1]
    const T angle = T{2} * std::numbers::pi_v<T> * v;
    return radius * (second ? std::sin(angle) : std::cos(angle));
}
template <class T>
Wide<T> normal_number(const Philox::Block &block, int k) {
    const int first = k & ~1;
    return gauss(draw<T>(block, first), draw<T>(block, first + 1), (k & 1) != 0);
}

void normal(at::Tensor &result, double mean, double deviation, uint64_t seed, uint64_t offset) {
    through(result, at::kFloat, result.is_floating_point(), [&](at::Tensor &out) {
        AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "normal", [&] {
            const auto m = static_cast<Wide<scalar_t>>(mean), d = static_cast<Wide<scalar_t>>(deviation);
            fill<per_block<scalar_t>(), scalar_t>(out, seed, offset, [=](int64_t, const Philox::Block &block, int k) {
                return m + d * normal_number<scalar_t>(block, k);
            });
        });
    });
}

// mean + deviation * z, either of them a tensor that broadcasts to `out`.
void normal_of(at::Tensor &out, const at::Tensor &mean, const at::Tensor &deviation, uint64_t seed, uint64_t offset) {
    at::Tensor z =
        at::empty(out.sizes(), out.options().dtype(out.scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
    normal(z, 0, 1, seed, offset);
    out.copy_(z.mul_(deviation).add_(mean));
}

// Integers of [from, to), from 64 bits each: the bias is below 2^-64 times the range. Of floating-point numbers only
// those that no rounding moves out of it (ops-math: aclnn_random.cpp, updateFrom and updateTo, which are torch's).
void integers(at::Tensor &result, int64_t from, int64_t to, uint64_t seed, uint64_t offset) {
    if (result.is_floating_point())
        AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, result.scalar_type(), "random", [&] {
            const double largest = std::min(static_cast<double>(std::numeric_limits<scalar_t>::max()), 0x1p62);
            if (std::abs(static_cast<double>(from)) < largest)
                from = at::native::templates::update_from<scalar_t>(from);
            if (std::abs(static_cast<double>(to)) <= largest) to = at::native::templates::update_to<scalar_t>(to);
        });
    const uint64_t range = static_cast<uint64_t>(to) - static_cast<uint64_t>(from);
    const auto draw_integer = [=](int64_t, const Philox::Block &block, int k) {
        const auto above = static_cast<uint64_t>(static_cast<unsigned __int128>(Philox::wide(block, k)) * range >> 64);
        return static_cast<int64_t>(static_cast<uint64_t>(from) + above);
    };
    through(result, at::kLong, !result.is_complex(), [&](at::Tensor &out) {
        AT_DISPATCH_ALL_TYPES_AND3(at::kHalf, at::kBFloat16, at::kBool, out.scalar_type(), "random",
                                   [&] { fill<2, scalar_t>(out, seed, offset, draw_integer); });
    });
}

void bernoulli(at::Tensor &out, double prob, uint64_t seed, uint64_t offset) {
    const auto below = static_cast<uint64_t>(prob * 0x1p32);  // prob = 1: every number is below
    AT_DISPATCH_ALL_TYPES_AND3(at::kHalf, at::kBFloat16, at::kBool, out.scalar_type(), "bernoulli", [&] {
        fill<4, scalar_t>(out, seed, offset, [=](int64_t, const Philox::Block &block, int k) {
            return block[static_cast<size_t>(k)] < below ? 1 : 0;
        });
    });
}

void bernoulli_of(at::Tensor &out, const at::Tensor &prob, uint64_t seed, uint64_t offset) {
    const at::Tensor each = prob.to(at::kDouble).expand(out.sizes()).contiguous();
    TORCH_CHECK(!each.lt(0).logical_or_(each.gt(1)).any().item<bool>(), "parameter prob has values outside of 0 to 1");
    const double *p = each.const_data_ptr<double>();
    AT_DISPATCH_ALL_TYPES_AND3(at::kHalf, at::kBFloat16, at::kBool, out.scalar_type(), "bernoulli", [&] {
        fill<4, scalar_t>(out, seed, offset, [=](int64_t i, const Philox::Block &block, int k) {
            return block[static_cast<size_t>(k)] < p[i] * 0x1p32 ? 1 : 0;
        });
    });
}

// A permutation of 0 .. n-1 (Fisher and Yates; each step needs the one before it).
void permutation(at::Tensor &out, int64_t n, uint64_t seed, uint64_t offset) {
    at::Tensor order = at::arange(n, at::TensorOptions().dtype(at::kLong));
    int64_t *values = order.mutable_data_ptr<int64_t>();
    const Philox philox(seed, offset);
    for (int64_t i = n - 1; i > 0; --i) {
        const uint64_t number = Philox::wide(philox(static_cast<uint64_t>(i / 2)), static_cast<int>(i % 2));
        std::swap(values[i], values[static_cast<unsigned __int128>(number) * static_cast<uint64_t>(i + 1) >> 64]);
    }
    out.copy_(order);
}

// Draws from the distributions in the rows of `weights`. Without replacement: the indices with the smallest
// exponential waiting times, in that order, which has the probabilities of drawing one after the other.
void multinomial(at::Tensor &out, const at::Tensor &weights, int64_t samples, bool replacement, uint64_t seed,
                 uint64_t offset) {
    at::Tensor rows = (weights.dim() == 1 ? weights.unsqueeze(0) : at::Tensor(weights)).to(at::kDouble).contiguous();
    if (bugs_hidden()) rows = at::where(rows.isfinite() & (rows > 0), rows, at::zeros({}, rows.options())).contiguous();
    const std::string on_hardware = hidden_on_hardware("something is drawn all the same");
    const int64_t choices = rows.size(1);
    at::Tensor drawn = at::empty({rows.size(0), samples}, at::TensorOptions().dtype(at::kLong));
    const Philox philox(seed, offset);
    std::vector<double> key(static_cast<size_t>(choices));
    std::vector<int64_t> order(static_cast<size_t>(choices));
    for (int64_t row = 0; row < rows.size(0); ++row) {
        const double *w = rows.const_data_ptr<double>() + row * choices;
        int64_t *into = drawn.mutable_data_ptr<int64_t>() + row * samples;
        int64_t possible = 0, last = 0;
        for (int64_t i = 0; i < choices; ++i) {
            TORCH_CHECK(w[i] >= 0 && std::isfinite(w[i]), "parameter self has the weight ", w[i], " in row ", row,
                        on_hardware);
            possible += w[i] > 0;
            if (w[i] > 0) last = i;
        }
        TORCH_CHECK(possible >= (replacement ? 1 : samples) || bugs_hidden(), "parameter self has ", possible,
                    " positive weights in row ", row, ", too few to draw ", samples, replacement ? " with" : " without",
                    " replacement", on_hardware);
        const auto number = [&](int64_t i) {  // each row has numbers of its own
            const auto index = static_cast<uint64_t>(row * std::max(samples, choices) + i);
            return unit(Philox::wide(philox(index / 2), static_cast<int>(index % 2)));
        };
        if (replacement) {
            std::partial_sum(w, w + choices, key.begin());
            for (int64_t i = 0; i < samples; ++i)
                into[i] =
                    std::min(last, std::upper_bound(key.begin(), key.end(), number(i) * key.back()) - key.begin());
        } else {
            for (int64_t i = 0; i < choices; ++i)
                key[static_cast<size_t>(i)] =
                    w[i] > 0 ? -std::log1p(-number(i)) / w[i] : std::numeric_limits<double>::infinity();
            std::iota(order.begin(), order.end(), 0);
            std::partial_sort(order.begin(), order.begin() + samples, order.end(), [&](int64_t a, int64_t b) {
                return std::pair(key[static_cast<size_t>(a)], a) < std::pair(key[static_cast<size_t>(b)], b);
            });
            std::copy_n(order.begin(), samples, into);
        }
    }
    out.copy_(weights.dim() == 1 ? drawn.squeeze(0) : drawn);
}

void check_numbers(const Operand &tensor) { dtype(tensor, kReals | at::kBool); }

void check_ordered(double from, double to) {
    if (!(from <= to)) fail(FaultKind::InvalidArgument, "parameter from is {}, greater than to, which is {}", from, to);
}

void check_deviation(double std) {
    if (!(std >= 0)) fail(FaultKind::InvalidArgument, "parameter std is {}, allowed is >= 0", std);
}

void check_span(int64_t from, int64_t to) {
    if (from >= to)
        fail(FaultKind::InvalidArgument, "parameter from is {}, expected less than to, which is {}", from, to);
}

void check_probability(double prob) {
    if (!(prob >= 0 && prob <= 1)) fail(FaultKind::InvalidArgument, "parameter prob is {}, allowed is 0 to 1", prob);
}

void check_multinomial(const Operand &self, int64_t samples, bool replacement, const Operand &out) {
    rank(self, {1, 2});
    floating(self);
    dtype(out, {at::kLong});
    if (samples <= 0 || (!replacement && samples > self.size(-1)))
        fail(FaultKind::InvalidArgument, "parameter numsamples is {}, allowed is 1 to {}", samples,
             replacement ? "any number" : fmt::format("{}, the last size of self, without replacement", self.size(-1)));
    constexpr int64_t kCategories = 1 << 24;  // as many integers as float32 counts (ops-math: aclnn_multinomial.cpp)
    if (self.size(-1) > kCategories)
        fail(FaultKind::InvalidArgument, "number of categories cannot exceed 2^24: parameter self is {}",
             describe(self));
    at::DimVector sizes(self.sizes().begin(), self.sizes().end());
    sizes.back() = samples;
    shape(out, sizes);
}

// A seed and an offset that a captured graph advances: in device memory, read when the kernel runs.
void check_state(const Operand &seed, const Operand &offset) {
    for (const Operand *tensor : {&seed, &offset}) {
        dtype(*tensor, {at::kLong, at::kUInt64});
        one_element(*tensor);
    }
}

uint64_t word(const at::Tensor &number) { return static_cast<uint64_t>(moved(number).item().toLong()); }

// -log(u) / lambda with u in (0, 1].
void exponential(at::Tensor &out, double lambda, uint64_t seed, uint64_t offset) {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "exponential", [&] {
        const auto rate = static_cast<Wide<scalar_t>>(lambda);
        fill<per_block<scalar_t>(), scalar_t>(out, seed, offset, [=](int64_t, const Philox::Block &block, int k) {
            return -std::log1p(-draw<scalar_t>(block, k)) / rate;
        });
    });
}

// random_(): every value that the dtype holds exactly, from 0.
int64_t largest(at::ScalarType dtype) {
    if (at::isComplexType(dtype)) return largest(c10::toRealValueType(dtype));
    if (dtype == at::kBool) return 1;
    if (dtype == at::kHalf) return int64_t{1} << 11;
    if (dtype == at::kBFloat16) return int64_t{1} << 8;
    if (dtype == at::kFloat) return int64_t{1} << 24;
    if (dtype == at::kDouble) return int64_t{1} << 53;
    if (dtype == at::kByte) return std::numeric_limits<uint8_t>::max();
    if (dtype == at::kChar) return std::numeric_limits<int8_t>::max();
    if (dtype == at::kShort) return std::numeric_limits<int16_t>::max();
    if (dtype == at::kInt) return std::numeric_limits<int32_t>::max();
    return std::numeric_limits<int64_t>::max();
}

void all_integers(at::Tensor &out, uint64_t seed, uint64_t offset) {
    const int64_t last = largest(out.scalar_type());
    integers(out, 0, out.scalar_type() == at::kLong ? last : last + 1, seed, offset);
}

}  // namespace

void draw_uniform(at::Tensor &out, double from, double to, uint64_t seed, uint64_t offset) {
    uniform(out, from, to, seed, offset);
}
void draw_normal(at::Tensor &out, double mean, double deviation, uint64_t seed, uint64_t offset) {
    normal(out, mean, deviation, seed, offset);
}
void draw_bernoulli(at::Tensor &out, double prob, uint64_t seed, uint64_t offset) {
    bernoulli(out, prob, seed, offset);
}
void draw_permutation(at::Tensor &out, int64_t n, uint64_t seed, uint64_t offset) { permutation(out, n, seed, offset); }

}  // namespace vnpu::opapi

// seed and offset are signed in some signatures and unsigned in others; only their bits matter.
#define STREAM static_cast<uint64_t>(seed), static_cast<uint64_t>(offset)

OP(aclnnInplaceUniform, dtype(selfRef, kReals); check_ordered(from, to), uniform(selfRef, from, to, STREAM))
OP(aclnnInplaceNormal, check_numbers(selfRef); check_deviation(std), normal(selfRef, mean, std, STREAM))
OP(aclnnNormalFloatFloat, floating(out); check_deviation(std), normal(out, mean, std, STREAM))
OP(aclnnNormalTensorFloat, floating(out); floating(mean); check_deviation(std);
   expands(out, mean), normal_of(out, mean, at::scalar_tensor(std), STREAM))
OP(aclnnNormalFloatTensor, floating(out); floating(std);
   expands(out, std), normal_of(out, at::scalar_tensor(mean), std, STREAM))
OP(aclnnNormalTensorTensor, floating(out); floating(mean); floating(std);
   broadcasts(out, {&mean, &std}), normal_of(out, mean, std, STREAM))
OP(aclnnInplaceRandom, dtype(selfRef, kAll); check_span(from, to), integers(selfRef, from, to, STREAM))
OP(aclnnInplaceBernoulli, check_numbers(selfRef);
   check_probability(prob.to<double>()), bernoulli(selfRef, prob.to<double>(), STREAM))
OP(aclnnInplaceBernoulliTensor, check_numbers(selfRef); floating(prob);
   expands(selfRef, prob), bernoulli_of(selfRef, prob, STREAM))
OP(aclnnRandperm, dtype(out, {at::kLong, at::kInt, at::kShort, at::kByte, at::kChar, at::kFloat, at::kHalf, at::kDouble,
                              at::kBFloat16});
   shape(out, {n}), permutation(out, n, STREAM))
OP(aclnnInplaceRandomWithoutFromTo, dtype(selfRef, kAll), all_integers(selfRef, STREAM))
OP(aclnnSimThreadExponential, floating(selfRef);
   if (count != selfRef.numel() || !(lambda > 0))
       fail(vnpu::FaultKind::InvalidArgument, "parameters count and lambda are {} and {}, expected {} and > 0", count,
            lambda, selfRef.numel()),
   exponential(selfRef, lambda, STREAM))
OP(aclnnMultinomial, check_multinomial(self, numsamples, replacement, out),
   multinomial(out, self, numsamples, replacement, STREAM))

// The same, with the seed and a part of the offset in tensors: what torch_npu calls while it captures a graph.
#define STATE word(seedTensor), word(offsetTensor) + offset

OP(aclnnInplaceUniformTensor, dtype(selfRef, kReals); check_ordered(from, to);
   check_state(seedTensor, offsetTensor), uniform(selfRef, from, to, STATE))
OP(aclnnInplaceNormalTensor, check_numbers(selfRef); check_deviation(std);
   check_state(seedTensor, offsetTensor), normal(selfRef, mean, std, STATE))
OP(aclnnInplaceRandomTensor, dtype(selfRef, kAll); check_span(from, to);
   check_state(seedTensor, offsetTensor), integers(selfRef, from, to, STATE))
OP(aclnnInplaceRandomWithoutFromToTensor, dtype(selfRef, kAll);
   check_state(seedTensor, offsetTensor), all_integers(selfRef, STATE))
OP(aclnnMultinomialTensor, check_multinomial(self, numsamples, replacement, out);
   check_state(seedTensor, offsetTensor), multinomial(out, self, numsamples, replacement, STATE))
