// What a program marks in its profile: moments and ranges, on the host and, with a stream, on the device.
#pragma once

#include <cstdint>
#include <string_view>

namespace vnpu::acl {

// Nothing happens where no session runs that collects marks.
[[gnu::visibility("default")]] void mark(std::string_view domain, std::string_view message, void *stream);
// The range's number, which ends it; never 0.
[[gnu::visibility("default")]] uint64_t begin_range(std::string_view domain, std::string_view message, void *stream);
[[gnu::visibility("default")]] void end_range(uint64_t range);

}  // namespace vnpu::acl
