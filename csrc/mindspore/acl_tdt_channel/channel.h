// Channels for tensors between host and device: queues by name. MindSpore opens them for what a compiled graph prints
// and for data that it reads ahead.
#pragma once

#include <acl/acl_tdt.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct acltdtDataItem {
    acltdtTensorType kind = ACL_TENSOR_DATA_UNDEFINED;
    aclDataType dtype = ACL_DT_UNDEFINED;
    std::vector<int64_t> dims;
    std::vector<std::byte> bytes;
};

struct acltdtDataset {
    std::vector<acltdtDataItem *> items;
    std::vector<std::unique_ptr<acltdtDataItem>> received;  // what owns the items that came out of a channel
    std::string name;
};
