// ASCEND_RT_VISIBLE_DEVICES: which devices a process sees, as CANN reads it. Device numbers in the API count the
// visible ones; the physical number matters only where processes must agree on who is who.
#pragma once

namespace vnpu::acl {

// How many devices this process sees.
int visible_device_count();
// Physical number of the visible device `index` (0 <= index < visible_device_count()).
[[gnu::visibility("default")]] int physical_device(int index);

}  // namespace vnpu::acl
