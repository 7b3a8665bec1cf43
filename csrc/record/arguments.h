// An operator's arguments and results as JSON, as src/torchport/record/operators/arguments.py explains it.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace torchport::record {

// The tensors in the order in which the JSON counts them; null for an undefined one. Valid as long as the values are.
using Tensors = std::vector<const at::Tensor *>;

// As torch writes it, without `torch.`: "float32".
std::string name_of(c10::ScalarType dtype);

// The values of a schema's arguments, or of its results: {"t": i} stands for a tensor, which is added to `tensors`.
std::string as_json(c10::ArrayRef<c10::IValue> values, const std::vector<c10::Argument> &declared, Tensors &tensors);

}  // namespace torchport::record
