#include "record/operators.h"

#include <algorithm>
#include <string_view>

namespace torchport::record {
namespace {

using c10::DispatchKey;

struct Keys3 {
    DispatchKey kernel, autograd, autocast;
};
constexpr std::array<Keys3, static_cast<size_t>(Backend::Count)> kBackends{{
    {DispatchKey::CPU, DispatchKey::AutogradCPU, DispatchKey::AutocastCPU},
    {DispatchKey::CUDA, DispatchKey::AutogradCUDA, DispatchKey::AutocastCUDA},
    {DispatchKey::PrivateUse1, DispatchKey::AutogradPrivateUse1, DispatchKey::AutocastPrivateUse1},
}};

constexpr std::array<std::string_view, 5> kEmpty{"aten::empty", "aten::new_empty", "aten::empty_like",
                                                 "aten::empty_strided", "aten::new_empty_strided"};

void describe(Operator &found, const c10::OperatorHandle &handle) {
    found.known = true;
    found.schema = &handle.schema();
    for (size_t i = 0; i < kBackends.size(); ++i) {
        found.composite[i] = handle.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
                             !handle.hasKernelForDispatchKey(kBackends[i].kernel) &&
                             !handle.hasKernelForDispatchKey(kBackends[i].autograd);
        found.casts[i] = handle.hasKernelForDispatchKey(kBackends[i].autocast);
    }
    const auto shown = [&](const c10::AliasInfo &alias) {
        return std::ranges::any_of(found.schema->returns(), [&](const c10::Argument &result) {
            return result.alias_info() != nullptr && result.alias_info()->beforeSets() == alias.beforeSets();
        });
    };
    const auto &arguments = found.schema->arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
        const c10::AliasInfo *alias = arguments[i].alias_info();
        const std::string &name = arguments[i].name();
        // Batch norms of old write their running statistics and do not say so; so do collectives.
        const bool silent = (found.name.ends_with("batch_norm") && name.starts_with("running_")) || found.later;
        const bool written = alias != nullptr && alias->isWrite();
        if (written || silent) found.written.push_back(i);
        if ((written ? !shown(*alias) : silent) && !found.later) found.hidden.push_back(i);
    }
}

}  // namespace

Backend backend_of(c10::DeviceType device) noexcept {
    switch (device) {
        case c10::DeviceType::CUDA:
            return Backend::Cuda;
        case c10::DeviceType::PrivateUse1:
            return Backend::PrivateUse1;
        default:
            return Backend::Cpu;
    }
}

const Operator &operator_of(const char *name, const char *overload, Texts &texts, bool (*wanted)(const char *name),
                            int recorder) {
    // By the address of the name, which belongs to the schema; a record that is none of an operator may have any.
    thread_local std::unordered_map<const void *, const Operator *> cache;
    thread_local int cached_for = -1;
    if (cached_for != recorder) cache.clear();
    cached_for = recorder;
    const void *key = *overload == '\0' ? name : overload;
    const auto cached = cache.find(key);
    if (cached != cache.end() && cached->second->name == name) return *cached->second;

    static std::mutex mutex;
    static auto *all = new std::unordered_map<std::string, Operator>;
    // Without the lock: Python answers, whose own lock another thread may have that waits here.
    const bool counts = wanted == nullptr || wanted(name);
    const std::lock_guard lock(mutex);
    const auto [place, added] = all->try_emplace(std::to_string(recorder) + name + '.' + overload);
    Operator &found = place->second;
    if (added) {
        found.name = name;
        found.name_text = texts.number(name);
        found.overload_text = texts.number(overload);
        found.later = found.name.starts_with("c10d::");
        found.waits = found.name == "_c10d_functional::wait_tensor";
        found.begins = found.name.starts_with("_c10d_functional::") && !found.waits;
        for (const std::string_view empty : kEmpty) found.empty = found.empty || found.name == empty;
        // torch's own marks of ranges are no operators of the user's.
        if (!found.name.starts_with("profiler::"))
            if (const auto handle = c10::Dispatcher::singleton().findSchema({name, overload})) describe(found, *handle);
        found.wanted = counts;
    }
    cache[key] = &found;
    return found;
}

}  // namespace torchport::record
