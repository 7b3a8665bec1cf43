// HcclGroupStart and HcclGroupEnd: what a thread calls between the two begins together at the end.
#pragma once

#include <functional>
#include <memory>

#include "hccl/communicator.h"

namespace vnpu::hccl {

// Whether this thread is between the two.
bool in_group() noexcept;

// Keeps a send or a receive for the end, where those of a communicator are one batch, on the stream of the first.
void keep(const std::shared_ptr<Communicator> &comm, const HcclSendRecvItem &item, aclrtStream stream);

// Keeps a collective for the end. `begin` submits it.
void keep(const std::shared_ptr<Communicator> &comm, const Call &call, aclrtStream stream, std::function<void()> begin);

}  // namespace vnpu::hccl
