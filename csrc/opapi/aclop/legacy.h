// Operators of the old single-operator API, named by a string:
//
//     LEGACY(Transpose, check_permute(in[0], in[1], out[0]), out[0].copy_(in[0].permute(ints(in[1]))))
//
// The second argument is what the call checks, the rest runs on the stream. Both see `in`, `out` (ATen tensors; an
// input that was left out is undefined) and `attributes`. Scalars and shapes that lie in host memory are copied.
// The line registers itself; nothing else has to know it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ascendcl/legacy_op.h"
#include "opapi/aclnn/op.h"

namespace vnpu::opapi {

class LegacyTensors : public std::vector<at::Tensor> {
  public:
    explicit LegacyTensors(const char *role) : role_(role) {}
    // Fault InvalidArgument where the call brought fewer.
    at::Tensor &operator[](size_t index);

  private:
    const char *role_;
};

struct LegacyArguments {
    LegacyTensors in{"input"}, out{"output"};
    aclopAttr attributes;
    // Sizes that the kernel finds, per output; an output that it leaves out here has those of its descriptor.
    using Shapes = std::map<size_t, std::vector<int64_t>>;
    std::shared_ptr<Shapes> found = std::make_shared<Shapes>();
};

using LegacyKernel = void (*)(Phase phase, LegacyArguments &arguments);

// Makes `type` known to aclopCompileAndExecute.
struct LegacyOperator {
    LegacyOperator(std::string_view type, LegacyKernel kernel);
};

// The attribute's value, or `otherwise` where the call does not set it. Fault InvalidArgument for another type.
template <class T>
T attribute(const aclopAttr &attributes, std::string_view name, T otherwise) {
    const auto found = attributes.values.find(name);
    if (found == attributes.values.end()) return otherwise;
    if (const T *value = std::get_if<T>(&found->second)) return *value;
    fail(FaultKind::InvalidArgument, "attribute {} has another type than expected", name);
}

// The integers of a shape input, known in the first phase when they lie in host memory, as shapes do.
std::vector<int64_t> ints(const at::Tensor &tensor);

}  // namespace vnpu::opapi

#define LEGACY(NAME, CHECK, ...)                                                          \
    static void legacy_##NAME([[maybe_unused]] vnpu::opapi::Phase phase,                  \
                              [[maybe_unused]] vnpu::opapi::LegacyArguments &arguments) { \
        using namespace vnpu::opapi;                                                      \
        [[maybe_unused]] LegacyTensors &in = arguments.in;                                \
        [[maybe_unused]] LegacyTensors &out = arguments.out;                              \
        [[maybe_unused]] const aclopAttr &attributes = arguments.attributes;              \
        if (phase == Phase::Check) {                                                      \
            CHECK;                                                                        \
            return;                                                                       \
        }                                                                                 \
        __VA_ARGS__;                                                                      \
    }                                                                                     \
    static const vnpu::opapi::LegacyOperator legacy_operator_##NAME(#NAME, legacy_##NAME);
