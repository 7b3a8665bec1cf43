// Two products with an activation between them, of one expert or of several (ops-transformer: aclnn_ffn.cpp).
#include "aclnn_mindspore.h"
#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

// torch_npu passes an empty list where there are no experts.
struct Layers {
    const Operand &x, &first, &second, &first_bias, &second_bias;
    const Ints &experts;
    bool ends;  // of the experts' rows, else their counts
};

std::string lowered(std::string name) {
    for (char &each : name) each = static_cast<char>(std::tolower(static_cast<unsigned char>(each)));
    return name;
}

void check_ffn(const Layers &l, std::initializer_list<const Operand *> quantised, const std::string &activation,
               int64_t precise, const Operand &y) {
    for (const Operand *each : {&l.x, &l.first, &l.second, &y}) require(*each);
    const std::string name = lowered(activation);
    if (name != "fastgelu" && name != "gelu" && name != "relu" && name != "silu")
        fail(FaultKind::InvalidArgument,
             "parameter activation is \"{}\", the virtual NPU offers fastgelu, gelu, relu and silu", activation);
    for (const Operand *each : {&l.x, &l.first, &l.second, &y}) {
        dtype(*each, {at::kHalf, at::kBFloat16});
        same_dtype(*each, l.x);
    }
    for (const Operand *each : quantised)
        if (each->defined() && each->numel() > 0)
            fail(FaultKind::InvalidArgument, "parameter {} is {}, which floating-point operands do not allow",
                 each->parameter(), describe(*each));
    const bool bfloat = l.x.scalar_type() == at::kBFloat16;
    if ((precise != 0 && precise != 1) || (bfloat && precise != 0))
        fail(FaultKind::InvalidArgument, "parameter innerPrecise is {}, allowed are 0 and, for float16, 1", precise);
    const int64_t several = !l.experts.empty() ? 1 : 0,
                  count = several == 1 ? static_cast<int64_t>(l.experts.size()) : 0;
    for (const Operand *each : {&l.first, &l.second})
        if (each->dim() != 2 + several || (several == 1 && each->size(0) != count))
            fail(FaultKind::InvalidArgument, "parameter {} is {}, expected {} matrices", each->parameter(),
                 describe(*each), several == 1 ? count : 1);
    if (l.x.dim() < 2 || l.x.size(-1) != l.first.size(-2) || l.first.size(-1) != l.second.size(-2))
        fail(FaultKind::InvalidArgument, "x is {}, weight1 {} and weight2 {}, which do not fit behind one another",
             describe(l.x), describe(l.first), describe(l.second));
    const auto bias = [&](const Operand &each, int64_t width) {
        if (!each.defined()) return;
        dtype(each, bfloat ? at::kFloat : at::kHalf);
        if (several == 1)
            shape(each, {count, width});
        else
            shape(each, {width});
    };
    bias(l.first_bias, l.first.size(-1));
    bias(l.second_bias, l.second.size(-1));
    at::DimVector sizes(l.x.sizes());
    sizes.back() = l.second.size(-1);
    shape(y, sizes);
}

// Gelu is the kernels' own, by tanh; what goes into the second product has the dtype of x, as the cube unit takes it.
at::Tensor active(const at::Tensor &x, const std::string &name) {
    if (name == "relu") return at::relu(x);
    if (name == "silu") return at::silu(x);
    return name == "gelu" ? at::gelu(x, "tanh") : x * (x * 1.702).sigmoid();
}

void ffn(const Layers &l, const std::string &name, at::Tensor &y) {
    const at::Tensor rows = l.x.reshape({-1, l.x.size(-1)});
    at::Tensor result = at::zeros({rows.size(0), l.second.size(-1)});
    const auto of = [&](const at::Tensor &each, int64_t expert) {
        return each.defined() && !l.experts.empty() ? each[expert] : each;
    };
    const auto layer = [&](const at::Tensor &x, const at::Tensor &weight, const at::Tensor &bias) {
        const at::Tensor value = at::matmul(widened(x), widened(weight));
        return bias.defined() ? value + widened(bias) : value;
    };
    int64_t begin = 0;
    const int64_t count = !l.experts.empty() ? static_cast<int64_t>(l.experts.size()) : 1;
    for (int64_t e = 0; e < count; ++e) {
        const int64_t given = !l.experts.empty() ? l.experts[static_cast<size_t>(e)] : rows.size(0);
        const int64_t end = l.ends ? given : begin + given;
        TORCH_CHECK(end >= begin && end <= rows.size(0), "expert ", e, " ends at ", end, ", outside of ", begin, " to ",
                    rows.size(0));
        const at::Tensor inner = active(layer(rows.slice(0, begin, end), of(l.first, e), of(l.first_bias, e)), name);
        result.slice(0, begin, end).copy_(layer(inner.to(l.x.scalar_type()), of(l.second, e), of(l.second_bias, e)));
        begin = end;
    }
    y.copy_(result.view(y.sizes()));
}

}  // namespace
}  // namespace vnpu::opapi

#define LAYERS {x, weight1, weight2, bias1, bias2, expertTokens, tokensIndexFlag}
#define QUANTIZED \
    {&scale, &offset, &deqScale1, &deqScale2, &antiquantScale1, &antiquantScale2, &antiquantOffset1, &antiquantOffset2}

OP(aclnnFFNV2, optional(bias1, bias2, scale, offset, deqScale1, deqScale2, antiquantScale1, antiquantScale2,
                        antiquantOffset1, antiquantOffset2);
   check_ffn(LAYERS, QUANTIZED, activation, innerPrecise, y), ffn(LAYERS, lowered(activation), y))
// The first version, which MindSpore asks for: expertTokens are counts.
#define COUNTED {x, weight1, weight2, bias1, bias2, expertTokens, false}
OP(aclnnFFN, optional(bias1, bias2, scale, offset, deqScale1, deqScale2, antiquantScale1, antiquantScale2,
                      antiquantOffset1, antiquantOffset2);
   check_ffn(COUNTED, QUANTIZED, activation, innerPrecise, y), ffn(COUNTED, lowered(activation), y))
