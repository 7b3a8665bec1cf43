// acltdtDataItem, acltdtDataset: tensors in host memory as they travel through a channel (channel.cpp).
#include <acl/acl_tdt.h>

#include <cstring>

#include "ascendcl/argument.h"
#include "ascendcl/call.h"
#include "mindspore/acl_tdt_channel/channel.h"

using namespace vnpu;
using acl::required;

acltdtDataItem *acltdtCreateDataItem(acltdtTensorType tdtType, const int64_t *dims, size_t dimNum, aclDataType dataType,
                                     void *data, size_t size) {
    return VNPU_API(tdtType, dimNum, dataType, data, size) {
        if (dimNum > 0) acl::not_null(dims, "dims");
        if (size > 0) acl::not_null(data, "data");
        auto made = std::make_unique<acltdtDataItem>();
        made->kind = tdtType;
        made->dtype = dataType;
        made->sizes.assign(dims, dims + dimNum);
        made->bytes.resize(size);
        if (size > 0) std::memcpy(made->bytes.data(), data, size);
        return made.release();
    };
}

aclError acltdtDestroyDataItem(acltdtDataItem *dataItem) {
    return VNPU_API(dataItem) { delete &required(dataItem, "dataItem"); };
}

acltdtTensorType acltdtGetTensorTypeFromItem(const acltdtDataItem *dataItem) {
    return dataItem == nullptr ? ACL_TENSOR_DATA_UNDEFINED : static_cast<acltdtTensorType>(dataItem->kind);
}
aclDataType acltdtGetDataTypeFromItem(const acltdtDataItem *dataItem) {
    return dataItem == nullptr ? ACL_DT_UNDEFINED : static_cast<aclDataType>(dataItem->dtype);
}
void *acltdtGetDataAddrFromItem(const acltdtDataItem *dataItem) {
    return dataItem == nullptr ? nullptr : const_cast<std::byte *>(dataItem->bytes.data());
}
size_t acltdtGetDataSizeFromItem(const acltdtDataItem *dataItem) {
    return dataItem == nullptr ? 0 : dataItem->bytes.size();
}
size_t acltdtGetDimNumFromItem(const acltdtDataItem *dataItem) {
    return dataItem == nullptr ? 0 : dataItem->sizes.size();
}

aclError acltdtGetDimsFromItem(const acltdtDataItem *dataItem, int64_t *dims, size_t dimNum) {
    return VNPU_API(dataItem, dims, dimNum) {
        const auto &all = required(dataItem, "dataItem").sizes;
        if (dimNum < all.size())
            fail(FaultKind::InvalidArgument, "dimNum is {}, but the item has {} dimensions.", dimNum, all.size());
        if (!all.empty()) acl::not_null(dims, "dims");
        std::copy(all.begin(), all.end(), dims);
    };
}

// Items travel whole here, however large.
aclError acltdtGetSliceInfoFromItem(const acltdtDataItem *dataItem, size_t *sliceNum, size_t *sliceId) {
    return VNPU_API(dataItem, sliceNum, sliceId) {
        acl::not_null(dataItem, "dataItem");
        required(sliceNum, "sliceNum") = 1;
        required(sliceId, "sliceId") = 0;
    };
}

acltdtDataset *acltdtCreateDataset() {
    return VNPU_API() { return new acltdtDataset; };
}

// The items that the caller has added are its own; those that a channel has put there go with the dataset.
aclError acltdtDestroyDataset(acltdtDataset *dataset) {
    return VNPU_API(dataset) { delete &required(dataset, "dataset"); };
}

aclError acltdtAddDataItem(acltdtDataset *dataset, acltdtDataItem *dataItem) {
    return VNPU_API(dataset, dataItem) {
        acl::not_null(dataItem, "dataItem");
        if (!required(dataset, "dataset").received.empty())
            fail(FaultKind::InvalidArgument, "dataset holds what a channel has given; make another to send.");
        dataset->items.push_back(dataItem);
    };
}

acltdtDataItem *acltdtGetDataItem(const acltdtDataset *dataset, size_t index) {
    return dataset == nullptr || index >= dataset->items.size() ? nullptr : dataset->items[index];
}
size_t acltdtGetDatasetSize(const acltdtDataset *dataset) { return dataset == nullptr ? 0 : dataset->items.size(); }
const char *acltdtGetDatasetName(const acltdtDataset *dataset) {
    return dataset == nullptr ? "" : dataset->name.c_str();
}
