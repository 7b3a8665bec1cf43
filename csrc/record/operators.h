// What is known of an operator from its schema and its kernels, looked up once.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "record/tables.h"

namespace torchport::record {

enum class Backend { Cpu, Cuda, PrivateUse1, Count };
Backend backend_of(c10::DeviceType device) noexcept;

struct Operator {
    std::string name;
    int32_t name_text = -1, overload_text = -1;
    bool known = false;                  // the dispatcher has it; else it is a function's record, which is looked into
    bool wanted = true;                  // a filter lets it pass
    bool empty = false;                  // gives memory that nobody has written
    bool later = false;                  // a collective: another thread writes what it gives
    bool begins = false, waits = false;  // a functional collective, and the operator that waits for what it gives
    const c10::FunctionSchema *schema = nullptr;
    std::vector<size_t> written;  // places of the arguments that it writes
    std::vector<size_t> hidden;   // of those the ones that no result shows
    // By backend: whether its kernel there only calls other operators, and whether autocast has one for it.
    std::array<bool, static_cast<size_t>(Backend::Count)> composite{}, casts{};
};

// The operator of that name, as the recorder of that number has it; never forgotten.
const Operator &operator_of(const char *name, const char *overload, Texts &texts, bool (*wanted)(const char *name),
                            int recorder);

}  // namespace torchport::record
