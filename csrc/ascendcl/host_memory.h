// Pinned host memory: what aclrtMallocHost gave out and what aclrtHostRegister was told of. Copies to and from it are
// truly asynchronous; other host memory is pageable.
#pragma once

#include <cstddef>

namespace vnpu::acl {

// Whether all of [address, address + size) is pinned.
bool pinned(const void *address, size_t size);

// Waits for the work queued on all devices: any of it may still read or write memory that is about to go.
void drain_all();

}  // namespace vnpu::acl
