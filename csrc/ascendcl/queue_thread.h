// The thread of torch_npu that launches what its task queue holds (TASK_QUEUE_ENABLE 1, the default, and 2).
#pragma once

namespace vnpu::acl {

// Whether the calling thread is that one: by the name that torch_npu 2.13 gives it, looked up once per thread.
[[gnu::visibility("default")]] bool on_queue_thread() noexcept;

}  // namespace vnpu::acl
