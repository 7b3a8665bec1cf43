#include "opapi/legacy/legacy.h"

#include <unordered_map>
#include <unordered_set>

#include "device/launches.h"
#include "device/machine.h"
#include "opapi/aclnn/format.h"

namespace vnpu::opapi {
namespace {

std::unordered_map<std::string_view, LegacyKernel> &kernels() {
    static std::unordered_map<std::string_view, LegacyKernel> all;
    return all;
}

// An operand in a private format: the kernel gets `rows`, which are filled from the storage before it runs, or written
// to it afterwards.
struct Packed {
    at::Tensor storage;
    Layout layout;
    at::Tensor rows;
};

// They move values: infinities stay what they are where results saturate, and they are no evidence of computing.
bool moves(std::string_view type) {
    static const std::unordered_set<std::string_view> all{"Identity",     "TransData",   "Transpose", "Slice",
                                                          "StridedSlice", "BroadcastTo", "Fill"};
    return all.contains(type);
}

at::Tensor view(const aclTensorDesc &desc, at::IntArrayRef sizes, const aclDataBuffer &buffer) {
    if (desc.dtype == ACL_DT_UNDEFINED) return {};  // an optional input that was left out
    const at::TensorOptions options = at::TensorOptions().dtype(own(desc.dtype));
    if (!desc.constant.empty())
        return at::from_blob(const_cast<std::byte *>(desc.constant.data()), sizes, options).clone();
    const int64_t elements = c10::multiply_integers(sizes);
    if (elements == 0) return at::empty(sizes, options);
    const size_t bytes = static_cast<size_t>(elements) * options.dtype().itemsize();
    if (buffer.data == nullptr || buffer.size < bytes)
        fail(FaultKind::InvalidArgument, "a buffer has {} bytes at {}, its descriptor needs {}", buffer.size,
             buffer.data, bytes);
    if (desc.placement != ACL_MEMTYPE_DEVICE) return at::from_blob(buffer.data, sizes, options).clone();
    AddressSpace &space = Machine::instance().space();
    if (!space.contains(buffer.data))
        fail(FaultKind::InvalidAddress, "{} is not device memory: an operator of the virtual NPU cannot use it.",
             buffer.data);
    return at::from_blob(space.alias(buffer.data), sizes, options);
}

at::Tensor operand(const aclTensorDesc &desc, const aclDataBuffer &buffer, std::vector<Packed> &packed) {
    const Layout layout = layout_of(desc.storage_format, desc.storage_dims);
    if (!layout || desc.dtype == ACL_DT_UNDEFINED) return view(desc, desc.dims, buffer);
    at::Tensor storage = view(desc, c10::multiply_integers(storage_shape(layout, desc.dims)), buffer);
    packed.push_back({std::move(storage), layout, at::empty(desc.dims, at::TensorOptions().dtype(own(desc.dtype)))});
    return packed.back().rows;
}

bool execute(const acl::LegacyCall &call) {
    const auto found = kernels().find(call.type);
    if (found == kernels().end()) return false;
    LegacyArguments arguments;
    std::vector<Packed> packed_in, packed_out;
    for (size_t i = 0; i < call.inputs.size(); ++i)
        arguments.in.push_back(operand(*call.input_descs[i], *call.inputs[i], packed_in));
    for (size_t i = 0; i < call.outputs.size(); ++i)
        arguments.out.push_back(operand(*call.output_descs[i], *call.outputs[i], packed_out));
    arguments.attributes = call.attributes;
    found->second(Phase::Check, arguments);
    call.stream.submit(make_task(
        found->first.data(),
        [type = found->first, kernel = found->second, own = std::move(arguments), packed_in = std::move(packed_in),
         packed_out = std::move(packed_out), dump = acl::Dump::current()]() mutable {
            const KernelScope scope;
            const auto run = [&] {
                kernel(Phase::Run, own);
                if (saturates() && !moves(type))
                    for (const at::Tensor &out : own.out) keep_finite(out);
            };
            for (const Packed &in : packed_in) in.rows.copy_(unpacked(in.storage, in.layout, in.rows.sizes()));
            if (dump == nullptr)
                run();
            else
                run_dumping(*dump, type, run, [&](Snapshot &taken) { taken.take(own.in, own.out); });
            for (const Packed &out : packed_out) pack(out.storage, out.layout, out.rows);
            if (!moves(type)) count_launch();
        }));
    return true;
}

const bool registered = (acl::set_legacy_executor(execute), true);

}  // namespace

LegacyOperator::LegacyOperator(std::string_view type, LegacyKernel kernel) { kernels().emplace(type, kernel); }

at::Tensor &LegacyTensors::operator[](size_t index) {
    if (index >= size()) fail(FaultKind::InvalidArgument, "{} {} is missing: {} were given", role_, index, size());
    return at(index);
}

std::vector<int64_t> ints(const at::Tensor &tensor) {
    if (!tensor.defined()) fail(FaultKind::NullArgument, "an input with integers is missing");
    const at::Tensor wide = tensor.to(at::kLong).contiguous();
    return {wide.const_data_ptr<int64_t>(), wide.const_data_ptr<int64_t>() + wide.numel()};
}

}  // namespace vnpu::opapi
