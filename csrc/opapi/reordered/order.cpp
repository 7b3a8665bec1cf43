#include "opapi/reordered/order.h"

#include <mutex>
#include <unordered_map>

#include "device/machine.h"
#include "device/sum_order.h"

namespace vnpu::opapi::reordered {
namespace {

// The generic mode's key: the highest of those that nothing in torch or torch_npu uses, in a thread's scope only.
constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

// Longer permutations are made anew: they are rare and take the time of the sum itself.
constexpr int64_t kKept = 65536;
constexpr size_t kKeptElements = 8 << 20;

struct Orders {
    std::mutex mutex;
    std::unordered_map<int64_t, std::pair<at::Tensor, at::Tensor>> all;
    size_t elements = 0;
};

std::pair<at::Tensor, at::Tensor> make_order(int64_t count) {
    const std::vector<int64_t> order = sum_order(*seed(), count);
    at::Tensor there = at::empty({count}, at::kLong), back = at::empty({count}, at::kLong);
    auto *to = there.mutable_data_ptr<int64_t>(), *from = back.mutable_data_ptr<int64_t>();
    for (int64_t i = 0; i < count; ++i) from[to[i] = order[static_cast<size_t>(i)]] = i;
    return {std::move(there), std::move(back)};
}

// The permutation and its inverse.
std::pair<at::Tensor, at::Tensor> order(int64_t count) {
    static auto *orders = new Orders;  // never destroyed: kernels run until the very end
    if (count > kKept) return make_order(count);
    const std::lock_guard lock(orders->mutex);
    const auto found = orders->all.find(count);
    if (found != orders->all.end()) return found->second;
    if (orders->elements > kKeptElements) {
        orders->all.clear();
        orders->elements = 0;
    }
    orders->elements += static_cast<size_t>(count);
    return orders->all.emplace(count, make_order(count)).first->second;
}

bool adds_exactly(const at::Tensor &tensor) {
    return !tensor.defined() || !(at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type()));
}

bool short_axis(const at::Tensor &tensor, int64_t dim) { return tensor.dim() == 0 || tensor.size(dim) < 2; }

at::Tensor grouped(const at::Tensor &tensor, int64_t dim, int64_t groups) {
    return tensor.unflatten(dim, {groups, tensor.size(dim) / groups});
}

void install() {
    static auto *aten = new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
    static auto *rest = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    rest->fallback(torch::CppFunction::makeFallthrough());
    for (const auto add : {add_products, add_convolutions, add_reductions, add_norms, add_accumulations}) add(*aten);
}

}  // namespace

std::optional<uint64_t> seed() {
    static const std::optional<uint64_t> chosen = Machine::instance().settings().sum_order;
    return chosen;
}

c10::DispatchKeySet keys() {
    static const c10::DispatchKeySet chosen = [] {
        if (!seed()) return c10::DispatchKeySet();
        install();
        return c10::DispatchKeySet(kKey);
    }();
    return chosen;
}

AsIs::AsIs() : guard_(kKey) {}

at::Tensor permuted(const at::Tensor &tensor, int64_t dim) {
    if (!tensor.defined() || short_axis(tensor, dim)) return tensor;
    return tensor.index_select(dim, order(tensor.size(dim)).first);
}

at::Tensor shuffled(const at::Tensor &tensor, int64_t dim) {
    return adds_exactly(tensor) ? tensor : permuted(tensor, dim);
}

std::optional<at::Tensor> shuffled(const std::optional<at::Tensor> &tensor, int64_t dim) {
    if (!tensor) return tensor;
    return shuffled(*tensor, dim);
}

at::Tensor unshuffled(const at::Tensor &tensor, int64_t dim) {
    if (adds_exactly(tensor) || short_axis(tensor, dim)) return tensor;
    return tensor.index_select(dim, order(tensor.size(dim)).second);
}

at::Tensor shuffled_over(const at::Tensor &tensor, at::OptionalIntArrayRef dims) {
    at::Tensor result = tensor;
    if (dims && !dims->empty())
        for (const int64_t dim : *dims) result = shuffled(result, dim);
    else
        for (int64_t dim = 0; dim < tensor.dim(); ++dim) result = shuffled(result, dim);
    return result;
}

at::Tensor shuffled_in(const at::Tensor &tensor, int64_t dim, int64_t groups) {
    if (groups == 1) return shuffled(tensor, dim);
    return shuffled(grouped(tensor, dim, groups), dim + 1).flatten(dim, dim + 1);
}

at::Tensor unshuffled_in(const at::Tensor &tensor, int64_t dim, int64_t groups) {
    if (groups == 1) return unshuffled(tensor, dim);
    return unshuffled(grouped(tensor, dim, groups), dim + 1).flatten(dim, dim + 1);
}

}  // namespace vnpu::opapi::reordered
