// Executors that a program launches more than once, from aclSetAclOpExecutorRepeatable to aclDestroyAclOpExecutor.
#pragma once

#include <atomic>
#include <memory>

namespace vnpu::opapi {

class Executor;

// Whether this process has ever made one: most programs have not, and pay nothing.
extern std::atomic<bool> any_repeatable;

// A copy of the executor for one launch, or null where the launch is its only one.
std::unique_ptr<Executor> once_more(const Executor *executor);

}  // namespace vnpu::opapi
