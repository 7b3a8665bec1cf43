#include <acl/acl_op_compiler.h>
#include <dlfcn.h>
#include <profiling/aprof_pub.h>

#include <cstring>

#include "calls.h"

extern "C" {
// Declared in no header that the wheel of torch_npu has, or beside functions that CANN alone has.
aclError aclmdlInitDump();
aclError aclmdlSetDump(const char *path);
aclError aclmdlFinalizeDump();
void aclAppLog(aclLogLevel level, const char *function, const char *file, uint32_t line, const char *format, ...);
}

// aclGetTensorDescDim: MindSpore still asks for it.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace random_calls {
namespace {

constexpr std::array<int64_t, 4> kDims = {2, 3, 0, -1};
constexpr std::array<float, 4> kFloats = {0, 1, -1, 2};
constexpr std::array<uint8_t, 4> kFlags = {0, 1, 2, 255};
constexpr std::array<aclDataType, 4> kTypes = {ACL_FLOAT, ACL_INT64, ACL_BOOL, ACL_DT_UNDEFINED};

int count(Draw &draw) { return static_cast<int>(draw.below(6)) - 1; }  // -1 to 4, what the arrays here have

template <class T>
const T *values(Draw &draw, const std::array<T, 4> &all) {
    return draw.once_in(16) ? nullptr : all.data();
}

aclDataType dtype(Draw &draw) { return draw.choice<aclDataType>(40); }
aclFormat format(Draw &draw) { return draw.choice<aclFormat>(36); }

int create_desc(Draw &draw) {
    draw.descs.keep(aclCreateTensorDesc(dtype(draw), count(draw), values(draw, kDims), format(draw)));
    return 0;
}

int create_buffer(Draw &draw) {
    draw.buffers.keep(aclCreateDataBuffer(draw.device_memory(), draw.some_size()));
    return 0;
}

int create_attributes(Draw &draw) {
    draw.attributes.keep(aclopCreateAttr());
    return 0;
}

int log(Draw &draw) {
    aclAppLog(draw.choice<aclLogLevel>(4), "function", "file", 1, draw.once_in(4) ? nullptr : "%d", draw.number());
    return 0;
}

int set_strings(Draw &draw) {
    const char *strings[] = {"a", "", "b", "c"};
    return aclopSetAttrListString(draw.attributes.any(draw), draw.text(), count(draw), strings);
}

int set_lists(Draw &draw) {
    const int counts[] = {1, 0, 4, 2};
    const int64_t *const lists[] = {kDims.data(), nullptr, kDims.data(), kDims.data()};
    return aclopSetAttrListListInt(draw.attributes.any(draw), draw.text(), count(draw), counts, lists);
}

int compile_option(Draw &draw) {
    std::array<char, 64> value{};
    return aclGetCompileopt(draw.choice<aclCompileOpt>(12), draw.once_in(8) ? nullptr : value.data(),
                            draw.below(value.size() + 1));
}

// The descriptors of one call of an old operator.
template <class Execute>
int old_operator(Draw &draw, Execute execute) {
    std::array<aclTensorDesc *, 2> in{}, out{};
    std::array<aclDataBuffer *, 2> from{}, to{};
    for (size_t i = 0; i < in.size(); ++i) {
        in[i] = draw.descs.any(draw), out[i] = draw.descs.any(draw);
        from[i] = draw.buffers.any(draw), to[i] = draw.buffers.any(draw);
    }
    const auto some = [&] { return static_cast<int>(draw.below(4)) - 1; };
    return execute(draw.text(), some(), in.data(), from.data(), some(), out.data(), to.data(),
                   draw.attributes.any(draw), draw.stream());
}

int compile_and_execute(Draw &draw) {
    return old_operator(
        draw, [](auto type, int inputs, auto in, auto from, int outputs, auto out, auto to, auto attr, auto stream) {
            return aclopCompileAndExecute(type, inputs, in, from, outputs, out, to, attr, ACL_ENGINE_SYS,
                                          ACL_COMPILE_SYS, nullptr, stream);
        });
}

int compile_and_execute_v2(Draw &draw) {
    return old_operator(
        draw, [](auto type, int inputs, auto in, auto from, int outputs, auto out, auto to, auto attr, auto stream) {
            return aclopCompileAndExecuteV2(type, inputs, in, from, outputs, out, to, attr, ACL_ENGINE_SYS,
                                            ACL_COMPILE_SYS, nullptr, stream);
        });
}

int hash(Draw &draw) {
    const char *text = draw.text();
    MsprofGetHashId(text, text == nullptr ? draw.size() : std::strlen(text));
    return 0;
}

}  // namespace

