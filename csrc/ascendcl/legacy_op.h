// The old single-operator API (aclopCompileAndExecute): an operator named by a string, with described buffers and
// attributes. torch_npu still uses it for a few operators (Identity, Fill, ...). libascendcl only packs the arguments;
// libopapi, which has the kernels, registers the executor when it is loaded.
#pragma once

#include <acl/acl_base.h>
#include <acl/acl_op.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace vnpu {
class Stream;
}

// A tensor as the old API describes it: `dims` in `format` are what the program means, `storage_dims` in
// `storage_format` how the elements lie in memory (the same, unless the storage format is a private one).
struct aclTensorDesc {
    aclDataType dtype;
    aclFormat format;
    std::vector<int64_t> dims;
    aclFormat storage_format;
    std::vector<int64_t> storage_dims;
    std::string name;
    aclMemType placement = ACL_MEMTYPE_DEVICE;  // where the buffer is; scalars and shapes lie in host memory
    std::vector<std::byte> constant;            // bytes set by aclSetTensorConst, which replace the buffer
};

struct aclDataBuffer {
    void *data;
    size_t size;
};

struct aclopAttr {
    using Value = std::variant<bool, int64_t, float, std::string, aclDataType, std::vector<bool>, std::vector<int64_t>,
                               std::vector<float>, std::vector<std::string>, std::vector<aclDataType>,
                               std::vector<std::vector<int64_t>>>;
    std::map<std::string, Value, std::less<>> values;
};

namespace vnpu::acl {

// One call, valid until the executor returns: what its task needs later it must own.
struct LegacyCall {
    std::string_view type;  // "Identity"
    std::span<const aclTensorDesc *const> input_descs;
    std::span<const aclDataBuffer *const> inputs;
    std::span<aclTensorDesc *const> output_descs;
    std::span<aclDataBuffer *const> outputs;
    const aclopAttr &attributes;
    Stream &stream;
    // aclopCompileAndExecuteV2: the caller reads the outputs' shapes from their descriptors when the call returns, so
    // an operator with data-dependent shapes runs to its end (Stream::synchronize) and sets them.
    bool shapes_wanted;
};

// Checks the call and queues its task on the stream. Returns false, having done nothing, for a type it does not have;
// throws Fault for a call it refuses.
using LegacyExecutor = bool (*)(const LegacyCall &call);

// Called by libopapi when it is loaded.
[[gnu::visibility("default")]] void set_legacy_executor(LegacyExecutor executor);

// An option of aclSetCompileopt; "" when it was not set.
[[gnu::visibility("default")]] std::string compile_option(int option);

}  // namespace vnpu::acl
