// Steps of optimizers whose gradient has some rows of the variable: var, moments, ..., gradient, indices. The operators
// of CANN change a row as often as it is named, one after the other, as TensorFlow's do; MindSpore's own kernels
// (Fused, its fused_sparse_utils.cc) first sum the gradients of a row.
#include "opapi/index/aclop_turns.h"
#include "opapi/optimizer/aclop_steps.h"

namespace vnpu::opapi {
namespace {

using Rows = std::vector<at::Tensor>;  // of the variable and its moments

void check_sparse(LegacyArguments &call, size_t moments, size_t gradient, std::initializer_list<size_t> numbers,
                  DTypes dtypes = at::kFloat, DTypes indices = at::kInt) {
    const at::Tensor &var = call.in[0], &grad = call.in[gradient], &places = call.in[gradient + 1];
    allowed(var, dtypes, "the variable");
    for (size_t i = 1; i <= moments; ++i) alike(call.in[i], var, "a moment");
    for (const size_t i : numbers) holds(call.in[i], 1, "a number");
    allowed(places, indices, "the indices");
    if (var.dim() == 0) fail(FaultKind::InvalidArgument, "the variable is {}, expected rows", describe(var));
    std::vector<int64_t> expected = var.sizes().vec();
    expected[0] = places.numel();
    sizes(places, {-1}, "the indices");
    sizes(grad, expected, "the gradient");
    for (size_t i = 0; i < call.out.size() && i <= moments; ++i) alike(call.out[i], var, "an output");
}

float given(LegacyArguments &call, const char *name, bool (*allowed)(float)) {
    if (!call.attributes.values.contains(name)) fail(FaultKind::InvalidArgument, "attribute {} is missing", name);
    const auto value = attribute<float>(call.attributes, name, 0);
    if (!allowed(value)) fail(FaultKind::InvalidArgument, "attribute {} is {}", name, value);
    return value;
}

float number(LegacyArguments &call, const char *name) {
    return given(call, name, [](float) { return true; });
}

at::Tensor scalar(LegacyArguments &call, size_t input) { return widened(call.in[input]).reshape({}); }

template <class Step>
void change(LegacyArguments &call, size_t moments, const at::Tensor &places, const at::Tensor &gradient, Step step) {
    Rows rows;
    for (size_t i = 0; i <= moments; ++i) rows.push_back(widened(call.in[i].index_select(0, places)));
    step(rows, gradient);
    for (size_t i = 0; i <= moments; ++i) call.in[i].index_copy_(0, places, rows[i].to(call.in[i].scalar_type()));
}

// Row by row, those that are named twice once more.
template <class Step>
void each(LegacyArguments &call, size_t moments, size_t gradient, Step step) {
    const at::Tensor places = call.in[gradient + 1].to(at::kLong), grad = widened(call.in[gradient]);
    for (const at::Tensor &turn : turns(places, call.in[0].size(0)))
        change(call, moments, places.index_select(0, turn), grad.index_select(0, turn), step);
    give_back(call, moments + 1);
}

struct Summed {
    at::Tensor places, gradient;
};

Summed summed(LegacyArguments &call, size_t gradient) {
    const at::Tensor places = call.in[gradient + 1].to(at::kLong), &grad = call.in[gradient];
    turns(places, call.in[0].size(0));
    const auto [rows, where, counts] = at::_unique2(places, true, true, false);
    std::vector<int64_t> sizes = grad.sizes().vec();
    sizes[0] = rows.numel();
    return {rows, at::zeros(sizes, grad.options()).index_add(0, where, grad)};
}

template <class Step>
void once(LegacyArguments &call, size_t moments, size_t gradient, Step step) {
    const Summed all = summed(call, gradient);
    change(call, moments, all.places, all.gradient, step);
    give_back(call, moments + 1);
}

auto adagrad(LegacyArguments &call, float epsilon) {
    return [&call, epsilon](Rows &rows, const at::Tensor &g) {
        if (attribute<bool>(call.attributes, "update_slots", true)) rows[1] = rows[1] + g * g;
        rows[0] = rows[0] - number(call, "lr") * g / (rows[1].sqrt() + epsilon);
    };
}

// `shrinkage` of the variable is added to the gradient of the linear term alone.
auto ftrl(LegacyArguments &call, float shrinkage) {
    return [&call, shrinkage](Rows &rows, const at::Tensor &g) {
        const float rate = number(call, "lr"), l1 = number(call, "l1"), l2 = number(call, "l2");
        const float power = -number(call, "lr_power");
        const at::Tensor before = rows[1].pow(power), squares = rows[1] + g * g, after = squares.pow(power);
        const at::Tensor linear = rows[2] + g + 2 * shrinkage * rows[0] - (after - before) / rate * rows[0];
        const at::Tensor moved = (linear.sign() * l1 - linear) / (after / rate + 2 * l2);
        rows = {at::where(linear.abs() > l1, moved, at::zeros_like(moved)), squares, linear};
    };
}

void check_ftrl(LegacyArguments &call) {
    check_sparse(call, 2, 3, {});
    given(call, "lr", [](float rate) { return rate > 0; });
    for (const char *name : {"l1", "l2"}) given(call, name, [](float value) { return value >= 0; });
    given(call, "lr_power", [](float power) { return power <= 0; });
}

// var, accum, rate, l1, l2.
auto proximal(LegacyArguments &call) {
    return [&call](Rows &rows, const at::Tensor &g) {
        const at::Tensor squares = rows[1] + g * g, rate = scalar(call, 2) / squares.sqrt();
        rows = {shrunk(rows[0] - rate * g, rate * scalar(call, 3)) / (1 + rate * scalar(call, 4)), squares};
    };
}

// var, mean of squares, momentum, rate.
auto rms_prop(LegacyArguments &call) {
    return [&call](Rows &rows, const at::Tensor &g) {
        const float rho = number(call, "rho");
        const at::Tensor squares = rows[1] * rho + (1 - rho) * g * g;
        const at::Tensor moved =
            rows[2] * number(call, "momentum") + scalar(call, 3) * g / (squares + number(call, "epsilon")).sqrt();
        rows = {rows[0] - moved, squares, moved};
    };
}

// var, m, v, the powers of both betas, rate, beta1, beta2, epsilon.
auto adam(LegacyArguments &call) {
    return [&call](Rows &rows, const at::Tensor &g) {
        const at::Tensor b1 = scalar(call, 6), b2 = scalar(call, 7);
        const at::Tensor rate = scalar(call, 5) * (1 - scalar(call, 4)).sqrt() / (1 - scalar(call, 3));
        const at::Tensor m = rows[1] * b1 + (1 - b1) * g, v = rows[2] * b2 + (1 - b2) * g * g;
        const bool nesterov = attribute<bool>(call.attributes, "use_nesterov", false);
        rows = {rows[0] - rate * (nesterov ? m * b1 + (1 - b1) * g : m) / (v.sqrt() + scalar(call, 8)), m, v};
    };
}

// Rows that are not named have the gradient 0: their moments go on, and move them.
void adam_of_all(LegacyArguments &call) {
    const Summed some = summed(call, 9);
    const at::Tensor all = at::zeros_like(call.in[0]).index_copy(0, some.places, some.gradient);
    change(call, 2, at::arange(call.in[0].size(0)), all, adam(call));
    give_back(call, 3);
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(SparseApplyAdagradD, check_sparse(arguments, 1, 2, {});
       number(arguments, "lr"), each(arguments, 1, 2, adagrad(arguments, 0)))
LEGACY(SparseApplyAdagradV2D, check_sparse(arguments, 1, 2, {}); number(arguments, "lr");
       number(arguments, "epsilon"), each(arguments, 1, 2, adagrad(arguments, number(arguments, "epsilon"))))
LEGACY(SparseApplyFtrlD, check_ftrl(arguments), each(arguments, 2, 3, ftrl(arguments, 0)))
LEGACY(SparseApplyFtrlV2D, check_ftrl(arguments);
       number(arguments, "l2_shrinkage"), each(arguments, 2, 3, ftrl(arguments, number(arguments, "l2_shrinkage"))))
LEGACY(SparseApplyProximalAdagradD, check_sparse(arguments, 1, 5, {2, 3, 4}, kNative, {at::kInt, at::kLong}),
       each(arguments, 1, 5, proximal(arguments)))
LEGACY(SparseApplyRMSPropD, check_sparse(arguments, 2, 4, {3}, kNative, {at::kInt, at::kLong});
       for (const char *name : {"rho", "momentum", "epsilon"}) number(arguments, name),
       each(arguments, 2, 4, rms_prop(arguments)))
LEGACY(CustFusedSparseProximalAdagrad, check_sparse(arguments, 1, 5, {2, 3, 4}),
       once(arguments, 1, 5, proximal(arguments)))
LEGACY(CustFusedSparseFtrl, check_ftrl(arguments), once(arguments, 2, 3, ftrl(arguments, 0)))
LEGACY(CustFusedSparseLazyAdam, check_sparse(arguments, 2, 9, {3, 4, 5, 6, 7, 8}),
       once(arguments, 2, 9, adam(arguments)))
LEGACY(CustFusedSparseAdam, check_sparse(arguments, 2, 9, {3, 4, 5, 6, 7, 8}), adam_of_all(arguments))
