#include "mindspore/acl_dvpp/images.h"

#include <cstdio>
#include <mutex>

namespace vnpu::mindspore {
namespace {

constexpr const char *kWhy =
    "The virtual NPU does not model the chip's image units (dvpp). MindSpore's transforms run on the CPU without "
    ".device(\"Ascend\").";

}  // namespace

void no_images(const char *function) {
    static std::once_flag once;
    std::call_once(once, [&] { std::fprintf(stderr, "torchport: %s is not offered. %s\n", function, kWhy); });
    fail(FaultKind::Unsupported, "{} is not offered. {}", function, kWhy);
}

}  // namespace vnpu::mindspore
