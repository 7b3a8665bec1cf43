#include "opapi/aclnn/dump.h"

#include "opapi/aclnn/format.h"
#include "opapi/aclnn/op.h"

namespace vnpu::opapi {
namespace {

// OutputDataType of CANN's dump_task.proto.
int number_of(at::ScalarType dtype) {
    switch (dtype) {
        case at::kFloat:
            return 1;
        case at::kHalf:
            return 2;
        case at::kChar:
            return 3;
        case at::kByte:
            return 4;
        case at::kShort:
            return 5;
        case at::kUInt16:
            return 6;
        case at::kInt:
            return 7;
        case at::kLong:
            return 8;
        case at::kUInt32:
            return 9;
        case at::kUInt64:
            return 10;
        case at::kBool:
            return 11;
        case at::kDouble:
            return 12;
        case at::kComplexFloat:
            return 16;
        case at::kComplexDouble:
            return 17;
        case at::kBFloat16:
            return 27;
        default:
            fail(FaultKind::Unsupported, "The virtual NPU dumps no tensor of dtype {}", c10::toString(dtype));
    }
}

// The tensor's elements as a dump keeps them.
acl::DumpedTensor dumped(const at::Tensor &tensor) {
    const at::Tensor rows = tensor.contiguous();
    return {number_of(rows.scalar_type()), rows.sizes().vec(),
            rows.numel() == 0 ? "" : std::string(static_cast<const char *>(rows.const_data_ptr()), rows.nbytes())};
}

class DumpingTask final : public Task {
  public:
    DumpingTask(Executor *executor, std::shared_ptr<acl::Dump> dump) : executor_(executor), dump_(std::move(dump)) {}
    ~DumpingTask() override { executor_->retire(); }
    const char *label() const noexcept override { return executor_->label(); }
    bool kernel() const noexcept override { return true; }
    void describe(Description &what) override { executor_->describe(what); }

    void run() override {
        const std::string name = executor_->name();
        std::string_view type = name;
        if (type.starts_with("aclnn")) type.remove_prefix(5);
        run_dumping(*dump_, type, [&] { executor_->run(); }, [&](Snapshot &taken) { executor_->snapshot(taken); });
    }
    FaultKind failure(FaultKind thrown) noexcept override { return executor_->failure(thrown); }

  private:
    Executor *const executor_;
    const std::shared_ptr<acl::Dump> dump_;
};

}  // namespace

void Snapshot::take(std::initializer_list<Part> inputs, std::initializer_list<Part> outputs) {
    const auto one = [&](const Operand &tensor) {
        if (tensor.defined()) tensors.push_back(dumped(tensor.layout() ? unpacked(tensor) : tensor.filled()));
    };
    for (const Part &part : of_ == Of::Inputs ? inputs : outputs) {
        if (part.one != nullptr) one(*part.one);
        if (part.list != nullptr)
            for (const Operand &tensor : *part.list) one(tensor);
    }
}

void Snapshot::take(const std::vector<at::Tensor> &inputs, const std::vector<at::Tensor> &outputs) {
    for (const at::Tensor &tensor : of_ == Of::Inputs ? inputs : outputs)
        if (tensor.defined()) tensors.push_back(dumped(tensor));
}

void run_dumping(acl::Dump &dump, std::string_view type, const std::function<void()> &run,
                 const std::function<void(Snapshot &)> &take) {
    Snapshot before(Snapshot::Of::Inputs), after(Snapshot::Of::Outputs);
    bool whole = true;
    const auto part = [&](Snapshot &snapshot) {
        try {
            take(snapshot);
        } catch (const std::exception &failure) {
            whole = false;
            dump.missing(type, failure.what());
        }
    };
    if (dump.inputs()) part(before);
    run();
    if (dump.outputs()) part(after);
    if (whole && dump.open()) dump.write(type, std::move(before.tensors), std::move(after.tensors));
}

std::unique_ptr<Task> dumping(Executor *executor, std::shared_ptr<acl::Dump> dump) {
    return std::make_unique<DumpingTask>(executor, std::move(dump));
}

}  // namespace vnpu::opapi
