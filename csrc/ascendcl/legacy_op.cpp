#include "ascendcl/legacy_op.h"

#include <acl/acl_op_compiler.h>
#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "device/machine.h"

using namespace vnpu;

namespace {

std::atomic<acl::LegacyExecutor> executor{nullptr};

// torch_npu opens libopapi itself before it uses a current operator, but not before a legacy one.
acl::LegacyExecutor find_executor() {
    if (executor.load() == nullptr && dlopen("libopapi.so", RTLD_NOW | RTLD_LOCAL) == nullptr) {
        const char *reason = dlerror();
        fail(FaultKind::Unsupported, "The operators' library could not be loaded: {}.",
             reason == nullptr ? "?" : reason);
    }
    const acl::LegacyExecutor found = executor.load();
    if (found == nullptr)
        fail(FaultKind::Unsupported,
             "The libopapi.so that was loaded is not the virtual NPU's: it has no legacy "
             "operators. Check LD_LIBRARY_PATH for another CANN.");
    return found;
}

void execute(const char *type, int input_count, const aclTensorDesc *const *input_descs,
             const aclDataBuffer *const *inputs, int output_count, aclTensorDesc *const *output_descs,
             aclDataBuffer *const *outputs, const aclopAttr *attributes, aclrtStream stream, bool shapes_wanted) {
    acl::not_null(type, "opType");
    if (input_count < 0 || output_count < 0)
        fail(FaultKind::InvalidArgument, "{}: {} inputs and {} outputs were announced.", type, input_count,
             output_count);
    const bool missing = (input_count > 0 && (input_descs == nullptr || inputs == nullptr)) ||
                         (output_count > 0 && (output_descs == nullptr || outputs == nullptr));
    if (missing) fail(FaultKind::NullArgument, "{}: a list of descriptors or buffers is null.", type);
    const auto in = static_cast<size_t>(input_count);
    const auto out = static_cast<size_t>(output_count);
    static const aclopAttr none;
    const auto queue = Machine::instance().stream(stream);
    const acl::LegacyCall call{type,           {input_descs, in},
                               {inputs, in},   {output_descs, out},
                               {outputs, out}, attributes == nullptr ? none : *attributes,
                               *queue,         shapes_wanted};
    if (!find_executor()(call))
        fail(FaultKind::Unsupported,
             "The virtual NPU does not have the legacy operator {}. This is a gap of the virtual NPU, not of the "
             "hardware.",
             type);
}

struct Options {
    std::mutex mutex;
    std::map<int, std::string> values;
};
// torch_npu asks for the default of this one before it sets any. "disable" on every chip: on an Ascend910A or 310P
// hardware says "enable", which would send each operator down the legacy path, that we have few operators for.
Options &options() {
    static auto *all = new Options{{}, {{ACL_OP_JIT_COMPILE, "disable"}}};  // never destroyed: used until the very end
    return *all;
}

}  // namespace

namespace vnpu::acl {

void set_legacy_executor(LegacyExecutor found) { executor.store(found); }

std::string compile_option(int option) {
    const std::lock_guard lock(options().mutex);
    const auto it = options().values.find(option);
    return it == options().values.end() ? std::string() : it->second;
}

}  // namespace vnpu::acl

aclError aclopCompileAndExecute(const char *opType, int numInputs, const aclTensorDesc *const inputDesc[],
                                const aclDataBuffer *const inputs[], int numOutputs,
                                const aclTensorDesc *const outputDesc[], aclDataBuffer *const outputs[],
                                const aclopAttr *attr, aclopEngineType engineType, aclopCompileType compileFlag,
                                const char *, aclrtStream stream) {
    return VNPU_API(opType, numInputs, numOutputs, engineType, compileFlag, stream) {
        // Nothing writes to the descriptors of this version: shapes_wanted is false.
        execute(opType, numInputs, inputDesc, inputs, numOutputs, const_cast<aclTensorDesc *const *>(outputDesc),
                outputs, attr, stream, false);
    };
}

aclError aclopCompileAndExecuteV2(const char *opType, int numInputs, aclTensorDesc *inputDesc[],
                                  aclDataBuffer *inputs[], int numOutputs, aclTensorDesc *outputDesc[],
                                  aclDataBuffer *outputs[], aclopAttr *attr, aclopEngineType engineType,
                                  aclopCompileType compileFlag, const char *, aclrtStream stream) {
    return VNPU_API(opType, numInputs, numOutputs, engineType, compileFlag, stream) {
        execute(opType, numInputs, inputDesc, inputs, numOutputs, outputDesc, outputs, attr, stream, true);
    };
}

// Which operators are compiled at the call, and which once for all shapes: here none is.
aclError aclopSetCompileFlag(aclOpCompileFlag flag) {
    return VNPU_API(flag) {
        if (flag != ACL_OP_COMPILE_DEFAULT && flag != ACL_OP_COMPILE_FUZZ)
            fail(FaultKind::InvalidArgument, "flag is {}; it is ACL_OP_COMPILE_DEFAULT or ACL_OP_COMPILE_FUZZ.",
                 static_cast<int>(flag));
    };
}

aclError aclSetCompileopt(aclCompileOpt opt, const char *value) {
    return VNPU_API(opt, value) {
        acl::not_null(value, "value");
        const std::lock_guard lock(options().mutex);
        options().values[opt] = value;
    };
}

// Bytes that aclGetCompileopt writes, with the terminating zero; 0 when the option was not set.
size_t aclGetCompileoptSize(aclCompileOpt opt) {
    return VNPU_API(opt) {
        const std::lock_guard lock(options().mutex);
        const auto it = options().values.find(opt);
        return it == options().values.end() ? size_t{0} : it->second.size() + 1;
    };
}

aclError aclGetCompileopt(aclCompileOpt opt, char *value, size_t length) {
    return VNPU_API(opt, length) {
        acl::not_null(value, "value");
        const std::lock_guard lock(options().mutex);
        const auto it = options().values.find(opt);
        if (it == options().values.end())
            fail(FaultKind::InvalidArgument, "Compile option {} was never set.", static_cast<int>(opt));
        if (length < it->second.size() + 1)
            fail(FaultKind::InvalidArgument, "The buffer has {} bytes; option {} needs {}.", length,
                 static_cast<int>(opt), it->second.size() + 1);
        std::memcpy(value, it->second.c_str(), it->second.size() + 1);
    };
}