std::vector<Call> descriptor_calls() {
    return {
        {"aclCreateDataBuffer", create_buffer},
        CALL(aclDestroyDataBuffer, draw.buffers.take(draw)),
        CALL(aclUpdateDataBuffer, draw.buffers.any(draw), draw.device_memory(), draw.some_size()),
        PLAIN(aclGetDataBufferAddr, draw.buffers.any(draw)),
        PLAIN(aclGetDataBufferSizeV2, draw.buffers.any(draw)),

        {"aclCreateTensorDesc", create_desc},
        {"aclDestroyTensorDesc", [](Draw &draw) -> int { return aclDestroyTensorDesc(draw.descs.take(draw)), 0; }},
        PLAIN(aclGetTensorDescType, draw.descs.any(draw)),
        PLAIN(aclGetTensorDescFormat, draw.descs.any(draw)),
        PLAIN(aclGetTensorDescNumDims, draw.descs.any(draw)),
        CALL(aclGetTensorDescDimV2, draw.descs.any(draw), draw.size(), draw.out<int64_t>()),
        PLAIN(aclGetTensorDescElementCount, draw.descs.any(draw)),
        PLAIN(aclGetTensorDescSize, draw.descs.any(draw)),
        PLAIN(aclGetTensorDescDim, draw.descs.any(draw), draw.size()),
        PLAIN(aclDataTypeSize, dtype(draw)),
        CALL(aclopSetCompileFlag, draw.choice<aclOpCompileFlag>(4)),
        {"aclSetTensorDescName",
         [](Draw &draw) -> int { return aclSetTensorDescName(draw.descs.any(draw), draw.text()), 0; }},
        PLAIN(aclGetTensorDescName, draw.descs.any(draw)),
        CALL(aclSetTensorFormat, draw.descs.any(draw), format(draw)),
        CALL(aclSetTensorShape, draw.descs.any(draw), count(draw), values(draw, kDims)),
        CALL(aclSetTensorOriginFormat, draw.descs.any(draw), format(draw)),
        CALL(aclSetTensorOriginShape, draw.descs.any(draw), count(draw), values(draw, kDims)),
        CALL(aclSetTensorConst, draw.descs.any(draw), draw.once_in(8) ? nullptr : draw.host(), draw.below(100)),
        CALL(aclSetTensorPlaceMent, draw.descs.any(draw), draw.choice<aclMemType>(3)),

        {"aclopCreateAttr", create_attributes},
        {"aclopDestroyAttr", [](Draw &draw) -> int { return aclopDestroyAttr(draw.attributes.take(draw)), 0; }},
        CALL(aclopSetAttrBool, draw.attributes.any(draw), draw.text(), 2),
        CALL(aclopSetAttrInt, draw.attributes.any(draw), draw.text(), INT64_MIN),
        CALL(aclopSetAttrFloat, draw.attributes.any(draw), draw.text(), 1.5F),
        CALL(aclopSetAttrString, draw.attributes.any(draw), draw.text(), draw.text()),
        CALL(aclopSetAttrDataType, draw.attributes.any(draw), draw.text(), dtype(draw)),
        CALL(aclopSetAttrListDataType, draw.attributes.any(draw), draw.text(), count(draw), values(draw, kTypes)),
        CALL(aclopSetAttrListBool, draw.attributes.any(draw), draw.text(), count(draw), values(draw, kFlags)),
        CALL(aclopSetAttrListInt, draw.attributes.any(draw), draw.text(), count(draw), values(draw, kDims)),
        CALL(aclopSetAttrListFloat, draw.attributes.any(draw), draw.text(), count(draw), values(draw, kFloats)),
        {"aclopSetAttrListString", set_strings},
        {"aclopSetAttrListListInt", set_lists},

        {"aclopCompileAndExecute", compile_and_execute, 2},
        {"aclopCompileAndExecuteV2", compile_and_execute_v2, 2},
        CALL(aclSetCompileopt, draw.choice<aclCompileOpt>(12), draw.text()),
        PLAIN(aclGetCompileoptSize, draw.choice<aclCompileOpt>(12)),
        {"aclGetCompileopt", compile_option},

        RARELY(aclmdlInitDump),
        RARELY(aclmdlSetDump, draw.text()),
        RARELY(aclmdlFinalizeDump),
        {"aclAppLog", log},
        CALL(MsprofRegisterCallback, static_cast<uint32_t>(draw.number()), nullptr),
        CALL(MsprofReportApi, 0, draw.out<MsprofApi>()),
        CALL(MsprofReportCompactInfo, 0, draw.host(), 8),
        CALL(MsprofReportAdditionalInfo, 0, draw.host(), 8),
        {"MsprofGetHashId", hash},
        PLAIN(MsprofSysCycleTime),
    };
}

}  // namespace random_calls
