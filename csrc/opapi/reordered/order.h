// Sums in another order than the CPU's (VNPU_SUM_ORDER), as every other device adds them: what a port is held against
// besides exact equality.
//
// A permutation of the terms leaves the mathematical result of an operator as it is. So nothing here computes: ATen's
// operators are intercepted, the axes that they add along are permuted in their operands, and what was permuted in a
// result is put back. Kernels of our own meet this wherever they call such an operator, at any depth; the interception
// is a dispatch key in the scope of a kernel (KernelScope), which no other thread and no operator of the program has.
#pragma once

#include <ATen/ATen.h>
#include <torch/library.h>

#include <optional>

namespace vnpu::opapi::reordered {

// The dispatch keys that KernelScope adds on its thread: none unless VNPU_SUM_ORDER is a seed.
c10::DispatchKeySet keys();

// The seed, where there is one.
std::optional<uint64_t> seed();

// Within its scope ATen's operators are the CPU's own.
class AsIs {
  public:
    AsIs();

  private:
    c10::impl::ExcludeDispatchKeyGuard guard_;
};

// The tensor permuted along an axis, and put back. Undefined tensors, axes of one element, and dtypes that add exactly
// stay as they are.
at::Tensor shuffled(const at::Tensor &tensor, int64_t dim);
at::Tensor unshuffled(const at::Tensor &tensor, int64_t dim);
std::optional<at::Tensor> shuffled(const std::optional<at::Tensor> &tensor, int64_t dim);
// Along each of these axes; along all where none is named.
at::Tensor shuffled_over(const at::Tensor &tensor, at::OptionalIntArrayRef dims);
// The permutation itself, for tensors of another dtype that go along: indices, targets.
at::Tensor permuted(const at::Tensor &tensor, int64_t dim);
// Within each of `groups` equal parts of the axis.
at::Tensor shuffled_in(const at::Tensor &tensor, int64_t dim, int64_t groups);
at::Tensor unshuffled_in(const at::Tensor &tensor, int64_t dim, int64_t groups);

void add_products(torch::Library &library);
void add_convolutions(torch::Library &library);
void add_reductions(torch::Library &library);
void add_norms(torch::Library &library);
void add_accumulations(torch::Library &library);

}  // namespace vnpu::opapi::reordered
