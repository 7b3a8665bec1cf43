// The CANN that the virtual NPU stands for. torch_npu chooses code paths by it: 8.3.RC1 is the first version that sets
// devices lazily and leaves the legacy operators uninitialised until one is used; from 8.5.0 it would ask for pointer
// attributes and strong consistency, from 9.1.0 it casts formats through aclnn.
#include <acl/acl_rt.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"

using namespace vnpu;
using acl::required;

namespace {

constexpr std::string_view kVersion = "8.3.RC1";
constexpr std::string_view kDriverVersion = "25.3.RC1";  // the driver shipped with it

template <size_t size>
void put(char (&field)[size], std::string_view text) {
    static_assert(size > 0);
    const size_t length = std::min(text.size(), size - 1);
    std::memcpy(field, text.data(), length);
    field[length] = '\0';
}

std::string_view take_part(std::string_view &version) {
    const size_t dot = version.find('.');
    const std::string_view part = version.substr(0, dot);
    version.remove_prefix(dot == std::string_view::npos ? version.size() : dot + 1);
    return part;
}

std::string_view version_of(std::string_view package) {
    return package == "driver" || package == "DRIVER" ? kDriverVersion : kVersion;
}

}  // namespace

aclError aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion *version) {
    return VNPU_API(name, version) {
        if (name < ACL_PKG_NAME_CANN || name > ACL_PKG_NAME_DRIVER)
            fail(FaultKind::InvalidArgument, "name is {}, which is none of the packages.", static_cast<int>(name));
        std::string_view rest = name == ACL_PKG_NAME_DRIVER ? kDriverVersion : kVersion;
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
