// ge::StatusFactory::Instance, whose table of error texts CANN's headers fill and read in the program itself.
#include <graph/ascend_string.h>

#include <cstdint>
#include <map>
#include <string>

namespace ge {

// Its only member. CANN's header has the functions; there Instance() is inline, in the libraries that ask for it not.
class StatusFactory {
  public:
    [[gnu::visibility("default")]] static StatusFactory *Instance();

  private:
    std::map<uint32_t, std::string> err_desc_;
};

StatusFactory *StatusFactory::Instance() {
    static auto *factory = new StatusFactory;  // never destroyed: read at exit, too
    return factory;
}

}  // namespace ge
