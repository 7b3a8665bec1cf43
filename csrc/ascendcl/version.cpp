// torch_npu chooses code paths by these versions: 8.3.RC1 is the first that sets devices lazily and leaves the legacy
// operators uninitialised until one is used; from 8.5.0 it asks for pointer attributes and strong consistency,
// from 9.0.0 for the device's information and for norms in one operator, from 9.1.0 it casts formats through aclnn.
#include "ascendcl/version.h"

#include <acl/acl_rt.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"

using namespace vnpu;
using acl::required;

namespace {

struct Driver {
    int major, minor;  // of the first CANN that it goes with
    std::string_view version;
};
#include "versions.inc"

struct Release {
    std::string name;
    int major, minor;
};

template <size_t size>
void put(char (&field)[size], std::string_view text) {
    static_assert(size > 0);
    const size_t length = std::min(text.size(), size - 1);
    std::memcpy(field, text.data(), length);
    field[length] = '\0';
}

std::string_view take_part(std::string_view &version) {
    const size_t dot = version.find_first_of(".-");
    const std::string_view part = version.substr(0, dot);
    version.remove_prefix(dot == std::string_view::npos ? version.size() : dot + 1);
    return part;
}

std::optional<int> number(std::string_view text) {
    int value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || text.size() > 3 || error != std::errc() || end != text.data() + text.size() || value < 0)
        return std::nullopt;
    return value;
}

// "RC1", "alpha003": a word that CANN uses, and a number.
bool numbered(std::string_view part, std::initializer_list<std::string_view> words) {
    return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
        return part.starts_with(word) && number(part.substr(word.size()));
    });
}

// 8.3.RC1, 8.5.0, 9.1.0, 8.5.0.alpha003, 9.0.0-beta.2: what torch_npu can compare.
std::optional<Release> parse(std::string_view name) {
    std::string_view rest = name;
    const auto major = number(take_part(rest)), minor = number(take_part(rest));
    const std::string_view patch = take_part(rest);
    if (!major || !minor || (!number(patch) && !numbered(patch, {"RC"}))) return std::nullopt;
    const std::string_view stage = take_part(rest);
    const bool word = stage == "alpha" || stage == "beta" || stage == "rc";
    if (!stage.empty() && !numbered(stage, {"alpha", "beta", "rc"}) && !(word && (rest.empty() || number(rest))))
        return std::nullopt;
    if ((!word && !rest.empty()) || name.back() == '.' || name.back() == '-') return std::nullopt;
    return Release{std::string(name), *major, *minor};
}

const Release &claimed() {
    static const Release release = [] {
        const char *wanted = std::getenv("VNPU_CANN");
        const std::string_view name = wanted == nullptr || *wanted == '\0' ? kDefault : std::string_view(wanted);
        const auto parsed = parse(name);
        if (!parsed)
            fail(FaultKind::InvalidArgument,
                 "VNPU_CANN={} is not a version of CANN; write for example {} or 8.3.RC1, or unset it.", name,
                 kDefault);
        constexpr const Driver &oldest = kDrivers[0];
        if (std::tie(parsed->major, parsed->minor) < std::tie(oldest.major, oldest.minor))
            fail(
                FaultKind::InvalidArgument,
                "VNPU_CANN={} is too old: the virtual NPU stands for CANN {}.{} and later, as the torch_npu that it is "
                "built for needs them.",
                name, oldest.major, oldest.minor);
        return *parsed;
    }();
    return release;
}

std::string_view version_of(std::string_view package) {
    return package == "driver" || package == "DRIVER" ? acl::driver_version() : acl::cann_version();
}

}  // namespace

std::string_view acl::cann_version() { return claimed().name; }

std::string_view acl::driver_version() {
    const Release &cann = claimed();
    std::string_view found = kDrivers[0].version;
    for (const Driver &each : kDrivers)
        if (std::tie(each.major, each.minor) <= std::tie(cann.major, cann.minor)) found = each.version;
    return found;
}

aclError aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion *version) {
    return VNPU_API(name, version) {
        if (name < ACL_PKG_NAME_CANN || name > ACL_PKG_NAME_DRIVER)
            fail(FaultKind::InvalidArgument, "name is {}, which is none of the packages.", static_cast<int>(name));
        std::string_view rest = name == ACL_PKG_NAME_DRIVER ? acl::driver_version() : acl::cann_version();
        aclCANNPackageVersion answer{};
        put(answer.version, rest);
        put(answer.majorVersion, take_part(rest));
        put(answer.minorVersion, take_part(rest));
        put(answer.releaseVersion, take_part(rest));
        put(answer.patchVersion, take_part(rest));
        required(version, "version") = answer;
    };
}

// versionStr has room for ACL_PKG_VERSION_MAX_SIZE characters.
aclError aclsysGetVersionStr(char *pkgName, char *versionStr) {
    return VNPU_API(versionStr) {
        acl::not_null(pkgName, "pkgName");
        acl::not_null(versionStr, "versionStr");
        const std::string_view version = version_of(pkgName);
        std::memcpy(versionStr, version.data(), version.size());
        versionStr[version.size()] = '\0';
    };
}

aclError aclrtGetVersion(int32_t *majorVersion, int32_t *minorVersion, int32_t *patchVersion) {
    return VNPU_API(majorVersion, minorVersion, patchVersion) {
        required(majorVersion, "majorVersion") = ACL_MAJOR_VERSION;
        required(minorVersion, "minorVersion") = ACL_MINOR_VERSION;
        required(patchVersion, "patchVersion") = ACL_PATCH_VERSION;
    };
}
