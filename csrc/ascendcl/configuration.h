// CANN's configuration files (acl.json): what aclInit and aclmdlSetDump are given.
#pragma once

#include <optional>
#include <string>

#include "ascendcl/json.h"

namespace vnpu::acl {

// The file's document. Error ACL_ERROR_INVALID_FILE where it cannot be read, ACL_ERROR_PARSE_FILE where it is no JSON.
Json read_configuration(const std::string &path);

// The member of an object; null where `parent` is none or has none of that name.
const Json *member(const Json *parent, const std::string &name);

// "defaultDevice": {"default_device": "0"}: the device of threads that have chosen none. Error ACL_ERROR_FAILURE for
// anything but a number in a string, as CANN's aclInit answers (runtime: acl/common/json_parser.cpp,
// GetDefaultDeviceIdFromFile).
std::optional<int> default_device(const Json &document, const std::string &path);

}  // namespace vnpu::acl
