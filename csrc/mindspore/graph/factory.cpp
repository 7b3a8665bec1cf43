// ge::OperatorFactory: an operator by its type. Those that a program has registered are made as it says, others
// plainly.
#include <graph/operator_factory.h>

#include <mutex>

namespace ge {
namespace {

using Creator = std::function<Operator(const std::string &)>;

struct Creators {
    std::mutex mutex;
    std::map<std::string, Creator> of;
};
Creators &creators() {
    static auto *all = new Creators;  // never destroyed: libraries that register may be unloaded late
    return *all;
}

void keep(const std::string &type, Creator creator) {
    const std::lock_guard lock(creators().mutex);
    creators().of.emplace(type, std::move(creator));
}

}  // namespace

// Whether CANN has an operator of that name is known when it is called: the virtual NPU refuses those it lacks by name.
bool OperatorFactory::IsExistOp(const std::string &type) { return !type.empty(); }
bool OperatorFactory::IsExistOp(const char_t *const type) { return type != nullptr && *type != '\0'; }

Operator OperatorFactory::CreateOperator(const char_t *const name, const char_t *const type) {
    const std::string given = name == nullptr ? "" : name, asked = type == nullptr ? "" : type;
    Creator creator;
    {
        const std::lock_guard lock(creators().mutex);
        const auto found = creators().of.find(asked);
        if (found != creators().of.end()) creator = found->second;
    }
    return creator ? creator(given) : Operator(given.c_str(), asked.c_str());
}
Operator OperatorFactory::CreateOperator(const std::string &name, const std::string &type) {
    return CreateOperator(name.c_str(), type.c_str());
}

OperatorCreatorRegister::OperatorCreatorRegister(const std::string &type, const OpCreator &creator) {
    keep(type, creator);
}
OperatorCreatorRegister::OperatorCreatorRegister(const char_t *const type, const OpCreatorV2 &creator) {
    if (type != nullptr) keep(type, [creator](const std::string &name) { return creator(AscendString(name.c_str())); });
}
// Shapes are inferred by MindSpore itself.
InferShapeFuncRegister::InferShapeFuncRegister(const std::string &, const InferShapeFunc &) {}

}  // namespace ge
