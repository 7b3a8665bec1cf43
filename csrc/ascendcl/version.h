// The CANN that the virtual NPU stands for: VNPU_CANN, or the one of knowledge/cann.toml.
#pragma once

#include <string_view>

namespace vnpu::acl {

// Of the toolkit and of its packages. Fault InvalidArgument when VNPU_CANN is no version of CANN that is offered.
std::string_view cann_version();
// Of the driver that goes with it.
std::string_view driver_version();

}  // namespace vnpu::acl
