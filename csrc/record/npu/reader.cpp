// Tensors of the virtual NPU for the recorder: through torch_npu's task queue, so behind every kernel launched before.
#include <acl/acl.h>
#include <dlfcn.h>
#include <torch_npu/csrc/core/npu/NPUStream.h>
#include <torch_npu/csrc/framework/OpCommand.h>

#include <memory>
#include <string>
#include <vector>

#include "ascendcl/reading.h"
#include "record/devices.h"

namespace at_npu::native {
int64_t get_npu_format(const at::Tensor &self);  // declared in a header of torch_npu's that needs ATen whole
}

namespace torchport::record {
namespace {

static_assert(sizeof(Piece) == sizeof(VnpuPiece));

// CANN's numbers of formats, aclFormat.
constexpr const char *kPlain = "";
const char *name_of_format(int64_t format) {
    switch (format) {
        case ACL_FORMAT_UNDEFINED:
        case ACL_FORMAT_NCHW:
        case ACL_FORMAT_NHWC:
        case ACL_FORMAT_ND:
        case ACL_FORMAT_NDHWC:
        case ACL_FORMAT_NCDHW:
        case ACL_FORMAT_NCL:
            return kPlain;
        case ACL_FORMAT_NC1HWC0:
            return "NC1HWC0";
        case ACL_FORMAT_FRACTAL_Z:
            return "FRACTAL_Z";
        case ACL_FORMAT_FRACTAL_NZ:
            return "FRACTAL_NZ";
        case ACL_FORMAT_NDC1HWC0:
            return "NDC1HWC0";
        case ACL_FRACTAL_Z_3D:
            return "FRACTAL_Z_3D";
        default:
            return "another";
    }
}

// From the copy that torch_npu uses; null for real CANN, which has no such function.
template <class Function>
Function find(const char *name) {
    void *library = dlopen("libascendcl.so", RTLD_NOLOAD | RTLD_LAZY);
    return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
}

decltype(&vnpuReadInStream) reading() {
    static const auto found = find<decltype(&vnpuReadInStream)>("vnpuReadInStream");
    return found;
}

bool computes() noexcept {
    static const auto found = find<decltype(&vnpuOnWorkerThread)>("vnpuOnWorkerThread");
    return found != nullptr && found();
}

bool read(const Piece *pieces, size_t count, Seen seen, void *data) noexcept {
    try {
        const aclrtStream stream = c10_npu::getCurrentNPUStream().stream(false);
        std::vector<VnpuPiece> all;
        all.reserve(count);
        for (size_t i = 0; i < count; ++i) all.push_back({pieces[i].address, pieces[i].size});
        at_npu::native::OpCommand::RunOpApiV2("torchport_record", [stream, all = std::move(all), seen, data]() -> int {
            // What it refuses, it refuses without a call.
            if (reading()(stream, all.data(), all.size(), seen, data) != ACL_SUCCESS) seen(data, nullptr);
            return 0;
        });
        return true;
    } catch (const std::exception &) {
        return false;
    }
}

const char *format(const at::Tensor &tensor) noexcept {
    try {
        return name_of_format(at_npu::native::get_npu_format(tensor));
    } catch (const std::exception &) {
        return kPlain;
    }
}

constexpr DeviceReader kReader{read, format, computes};

}  // namespace
}  // namespace torchport::record

// The reader for torchportRecordReader; null where the process has CANN and no virtual NPU.
extern "C" [[gnu::visibility("default")]] const torchport::record::DeviceReader *torchportRecordNpuReader() noexcept {
    return torchport::record::reading() == nullptr ? nullptr : &torchport::record::kReader;
}
