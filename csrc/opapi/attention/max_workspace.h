// What a captured graph asks before it is replayed with other lengths: the workspace that an operator can need. One
// call without a second phase. It checks as the first phase does, and answers as little as that.
#pragma once

#include "opapi/aclnn/op.h"

#define MAX_WORKSPACE(NAME, CHECK)                                                                       \
    OP_EXPORT aclnnStatus NAME(PARAMS_##NAME, uint64_t *workspaceSize, aclOpExecutor **executor) {       \
        using namespace vnpu::opapi;                                                                     \
        return VNPU_OPERATOR_API(workspaceSize) {                                                        \
            plan(#NAME, workspaceSize, executor, [OWN_##NAME](Phase phase, Taker *) mutable -> Checked { \
                if (phase == Phase::Check) {                                                             \
                    CHECK;                                                                               \
                    required(OPERANDS_##NAME);                                                           \
                }                                                                                        \
                return {};                                                                               \
            });                                                                                          \
        };                                                                                               \
    }
