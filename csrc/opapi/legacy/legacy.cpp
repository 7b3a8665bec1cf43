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

// Where an operand lies in device memory; asked again when the operator runs.
struct Place {
    const void *view;
    uint64_t bytes;
    std::string name;
};

// What the tensors of one role stand on.
struct Buffers {
    const char *role;
    std::vector<Packed> packed;
    std::vector<Place> places;
};

at::Tensor view(const aclTensorDesc &desc, at::IntArrayRef sizes, const aclDataBuffer &buffer, size_t number,
                Buffers &all) {
    if (desc.dtype == ACL_DT_UNDEFINED) return {};  // an optional input that was left out
    const at::TensorOptions options = at::TensorOptions().dtype(aten_dtype(desc.dtype));
    const uint64_t bytes = whole(sizes, options.dtype().itemsize());
    if (!desc.constant.empty() && desc.constant.size() < bytes)
        fail(FaultKind::InvalidArgument, "a constant has {} bytes, its descriptor needs {}", desc.constant.size(),
             bytes);
    if (!desc.constant.empty())
        return at::from_blob(const_cast<std::byte *>(desc.constant.data()), sizes, options).clone();
    if (bytes == 0) return at::empty(sizes, options);
    if (buffer.data == nullptr || buffer.size < bytes)
        fail(FaultKind::InvalidArgument, "a buffer has {} bytes at {}, its descriptor needs {}", buffer.size,
             buffer.data, bytes);
    if (desc.placement != ACL_MEMTYPE_DEVICE) return at::from_blob(buffer.data, sizes, options).clone();
    std::string name = fmt::format("{} {}", all.role, number);
    std::byte *at = live_range(buffer.data, bytes, name.c_str());
    all.places.push_back({at, bytes, std::move(name)});
    return at::from_blob(at, sizes, options);
}

at::Tensor operand(const aclTensorDesc &desc, const aclDataBuffer &buffer, size_t number, Buffers &all) {
    const Layout layout = layout_of(desc.storage_format, desc.storage_dims);
    if (!layout || desc.dtype == ACL_DT_UNDEFINED) return view(desc, desc.dims, buffer, number, all);
    at::Tensor storage = view(desc, c10::multiply_integers(storage_shape(layout, desc.dims)), buffer, number, all);
    all.packed.push_back(
        {std::move(storage), layout, at::empty(desc.dims, at::TensorOptions().dtype(aten_dtype(desc.dtype)))});
    return all.packed.back().rows;
}

bool execute(const acl::LegacyCall &call) {
    const auto found = kernels().find(call.type);
    if (found == kernels().end()) return false;
    LegacyArguments arguments;
    Buffers from{"input", {}, {}}, to{"output", {}, {}};
    for (size_t i = 0; i < call.inputs.size(); ++i)
        arguments.in.push_back(operand(*call.input_descs[i], *call.inputs[i], i, from));
    for (size_t i = 0; i < call.outputs.size(); ++i)
        arguments.out.push_back(operand(*call.output_descs[i], *call.outputs[i], i, to));
    arguments.attributes = call.attributes;
    try {
        found->second(Phase::Check, arguments);
    } catch (const Fault &fault) {
        fail(fault.kind(), "{}: {}", call.type, fault.what());
    }
    const auto shapes = arguments.found;
    call.stream.submit(make_task(
        found->first.data(), [type = found->first, kernel = found->second, own = std::move(arguments),
                              from = std::move(from), to = std::move(to), dump = acl::Dump::current()]() mutable {
            const KernelScope scope;
            for (const Buffers *all : {&from, &to})
                for (const auto &[view, bytes, name] : all->places)
                    still_live(view, bytes, name.c_str(), running_device());
            const auto run = [&] {
                kernel(Phase::Run, own);
                if (saturates() && !moves(type))
                    for (const at::Tensor &out : own.out) keep_finite(out);
            };
            for (const Packed &in : from.packed) in.rows.copy_(unpacked(in.storage, in.layout, in.rows.sizes()));
            if (dump == nullptr)
                run();
            else
                run_dumping(*dump, type, run, [&](Snapshot &taken) { taken.take(own.in, own.out); });
            for (const Packed &out : to.packed) pack(out.storage, out.layout, out.rows);
            if (!moves(type)) count_launch();
        }));
    if (!call.shapes_wanted) return true;
    call.stream.synchronize();
    for (const auto &[output, sizes] : *shapes) {
        aclTensorDesc &desc = *call.output_descs[output];
        desc.dims = desc.storage_dims = sizes;
    }
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
