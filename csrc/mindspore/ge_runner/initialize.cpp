// GEInitialize and GEFinalize: MindSpore calls them before it uses operators by their type, too, which need no
// compiler. There is nothing to set up; who then makes a Session is refused. Without ge_api.h, which defines
// StatusFactory inline.
#include <cstdint>
#include <map>
#include <string>

namespace ge {

using Status = uint32_t;

Status GEInitialize(const std::map<std::string, std::string> &) { return 0; }
Status GEFinalize() { return 0; }

}  // namespace ge
