// JSON (RFC 8259), for CANN's configuration files and rank tables. None of the packages that we build against brings a
// reader.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace vnpu::acl {

struct Json : std::variant<std::nullptr_t, bool, double, std::string, std::vector<Json>, std::map<std::string, Json>> {
    using variant::variant;
    using Object = std::map<std::string, Json>;
    using List = std::vector<Json>;
};

// Takes nothing that is not JSON, and at most ten levels of it. Fault InvalidArgument names the line and what was
// expected there.
[[gnu::visibility("default")]] Json parse_json(std::string_view text);

}  // namespace vnpu::acl
