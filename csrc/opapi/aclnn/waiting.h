// Operators whose kernels wait for other ranks: a thread that launches one must not run it.
#pragma once

#include <string_view>
#include <unordered_set>

namespace vnpu::opapi {

// Filled while the library is loaded.
std::unordered_set<std::string_view> &waiting_operators();

}  // namespace vnpu::opapi
