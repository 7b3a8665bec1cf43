// A call that is under way, and what of its inputs is looked at again behind it.
#pragma once

#include <optional>

#include "record/elements.h"
#include "record/recorder.h"

namespace torchport::record {

// Memory of a device that was read before, and which nobody has written since as far as is recorded.
struct Recorder::Check {
    c10::StorageImpl *storage = nullptr;  // with its number and generation in Known: whether it is there still
    int64_t number = 0, generation = 0;
    int32_t row = -1;  // that has its bytes
    Piece piece{};
    std::optional<Elements> elements;
};

// Tensors of a device that one task in its stream looks at: `tensors` that are new, then `checks` of others.
struct Recorder::Batch {
    struct One {
        TensorRow *row;
        int32_t number;
        Elements elements;
    };
    Recorder *recorder;
    std::shared_ptr<Step> step;
    int32_t after;
    std::vector<One> tensors{};
    std::vector<Check> checks{};
    std::vector<Piece> pieces{};
};

// A call that is under way.
struct ActiveCall final : at::ObserverContext {
    const Operator *known = nullptr;
    std::shared_ptr<Step> step;
    size_t row = 0;
    int64_t sequence = -1;  // of the node that it may make
    std::vector<c10::StorageImpl *> written;
    // Tensors that it writes and no result shows. Its arguments are gone when it has ended, and more than a weak
    // reference would change what kernels do that look at the number of references.
    std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> hidden;
    int32_t module = -1, source = -1;     // texts
    std::vector<Recorder::Check> checks;  // of its inputs, when it has ended
    ~ActiveCall() override;
};

}  // namespace torchport::record
