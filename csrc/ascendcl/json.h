// JSON, as far as CANN's configuration files need it. None of the packages that we build against brings a reader.
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

// Fault InvalidArgument names the line and what was expected there.
Json parse_json(std::string_view text);

}  // namespace vnpu::acl
