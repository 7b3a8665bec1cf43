// An operator that torch_npu can ask for and the virtual NPU does not have. It is exported so that the program gets
// a clean error in the caller's thread; a missing name would send torch_npu to its legacy path, whose failures are
// asynchronous and end the process.
#pragma once

#include "opapi/aclnn/op.h"

namespace vnpu::opapi {

aclnnStatus answer_gap(const char *name) noexcept;
// For an operator that CANN has for `chips` only: the code that its first phase gives on this one (elsewhere.toml).
aclnnStatus answer_elsewhere(const char *name, const char *chips, aclnnStatus code) noexcept;

}  // namespace vnpu::opapi

#define GAP(NAME)                                                                             \
    OP_EXPORT aclnnStatus NAME##GetWorkspaceSize() { return vnpu::opapi::answer_gap(#NAME); } \
    OP_EXPORT aclnnStatus NAME() { return vnpu::opapi::answer_gap(#NAME); }
#define ELSEWHERE(NAME, CHIPS, CODE)                                                                             \
    OP_EXPORT aclnnStatus NAME##GetWorkspaceSize() { return vnpu::opapi::answer_elsewhere(#NAME, CHIPS, CODE); } \
    OP_EXPORT aclnnStatus NAME() { return vnpu::opapi::answer_elsewhere(#NAME, CHIPS, CODE); }
