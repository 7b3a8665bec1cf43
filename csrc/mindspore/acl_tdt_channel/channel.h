// Tensors as they travel through channels between host and device (device/channel.h). MindSpore opens some for what a
// compiled graph prints and for data that it reads ahead.
#pragma once

#include <acl/acl_tdt.h>

#include <memory>
#include <string>
#include <vector>

#include "device/channel.h"

// `kind` is acltdtTensorType, `dtype` aclDataType.
struct acltdtDataItem : vnpu::Parcel {};

struct acltdtDataset {
    std::vector<acltdtDataItem *> items;
    std::vector<std::unique_ptr<acltdtDataItem>> received;  // what owns the items that came out of a channel
    std::string name;
};
