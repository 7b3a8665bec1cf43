// Attention of the old API and the projections around it. Products are in fp32, as in the cube unit; what the operators
// hand on is rounded to the operands' dtype before it is used again.
#include <atomic>
#include <cmath>

#include "opapi/aclnn/precision.h"
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"
#include "opapi/attention/mla_prolog.h"
#include "opapi/random/dropout.h"

namespace vnpu::opapi {
namespace {

constexpr DTypes kHalves{at::kHalf, at::kFloat};

at::Tensor times(const at::Tensor &a, const at::Tensor &b) { return at::matmul(widened(a), widened(b)); }
at::Tensor turned(const at::Tensor &matrix) { return matrix.transpose(-1, -2); }

// [batch, heads, length, width] as rows of all heads, [batch * length, heads * width].
at::Tensor rows(const at::Tensor &layer) { return layer.transpose(1, 2).reshape({-1, layer.size(1) * layer.size(3)}); }

at::Tensor of_bytes(const at::Tensor &mask, const at::Tensor &x) {
    return mask.flatten().narrow(0, 0, x.numel()).ne(0).view(x.sizes());
}
at::Tensor of_bits(const at::Tensor &mask, const at::Tensor &x) {
    const at::Tensor weights = at::tensor({1, 2, 4, 8, 16, 32, 64, 128}, at::kByte);
    return of_bytes(mask.flatten().unsqueeze(1).bitwise_and(weights), x);
}
at::Tensor dropped(const at::Tensor &x, const at::Tensor &kept, double keep) {
    return keep == 0 ? at::zeros_like(x) : x * (1 / keep) * kept;
}

double keep_of(const aclopAttr &attributes) {
    const double keep = attribute<float>(attributes, "keep_prob", 1);
    if (!(keep >= 0 && keep <= 1))
        fail(FaultKind::InvalidArgument, "attribute keep_prob is {}, allowed is 0 to 1", keep);
    for (const char *name : {"query_transpose", "key_transpose", "value_transpose", "bmm_score_transpose_a",
                             "bmm_score_transpose_b", "dx_transpose"})
        if (attribute<bool>(attributes, name, false))
            fail(FaultKind::Unsupported, "The virtual NPU does not have attribute {}.", name);
    return keep;
}

// in: query, key, value, mask, scale, which elements stay.
void check_score(LegacyArguments &call) {
    keep_of(call.attributes);
    const at::Tensor &query = call.in[0];
    allowed(query, kHalves, "query");
    sizes(query, {-1, -1, -1, -1}, "query");
    alike(call.in[1], query, "key");
    alike(call.in[2], query, "value");
    const int64_t length = query.size(2), pairs = query.size(0) * query.size(1) * length * length;
    if (!at::is_expandable_to(call.in[3].sizes(), {query.size(0), query.size(1), length, length}))
        fail(FaultKind::InvalidArgument, "mask is {}, which does not broadcast to the scores", describe(call.in[3]));
    holds(call.in[4], 1, "scale");
    allowed(call.in[5], at::kByte, "drop_mask");
    holds(call.in[5], pairs, "drop_mask");
    holds(call.out[0], query.numel(), "attention_score");
    holds(call.out[1], pairs, "softmax_output");
}

void score(LegacyArguments &call) {
    const at::Tensor scores = times(call.in[0], turned(call.in[1])) * widened(call.in[4]) + widened(call.in[3]);
    const at::Tensor softmax = at::softmax(scores, -1).to(call.out[1].scalar_type());
    call.out[1].copy_(softmax);
    const at::Tensor kept = dropped(widened(softmax), of_bytes(call.in[5], softmax), keep_of(call.attributes));
    put(call.out[0], rows(times(kept.to(call.in[2].scalar_type()), call.in[2])));
}

// in: softmax, gradient, value, key, query, scale, which elements stay. out: of value, query and key, as rows.
void check_score_grad(LegacyArguments &call) {
    keep_of(call.attributes);
    const at::Tensor &query = call.in[4];
    allowed(query, kHalves, "query");
    sizes(query, {-1, -1, -1, -1}, "query");
    for (const size_t i : {1, 2, 3}) alike(call.in[i], query, "an input");
    sizes(call.in[0], {query.size(0), query.size(1), query.size(2), query.size(2)}, "softmax_output");
    holds(call.in[5], 1, "scale");
    holds(call.in[6], call.in[0].numel(), "drop_mask");
    for (size_t i = 0; i < 3; ++i) holds(call.out[i], query.numel(), "an output");
}

void score_grad(LegacyArguments &call) {
    const double keep = keep_of(call.attributes);
    const at::Tensor softmax = widened(call.in[0]), stays = of_bytes(call.in[6], softmax);
    put(call.out[0], rows(times(turned(dropped(softmax, stays, keep)), call.in[1])));
    const at::Tensor given = dropped(times(call.in[1], turned(call.in[2])), stays, keep);
    const at::Tensor slope = at::_softmax_backward_data(given, softmax, -1, at::kFloat) * widened(call.in[5]);
    put(call.out[1], rows(times(slope, call.in[3])));
    put(call.out[2], rows(times(turned(slope), call.in[4])));
}

// in: x, three kernels [in, out], gamma, beta, three biases. out: the normalized x, three layers, mean, variance.
void check_project(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    allowed(x, kHalves, "x");
    sizes(x, {-1, -1}, "x");
    for (const size_t i : {1, 2, 3}) sizes(call.in[i], {x.size(1), x.size(1)}, "a kernel");
    for (const size_t i : {4, 5}) sizes(call.in[i], {x.size(1)}, "gamma or beta");
    for (const size_t i : {6, 7, 8})
        if (i < call.in.size() && call.in[i].defined()) holds(call.in[i], x.size(1), "a bias");
    alike(call.out[0], x, "norm");
    for (const size_t i : {1, 2, 3}) {
        sizes(call.out[i], {-1, -1, -1, -1}, "a layer");
        holds(call.out[i], x.numel(), "a layer");
    }
    for (const size_t i : {4, 5}) holds(call.out[i], x.size(0), "mean or variance");
}

void project(LegacyArguments &call) {
    const at::Tensor x = widened(call.in[0]);
    const auto [variance, mean] = at::var_mean(x, at::OptionalIntArrayRef(-1), /*correction=*/at::Scalar(0), true);
    const at::Tensor rstd = (variance + attribute<float>(call.attributes, "epsilon", 1e-5F)).rsqrt();
    call.out[0].copy_((x - mean) * rstd * widened(call.in[4]) + widened(call.in[5]));
    for (size_t i = 1; i < 4; ++i) {
        at::Tensor &layer = call.out[i];
        at::Tensor flat = times(call.out[0], call.in[i]);
        if (i + 5 < call.in.size() && call.in[i + 5].defined()) flat = flat + widened(call.in[i + 5]).flatten();
        layer.copy_(flat.view({layer.size(0), layer.size(2), layer.size(1), layer.size(3)}).transpose(1, 2));
    }
    put(call.out[4], mean);
    put(call.out[5], variance);
}

// in: a gradient that comes with them, three gradients [rows, out], three kernels [in, out].
void check_project_grad(LegacyArguments &call) {
    for (size_t i = 0; i < 7; ++i) sizes(call.in[i], {-1, -1}, "an input");
    for (size_t i = 1; i < 4; ++i)
        if (call.in[i].size(1) != call.in[i + 3].size(1) || call.in[i + 3].size(0) != call.in[0].size(1) ||
            call.in[i].size(0) != call.in[0].size(0))
            fail(FaultKind::InvalidArgument, "{} and {} do not make a gradient like {}", describe(call.in[i]),
                 describe(call.in[i + 3]), describe(call.in[0]));
    alike(call.out[0], call.in[0], "the output");
}

// in: hidden states, three gradients. out: of three kernels, then of three biases.
void check_kernel_grad(LegacyArguments &call) {
    for (size_t i = 0; i < 4; ++i) sizes(call.in[i], {call.in[0].size(0), -1}, "an input");
    for (size_t i = 0; i < 3; ++i) {
        sizes(call.out[i], {call.in[0].size(1), call.in[i + 1].size(1)}, "a kernel's gradient");
        holds(call.out[i + 3], call.in[i + 1].size(1), "a bias' gradient");
    }
}

struct Heads {
    int64_t count, width, source, target, batch;
    double keep;

