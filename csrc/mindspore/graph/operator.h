// What a ge::Operator is here: a type, and what it was given by name. MindSpore makes one for an operator that it calls
// by its type (aclopCompileAndExecute), to learn from it which of its own inputs are the operator's attributes. Nothing
// here compiles or runs it.
#pragma once

#include <graph/operator.h>

#include <any>
#include <map>
#include <string>
#include <vector>

namespace ge {

class OperatorImpl {
  public:
    std::string name, type;
    std::vector<std::string> inputs, outputs;        // in the order of their registration
    std::map<std::string, TensorDesc> descriptions;  // of inputs, and of outputs behind an '='
    std::map<std::string, std::any> attributes;
};

}  // namespace ge
