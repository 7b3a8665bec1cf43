// What an operator gives to a dump (ascendcl/dump.h): copies of its tensors before and after it runs.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <vector>

#include "ascendcl/dump.h"
#include "opapi/aclnn/tensor.h"

namespace vnpu::opapi {

class Executor;

// A tensor, or a list of them; those that are null are left out.
struct Part {
    Part(const Operand &tensor) : one(&tensor) {}
    Part(const Operands &several) : list(&several) {}
    const Operand *one = nullptr;
    const Operands *list = nullptr;
};

// What an operator shows its tensors to, in the phases that look at them.
class Taker {
  public:
    virtual void take(std::initializer_list<Part> inputs, std::initializer_list<Part> outputs) = 0;

  protected:
    ~Taker() = default;
};

class Snapshot final : public Taker {
  public:
    enum class Of { Inputs, Outputs };
    explicit Snapshot(Of of) : of_(of) {}
    // Copies those of the two that the snapshot is of.
    void take(std::initializer_list<Part> inputs, std::initializer_list<Part> outputs) override;
    void take(const std::vector<at::Tensor> &inputs, const std::vector<at::Tensor> &outputs);
    std::vector<acl::DumpedTensor> tensors;

  private:
    const Of of_;
};

// Runs an operator in between two snapshots, as far as the dump wants them, and leaves its file. What goes wrong with
// the dump does not touch the operator.
void run_dumping(acl::Dump &dump, std::string_view type, const std::function<void()> &run,
                 const std::function<void(Snapshot &)> &take);

// The executor as a task that does so.
std::unique_ptr<Task> dumping(Executor *executor, std::shared_ptr<acl::Dump> dump);

}  // namespace vnpu::opapi