    int64_t columns() const { return count * width; }
    at::Tensor split(const at::Tensor &flat, int64_t length) const {
        return flat.view({batch, length, count, width}).transpose(1, 2);
    }
};

Heads heads(LegacyArguments &call) {
    const auto number = [&](const char *name) { return attribute<int64_t>(call.attributes, name, 0); };
    Heads made{number("attn_head_num"), number("attn_dim_per_head"), number("src_len"), number("tgt_len"), 0,
               keep_of(call.attributes)};
    for (const int64_t one : {made.count, made.width, made.source, made.target})
        if (one < 16 || one % 16 != 0)
            fail(FaultKind::InvalidArgument, "heads, width and lengths are {}, {}, {}, {}, expected multiples of 16",
                 made.count, made.width, made.source, made.target);
    allowed(call.in[0], kHalves, "query");
    made.batch = call.in[0].size(0) / made.target;
    sizes(call.in[0], {made.batch * made.target, made.columns()}, "query");
    for (const size_t i : {1, 2}) sizes(call.in[i], {made.batch * made.source, made.columns()}, "key or value");
    for (const size_t i : {3, 4, 5}) sizes(call.in[i], {made.columns(), made.columns()}, "a weight");
    return made;
}

// in: query, key, value, their weights [out, in], what is added to the scores, the output's weight; then, where they
// are, four biases and a mask of dropout. out: y, mask, the three layers, softmax, what stays of it, context.
struct Optional {
    std::vector<at::Tensor> biases;
    at::Tensor mask;
};

Optional optional_inputs(LegacyArguments &call) {
    Optional made;
    for (size_t i = 8; i < call.in.size(); ++i) {
        if (call.in[i].defined() && call.in[i].scalar_type() == at::kByte)
            made.mask = call.in[i];
        else if (call.in[i].defined())
            made.biases.push_back(widened(call.in[i]).flatten());
    }
    return made;
}

void check_multi_head(LegacyArguments &call) {
    const Heads made = heads(call);
    sizes(call.in[7], {made.columns(), made.columns()}, "the output's weight");
    const Optional more = optional_inputs(call);
    if (!more.biases.empty() && more.biases.size() != 4)
        fail(FaultKind::Unsupported, "The virtual NPU has MultiHeadAttention with four biases or none, not with {}.",
             more.biases.size());
    const int64_t pairs = made.batch * made.count * made.target * made.source;
    if (more.mask.defined()) holds(more.mask, pairs / 8, "the mask of dropout");
    holds(call.out[1], pairs / 8, "dropout_mask");
    for (const size_t i : {0, 2, 7}) holds(call.out[i], call.in[0].numel(), "an output");
    for (const size_t i : {3, 4}) holds(call.out[i], call.in[1].numel(), "an output");
    for (const size_t i : {5, 6}) holds(call.out[i], pairs, "an output");
    static std::atomic<int64_t> calls{0};  // each call has a mask of its own, and a run repeats
    call.attributes.values["call"] = calls++;
}

void multi_head(LegacyArguments &call) {
    const Heads made = heads(call);
    const Optional more = optional_inputs(call);
    const double scale = 1 / std::sqrt(static_cast<double>(made.width));
    for (size_t i = 0; i < 3; ++i) {
        at::Tensor flat = times(call.in[i], turned(call.in[i + 3]));
        if (!more.biases.empty()) flat = flat + more.biases[i];
        if (i == 0) flat = widened(flat.to(call.in[0].scalar_type())) * scale;
        call.out[i + 2].copy_(made.split(flat, i == 0 ? made.target : made.source));
    }
    if (more.mask.defined())
        put(call.out[1], more.mask);
    else
        generate_mask(call.out[1], 1 - made.keep, 0,
                      static_cast<uint64_t>(attribute<int64_t>(call.attributes, "call", 0)));
    const at::Tensor product = times(call.out[2], turned(call.out[3])).to(call.in[0].scalar_type());
    const at::Tensor scores = widened(product) + widened(call.in[6]);
    call.out[5].copy_(at::softmax(scores.to(call.in[0].scalar_type()).to(at::kFloat), -1));
    const at::Tensor softmax = widened(call.out[5].to(call.in[0].scalar_type()));
    call.out[6].copy_(dropped(softmax, of_bits(call.out[1], softmax), made.keep));
    put(call.out[7], rows(times(call.out[6], call.out[4])));
    at::Tensor y = times(call.out[7], turned(call.in[7]));
    if (!more.biases.empty()) y = y + more.biases[3];
    call.out[0].copy_(y);
}

// in: query, key, value, four weights, three layers, softmax, what stays of it, context, gradient, mask of dropout.
// out: of four weights, of query, key and value, of four biases.
void check_multi_head_grad(LegacyArguments &call) {
    const Heads made = heads(call);
    sizes(call.in[6], {made.columns(), made.columns()}, "the output's weight");
    const int64_t pairs = made.batch * made.count * made.target * made.source;
    for (const size_t i : {7, 12, 13}) holds(call.in[i], call.in[0].numel(), "an input");
    for (const size_t i : {8, 9}) holds(call.in[i], call.in[1].numel(), "an input");
    for (const size_t i : {10, 11}) holds(call.in[i], pairs, "an input");
    if (made.keep < 1) holds(call.in[14], pairs / 8, "the mask of dropout");
    for (size_t i = 0; i < 4; ++i) sizes(call.out[i], {made.columns(), made.columns()}, "a weight's gradient");
    for (size_t i = 0; i < 3; ++i) alike(call.out[i + 4], call.in[i], "an input's gradient");
    for (size_t i = 7; i < 11; ++i)
        if (call.out[i].defined()) holds(call.out[i], made.columns(), "a bias' gradient");
}

void multi_head_grad(LegacyArguments &call) {
    const Heads made = heads(call);
    const double scale = 1 / std::sqrt(static_cast<double>(made.width));
    const at::Tensor y = widened(call.in[13]),
                     context = made.split(times(y, call.in[6]).to(call.in[0].scalar_type()), made.target);
    const at::Tensor softmax = call.in[10].to(at::kFloat);
    at::Tensor given = times(context, turned(call.in[9]));
    if (made.keep < 1) given = dropped(given, of_bits(call.in[14], softmax), made.keep);
    const at::Tensor slope = at::_softmax_backward_data(given, softmax, -1, at::kFloat);
    const at::Tensor layers[] = {rows(times(slope, call.in[8])) * scale, rows(times(turned(slope), call.in[7])),
                                 rows(times(turned(call.in[11]), context))};
    for (size_t i = 0; i < 3; ++i) {
        const at::Tensor layer = widened(layers[i].to(call.in[0].scalar_type()));
        call.out[i].copy_(times(turned(layer), call.in[i]));
        call.out[i + 4].copy_(times(layer, call.in[i + 3]));
        if (call.out[i + 7].defined()) put(call.out[i + 7], layer.sum(0));
    }
    call.out[3].copy_(times(turned(y), call.in[12]));
    if (call.out[10].defined()) put(call.out[10], y.sum(0));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(AttentionScore, check_score(arguments), score(arguments))
LEGACY(AttentionScoreGrad, check_score_grad(arguments), score_grad(arguments))
LEGACY(AttentionLnQKV, check_project(arguments), project(arguments))
LEGACY(AttentionQKVGradX, check_project_grad(arguments), at::Tensor sum = widened(in[0]);
       for (size_t i = 1; i < 4; ++i) sum = sum + times(in[i], turned(in[i + 3])); out[0].copy_(sum))
LEGACY(
    AttentionQKVGradW, check_kernel_grad(arguments), for (size_t i = 0; i < 3; ++i) {
        out[i].copy_(times(turned(in[0]), in[i + 1]));
        put(out[i + 3], widened(in[i + 1]).sum(0));
    })
LEGACY(MultiHeadAttention, check_multi_head(arguments), multi_head(arguments))
LEGACY(MultiHeadAttentionGrad, check_multi_head_grad(arguments), multi_head_grad(arguments))

#define FIRST_PROLOG(PHASE)                                                                     \
    first_mla_prolog(PHASE, in, out, attribute<float>(attributes, "rmsnorm_epsilon_cq", 1e-5F), \
                     attribute<float>(attributes, "rmsnorm_epsilon_ckv", 1e-5F),                \
                     attribute<std::string>(attributes, "cache_mode", "PA_BSND"))
LEGACY(MlaProlog, FIRST_PROLOG(Phase::Check), FIRST_PROLOG(Phase::Run))
