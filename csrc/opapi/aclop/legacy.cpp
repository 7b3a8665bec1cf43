#include "opapi/aclop/legacy.h"

#include <unordered_map>
#include <unordered_set>

#include "device/launches.h"
#include "device/machine.h"
#include "opapi/aclnn/format.h"
#include "opapi/aclop/text.h"

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
    static const std::unordered_set<std::string_view> all{
        "Identity",    "TransData", "Transpose",          "Slice",    "StridedSlice",
        "BroadcastTo", "Fill",      "OutfeedEnqueueOpV2", "InitData", "GetNext"};
    return all.contains(type);
}

bool takes_text(std::string_view type) { return type == "OutfeedEnqueueOpV2"; }

// Where an operand lies in device memory; asked again when the operator runs.
struct Place {
    const void *view;
    uint64_t bytes;
    std::string name;
};

// What the tensors of one role stand on.
struct Buffers {
    const char *role;
    bool text;  // whether strings are taken
    std::vector<Packed> packed;
    std::vector<Place> places;
};

at::Tensor view(const aclTensorDesc &desc, at::IntArrayRef sizes, const aclDataBuffer &buffer, size_t number,
                Buffers &all) {
    if (desc.dtype == ACL_DT_UNDEFINED) return {};  // an optional input that was left out
    at::DimVector string_memory;
    const bool text = desc.dtype == ACL_STRING && all.text;
    if (text) sizes = string_memory = {static_cast<int64_t>(buffer.size)};
    const at::TensorOptions options = at::TensorOptions().dtype(text ? kText : aten_dtype(desc.dtype));
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

class LegacyTask final : public Task {
  public:
    LegacyTask(const char *type, LegacyKernel kernel, LegacyArguments &&own, Buffers &&from, Buffers &&to)
        : type_(type), kernel_(kernel), own_(std::move(own)), from_(std::move(from)), to_(std::move(to)) {}
    const char *label() const noexcept override { return type_; }
    bool kernel() const noexcept override { return true; }

    void describe(Description &what) override {
        Shapes shapes(what);
        for (const at::Tensor &in : own_.in) shapes.add(in, false);
        for (const at::Tensor &out : own_.out) shapes.add(out, true);
        what.work = work_of(type_, what);
    }

    void run() override {
        const KernelScope scope;
        for (const Buffers *all : {&from_, &to_})
            for (const auto &[view, bytes, name] : all->places) still_live(view, bytes, name.c_str(), running_device());
        const auto run = [&] {
            kernel_(Phase::Run, own_);
            if (saturates() && !moves(type_))
                for (const at::Tensor &out : own_.out) keep_finite(out);
        };
        for (const Packed &in : from_.packed) in.rows.copy_(unpacked(in.storage, in.layout, in.rows.sizes()));
        if (dump_ == nullptr)
            run();
        else
            run_dumping(*dump_, type_, run, [&](Snapshot &taken) { taken.take(own_.in, own_.out); });
        for (const Packed &out : to_.packed) pack(out.storage, out.layout, out.rows);
        if (!moves(type_)) count_launch();
    }

  private:
    const char *const type_;
    const LegacyKernel kernel_;
    LegacyArguments own_;
    const Buffers from_, to_;
    const std::shared_ptr<acl::Dump> dump_ = acl::Dump::current();
};

bool execute(const acl::LegacyCall &call) {
    const auto found = kernels().find(call.type);
    if (found == kernels().end()) return false;
    LegacyArguments arguments;
    Buffers from{"input", takes_text(call.type), {}, {}}, to{"output", false, {}, {}};
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
    call.stream.submit(std::make_unique<LegacyTask>(found->first.data(), found->second, std::move(arguments),
                                                    std::move(from), std::move(to)));
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
