// Descriptors without memory. A first phase may be asked before there is any, for the size of its workspace, as
// MindSpore's graphs do; what was planned with them cannot run.
#pragma once

#include <atomic>

namespace vnpu::opapi {

class Executor;

// Whether this process has ever made one: most programs have not, and pay nothing.
extern std::atomic<bool> any_unbacked;

// Fault InvalidAddress where one of the executor's tensors has elements and no memory for them.
void refuse_unbacked(Executor &executor);

}  // namespace vnpu::opapi
