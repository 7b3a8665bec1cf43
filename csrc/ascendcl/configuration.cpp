#include "ascendcl/configuration.h"

#include <acl/acl_base.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "ascendcl/call.h"

namespace vnpu::acl {

const Json *member(const Json *parent, const std::string &name) {
    const auto *object = parent == nullptr ? nullptr : std::get_if<Json::Object>(parent);
    if (object == nullptr) return nullptr;
    const auto found = object->find(name);
    return found == object->end() ? nullptr : &found->second;
}

Json read_configuration(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    if (!file || !std::filesystem::is_regular_file(path))
        throw Error(ACL_ERROR_INVALID_FILE, fmt::format("The configuration {} cannot be read.", path));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    try {
        return parse_json(text);
    } catch (const Fault &fault) {
        throw Error(ACL_ERROR_PARSE_FILE, fmt::format("{}: {}.", path, fault.what()));
    }
}

std::optional<int> default_device(const Json &document, const std::string &path) {
    const Json *value = member(member(&document, "defaultDevice"), "default_device");
    if (value == nullptr) return std::nullopt;
    const auto *text = std::get_if<std::string>(value);
    int device = -1;
    if (text != nullptr && !text->empty() && (*text == "0" || text->front() != '0')) {
        const char *end = text->data() + text->size();
        const auto [stopped, error] = std::from_chars(text->data(), end, device);
        if (error != std::errc() || stopped != end) device = -1;
    }
    if (device < 0)
        throw Error(ACL_ERROR_FAILURE,
                    fmt::format("{}: default_device must be a number in quotes, 0 or more, as \"0\".", path));
    return device;
}

}  // namespace vnpu::acl
