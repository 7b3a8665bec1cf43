// HCCL's declarations. The header says nothing of visibility, and this library is built with everything hidden.
#pragma once

#include <acl/acl.h>

#pragma GCC visibility push(default)
#include <third_party/hccl/inc/hccl/hccl.h>
#pragma GCC visibility pop
