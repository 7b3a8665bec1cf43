// ge::Operator: name, type, inputs, outputs and attributes, kept and given back. See operator.h.
#include "mindspore/graph/operator.h"

#include <algorithm>

namespace ge {
namespace {

std::shared_ptr<OperatorImpl> made(std::string name, std::string type) {
    auto impl = std::make_shared<OperatorImpl>();
    impl->name = std::move(name);
    impl->type = std::move(type);
    return impl;
}

std::string text(const char *words) { return words == nullptr ? std::string() : std::string(words); }
std::string text(const AscendString &words) { return text(words.GetString()); }

// Attributes are kept in the widest type of their kind, whichever the caller has.
template <class T>
T wide(const T &value) {
    return value;
}
int64_t wide(int32_t value) { return value; }
int64_t wide(uint32_t value) { return value; }
std::string wide(const AscendString &value) { return text(value); }
std::string wide(const char *value) { return text(value); }
std::vector<int64_t> wide(const std::vector<int32_t> &values) { return {values.begin(), values.end()}; }
std::vector<std::string> wide(const std::vector<AscendString> &values) {
    std::vector<std::string> words;
    for (const AscendString &value : values) words.push_back(text(value));
    return words;
}

template <class T>
void put(const std::shared_ptr<OperatorImpl> &impl, const std::string &name, const T &value) {
    if (impl != nullptr) impl->attributes[name] = wide(value);
}

template <class T>
graphStatus get(const std::shared_ptr<OperatorImpl> &impl, const std::string &name, T &value) {
    if (impl == nullptr) return GRAPH_FAILED;
    const auto found = impl->attributes.find(name);
    if (found == impl->attributes.end()) return GRAPH_FAILED;
    using Kept = decltype(wide(value));
    const auto *kept = std::any_cast<Kept>(&found->second);
    if (kept == nullptr) return GRAPH_FAILED;
    if constexpr (std::is_same_v<Kept, T> || std::is_arithmetic_v<T>)
        value = static_cast<T>(*kept);
    else
        value.assign(kept->begin(), kept->end());
    return GRAPH_SUCCESS;
}

void noted(std::vector<std::string> &names, const std::string &name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

graphStatus describe(const std::shared_ptr<OperatorImpl> &impl, const std::string &key, const TensorDesc &desc) {
    if (impl == nullptr) return GRAPH_FAILED;
    impl->descriptions[key] = desc;
    return GRAPH_SUCCESS;
}

TensorDesc described(const std::shared_ptr<OperatorImpl> &impl, const std::string &key) {
    if (impl == nullptr) return {};
    const auto found = impl->descriptions.find(key);
    return found == impl->descriptions.end() ? TensorDesc() : found->second;
}

std::string output(const std::string &name) { return "=" + name; }
std::string member(const std::string &name, uint32_t index) { return name + std::to_string(index); }

}  // namespace

Operator::Operator(const std::string &type) : operator_impl_(made(type, type)) {}
Operator::Operator(const char_t *type) : operator_impl_(made(text(type), text(type))) {}
Operator::Operator(const std::string &name, const std::string &type) : operator_impl_(made(name, type)) {}
Operator::Operator(const char_t *name, const char_t *type) : operator_impl_(made(text(name), text(type))) {}
Operator::Operator(const AscendString &name, const AscendString &type) : operator_impl_(made(text(name), text(type))) {}

bool Operator::IsEmpty() const { return operator_impl_ == nullptr; }
std::string Operator::GetName() const { return operator_impl_ == nullptr ? std::string() : operator_impl_->name; }
std::string Operator::GetOpType() const { return operator_impl_ == nullptr ? std::string() : operator_impl_->type; }
graphStatus Operator::GetName(AscendString &name) const {
    if (operator_impl_ == nullptr) return GRAPH_FAILED;
    name = AscendString(operator_impl_->name.c_str());
    return GRAPH_SUCCESS;
}
graphStatus Operator::GetOpType(AscendString &type) const {
    if (operator_impl_ == nullptr) return GRAPH_FAILED;
    type = AscendString(operator_impl_->type.c_str());
    return GRAPH_SUCCESS;
}

// Names of inputs and outputs.
#define REGISTER(function, list)                                                 \
    void Operator::function(const char_t *name) {                                \
        if (operator_impl_ != nullptr) noted(operator_impl_->list, text(name));  \
    }                                                                            \
    void Operator::function(const std::string &name) { function(name.c_str()); } \
    void Operator::function(const char_t *name, const char_t *) { function(name); }
REGISTER(InputRegister, inputs)
REGISTER(OptionalInputRegister, inputs)
REGISTER(OutputRegister, outputs)

void Operator::DynamicInputRegister(const char_t *name, const uint32_t num, bool) {
    for (uint32_t i = 0; i < num; ++i) InputRegister(member(text(name), i).c_str());
}
void Operator::DynamicInputRegister(const char_t *name, const uint32_t num, const char_t *, bool back) {
    DynamicInputRegister(name, num, back);
}
void Operator::DynamicInputRegisterByIndex(const char_t *name, const uint32_t num, size_t) {
    DynamicInputRegister(name, num, true);
}
void Operator::DynamicOutputRegister(const char_t *name, const uint32_t num, bool) {
    for (uint32_t i = 0; i < num; ++i) OutputRegister(member(text(name), i).c_str());
}
void Operator::DynamicOutputRegister(const char_t *name, const uint32_t num, const char_t *, bool back) {
    DynamicOutputRegister(name, num, back);
}
int32_t Operator::GetDynamicOutputNum(const std::string &name) const {
    if (operator_impl_ == nullptr) return 0;
    const auto &all = operator_impl_->outputs;
    int32_t count = 0;
    while (std::find(all.begin(), all.end(), member(name, static_cast<uint32_t>(count))) != all.end()) ++count;
    return count;
}

// What the types may be is checked by the operator itself when it runs, and nothing is inferred here.
void Operator::DataTypeRegister(const char_t *, const TensorType &) {}
void Operator::DataTypeRegister(const char_t *, const Promote &) {}
void Operator::InferFuncRegister(const std::function<graphStatus(Operator &)> &) {}
void Operator::RequiredAttrRegister(const std::string &) {}
void Operator::RequiredAttrWithTypeRegister(const char_t *, const char_t *) {}

graphStatus Operator::UpdateInputDesc(const std::string &name, const TensorDesc &desc) {
    return describe(operator_impl_, name, desc);
}
graphStatus Operator::UpdateInputDesc(const char_t *name, const TensorDesc &desc) {
    return describe(operator_impl_, text(name), desc);
}
graphStatus Operator::UpdateOutputDesc(const std::string &name, const TensorDesc &desc) {
    return describe(operator_impl_, output(name), desc);
}
graphStatus Operator::UpdateOutputDesc(const char_t *name, const TensorDesc &desc) {
    return describe(operator_impl_, output(text(name)), desc);
}
graphStatus Operator::UpdateDynamicOutputDesc(const char_t *name, uint32_t index, const TensorDesc &desc) {
    return describe(operator_impl_, output(member(text(name), index)), desc);
}
TensorDesc Operator::GetOutputDesc(const std::string &name) const { return described(operator_impl_, output(name)); }
TensorDesc Operator::GetOutputDesc(uint32_t index) const {
    if (operator_impl_ == nullptr || index >= operator_impl_->outputs.size()) return {};
    return described(operator_impl_, output(operator_impl_->outputs[index]));
}

#define ATTRIBUTE(type)                                                \
    Operator &Operator::SetAttr(const char_t *name, type value) {      \
        put(operator_impl_, text(name), value);                        \
        return *this;                                                  \
    }                                                                  \
    Operator &Operator::SetAttr(const std::string &name, type value) { \
        put(operator_impl_, name, value);                              \
        return *this;                                                  \
    }
#define READ_ATTRIBUTE(type)                                                    \
    graphStatus Operator::GetAttr(const char_t *name, type &value) const {      \
        return get(operator_impl_, text(name), value);                          \
    }                                                                           \
    graphStatus Operator::GetAttr(const std::string &name, type &value) const { \
        return get(operator_impl_, name, value);                                \
    }
#define REGISTER_ATTRIBUTE(type) \
    void Operator::AttrRegister(const char_t *name, type value) { put(operator_impl_, text(name), value); }
#define KEPT_ATTRIBUTE(type) \
    ATTRIBUTE(const type &)  \
    READ_ATTRIBUTE(type)     \
    REGISTER_ATTRIBUTE(const type &)
#define KEPT_NUMBER(type) \
    ATTRIBUTE(type)       \
    READ_ATTRIBUTE(type)  \
    REGISTER_ATTRIBUTE(type)

KEPT_NUMBER(int64_t)
KEPT_NUMBER(float32_t)
KEPT_NUMBER(bool)
ATTRIBUTE(int32_t)
READ_ATTRIBUTE(int32_t)
ATTRIBUTE(uint32_t)
READ_ATTRIBUTE(uint32_t)
ATTRIBUTE(const std::vector<int32_t> &)
READ_ATTRIBUTE(std::vector<int32_t>)
KEPT_ATTRIBUTE(std::vector<int64_t>)
KEPT_ATTRIBUTE(std::vector<float32_t>)
KEPT_ATTRIBUTE(std::vector<bool>)
KEPT_ATTRIBUTE(std::vector<std::vector<int64_t>>)
KEPT_ATTRIBUTE(DataType)
KEPT_ATTRIBUTE(std::vector<DataType>)
KEPT_ATTRIBUTE(Tensor)
REGISTER_ATTRIBUTE(const AscendString &)
REGISTER_ATTRIBUTE(const std::vector<AscendString> &)

Operator &Operator::SetAttr(const char_t *name, const char_t *value) {
    put(operator_impl_, text(name), value);
    return *this;
}
Operator &Operator::SetAttr(const std::string &name, const std::string &value) {
    put(operator_impl_, name, value);
    return *this;
}
Operator &Operator::SetAttr(const std::string &name, const std::vector<std::string> &value) {
    put(operator_impl_, name, value);
    return *this;
}
graphStatus Operator::GetAttr(const std::string &name, std::string &value) const {
    return get(operator_impl_, name, value);
}
graphStatus Operator::GetAttr(const std::string &name, std::vector<std::string> &value) const {
    return get(operator_impl_, name, value);
}

}  // namespace ge
