// Pinned host memory: what aclrtMallocHost gave out and what aclrtHostRegister was told of. Copies to and from it are
// truly asynchronous; other host memory is pageable.
#pragma once

#include <cstddef>

namespace vnpu::acl {

// Whether all of [address, address + size) is pinned.
bool pinned(const void *address, size_t size);

}  // namespace vnpu::acl
